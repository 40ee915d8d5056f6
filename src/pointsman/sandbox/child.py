"""Who an isolated command is, and which system calls it is refused.

Decided here, carried out by `launcher`. Not here: what the command sees (`visibility`, `environment`).
"""

import errno
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass


class CannotStart(Exception):
    """The command was not started; the message is one line with the next step. The CLI exits with 125."""


@dataclass(frozen=True, slots=True)
class User:
    """Whom the command runs as."""

    uid: int
    gid: int
    name: str
    homes: tuple[str, ...] = ()
    """Directories with this user's own settings and keys, hidden from the command when the user owns them."""
    groups: tuple[int, ...] = ()
    """Supplementary groups. Root drops them; whoever is not root cannot, and keeps them."""


NOBODY = User(65534, 65534, "nobody")


def sandbox_user(requested: str | None, environment: Mapping[str, str]) -> User:
    """The user of a command that root isolates: `--user` (NAME, UID or UID:GID), else who called sudo, else nobody.

    Raises CannotStart for an unknown user and for root: even without capabilities root owns the host's files.
    """
    user = _named(requested) if requested is not None else _caller_of_sudo(environment) or NOBODY
    if user.uid == 0:
        raise CannotStart(
            "--user root would let the command rewrite this host's files; name a user without privileges, or leave "
            "--user away for nobody"
        )
    return user


def calling_user(requested: str | None, environment: Mapping[str, str]) -> User:
    """The user of a command that is isolated without root: whoever calls.

    Raises CannotStart when `--user` names somebody else, and for root, who has a better isolation.
    """
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        raise CannotStart("--isolation bwrap runs the command as you, and you are root: choose --isolation netns")
    if requested is not None and _named(requested).uid != uid:
        raise CannotStart(f"--user {requested}: only root may run a command as somebody else; use sudo")
    homes = (environment.get("HOME", ""),)
    groups = tuple(os.getgroups())
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, gid, str(uid), homes, groups)
    return User(uid, gid, entry.pw_name, (entry.pw_dir, *homes), groups)


def _named(text: str) -> User:
    uid, colon, gid = text.partition(":")
    if colon and uid.isdecimal() and gid.isdecimal():
        return User(int(uid), int(gid), uid, _homes_of(int(uid)))
    try:
        entry = pwd.getpwuid(int(text)) if text.isdecimal() else pwd.getpwnam(text)
    except (KeyError, OverflowError):
        raise CannotStart(f"--user {text}: no such user; name one of this host, or give UID:GID") from None
    return User(entry.pw_uid, entry.pw_gid, entry.pw_name, (entry.pw_dir,))


def _caller_of_sudo(environment: Mapping[str, str]) -> User | None:
    uid, gid = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    # root may use sudo too; that names nobody to become.
    if not (uid.isdecimal() and gid.isdecimal() and int(uid)):
        return None
    return User(int(uid), int(gid), environment.get("SUDO_USER", uid), _homes_of(int(uid)))


def _homes_of(uid: int) -> tuple[str, ...]:
    """The home directory of a user whom this host knows by number."""
    with suppress(KeyError, OverflowError):
        return (pwd.getpwuid(uid).pw_dir,)
    return ()


@dataclass(frozen=True, slots=True)
class SystemCalls:
    """A processor's numbers, from its kernel headers."""

    architecture: int
    """Its AUDIT_ARCH, as seccomp reports it."""
    ioctl: int
    socket: int
    keyctl: int


_MACHINES = {
    "x86_64": SystemCalls(0xC000003E, 16, 41, 250),
    "aarch64": SystemCalls(0xC00000B7, 29, 198, 219),
    "riscv64": SystemCalls(0xC00000F3, 29, 198, 219),
}
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
_IO_URING_SETUP = 425  # the same everywhere
_X32 = 0x40000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


def system_calls(machine: str | None = None) -> SystemCalls:
    """The numbers of `machine` (default: this one). Raises CannotStart when they are not known."""
    name = machine or os.uname().machine
    if name not in _MACHINES:
        raise CannotStart(f"no system call filter is known for {name} processors; choose --isolation none")
    return _MACHINES[name]


def system_call_filter(calls: SystemCalls) -> bytes:
    """Classic BPF against what namespaces do not contain.

    TIOCSTI and TIOCLINUX type into the operator's terminal. Socket families other than unix, IPv4, IPv6 and netlink
    are refused because some ignore network namespaces: vsock reaches the machine that runs this one. io_uring makes
    sockets unseen by this filter, and so do the calls of another architecture: to the command neither exists.
    """
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, fail = 0x7FFF0000, 0x00050000
    number_at, architecture_at, first_argument_at, second_argument_at = 0, 4, 16, 24
    program = (
        (load, 0, 0, architecture_at),
        (equal, 0, 18, calls.architecture),  # else to 20
        (load, 0, 0, number_at),
        (at_least, 16, 0, _X32),  # to 20
        (equal, 15, 0, _IO_URING_SETUP),  # to 20
        (equal, 2, 0, calls.ioctl),  # to 8
        (equal, 5, 0, calls.socket),  # to 12
        (answer, 0, 0, allow),
        (load, 0, 0, second_argument_at),  # 8: ioctl's request, low half
        (equal, 9, 0, _TIOCSTI),  # to 19
        (equal, 8, 0, _TIOCLINUX),  # to 19
        (answer, 0, 0, allow),
        (load, 0, 0, first_argument_at),  # 12: the socket's family
        *((equal, 4 - i, 0, family) for i, family in enumerate(_FAMILIES)),  # to 18
        (answer, 0, 0, fail | errno.EAFNOSUPPORT),
        (answer, 0, 0, allow),  # 18
        (answer, 0, 0, fail | errno.EPERM),  # 19
        (answer, 0, 0, fail | errno.ENOSYS),  # 20
    )
    return b"".join(struct.pack("HBBI", *line) for line in program)


@dataclass(frozen=True, slots=True)
class Failure:
    """What the launcher tells when CMD could not be started."""

    stage: str
    number: int | None
    """The errno, when there was one."""
    detail: str

    def explain(self, name: str, cwd: str, who: str) -> str:
        """One line for the operator, for a command called `name` that `who` was to run in `cwd`."""
        reason = os.strerror(self.number) if self.number else self.detail
        match self.stage, self.number:
            case "namespaces", errno.EPERM:
                return (
                    f"the kernel refused to make a namespace ({reason}): it takes CAP_SYS_ADMIN (in a container: "
                    "--cap-add SYS_ADMIN), or choose --isolation none"
                )
            case "namespaces", errno.ENOSPC:
                return f"the kernel refused to make a namespace ({reason}): see /proc/sys/user/max_*_namespaces"
            case "namespaces", _:
                return f"the kernel refused to make a namespace ({reason}); choose --isolation none"
            case "listener", errno.EACCES | errno.EPERM:
                return (
                    f"the sandbox may not listen on its own port 443 ({reason}): bwrap's AppArmor profile denies it "
                    "capabilities (docs/howto/run-without-root.md has one that does not), or run it with sudo"
                )
            case "limits", _:
                return f"the command could not be put under its limits ({self.detail}): leave --memory and --cpus away"
            case "directory", _:
                return f"{who} cannot start in {cwd} ({reason}): start from another directory, or choose another --user"
            case "find", _:
                return f"cannot run {name}: it is hidden from {who}; show its directory with --expose"
            case "execute", errno.EACCES | errno.EPERM:
                return f"cannot run {name}: {who} may not execute it"
            case "execute", errno.ENOEXEC:
                return f"cannot run {name}: it is neither a program nor a script with a #! line"
            case "execute", errno.ENOENT:
                return f"cannot run {name}: its interpreter does not exist or is hidden; show it with --expose"
            case "execute", _:
                return f"cannot run {name}: {reason}"
        return f"cannot set up the sandbox ({self.stage}): {self.detail}"
