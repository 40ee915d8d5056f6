"""What the launcher asks of the kernel, by libc where Python has no name for it."""

import ctypes
import os
import struct
from collections.abc import Callable

# <linux/sched.h>, <sys/mount.h>, <linux/prctl.h>, <linux/keyctl.h>
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x20000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
SECCOMP_MODE_FILTER, KEYCTL_JOIN_SESSION_KEYRING = 2, 1
CAPABILITY_VERSION_3 = 0x20080522
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1  # the same on every processor
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

libc = ctypes.CDLL(None, use_errno=True)


def call(what: str, function: Callable[..., int], *arguments: object) -> None:
    """Call into libc; a failure is an OSError that says what was tried."""
    if function(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(what: str, option: int, *arguments: int) -> None:
    """prctl is variadic: every argument must be passed at full width."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    call(what, libc.prctl, option, *(ctypes.c_ulong(argument) for argument in padded))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2); `source` is a path, or a word for kinds that have none."""
    call(
        f"mounting on {target}",
        libc.mount,
        os.fsencode(source),
        os.fsencode(target),
        kind and kind.encode(),
        ctypes.c_ulong(flags),
        data.encode(),
    )


def set_read_only(path: str, *, read_only: bool, recursive: bool) -> None:
    """mount_setattr(2), Linux 5.12: whether the mount at `path`, or also all below it, can be written to."""
    bit = MOUNT_ATTR_RDONLY
    attributes = struct.pack("QQQQ", bit if read_only else 0, 0 if read_only else bit, 0, 0)
    call(
        f"making {path} {'read-only' if read_only else 'writable'}",
        libc.syscall,
        ctypes.c_long(SYS_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        os.fsencode(path),
        ctypes.c_uint(AT_RECURSIVE if recursive else 0),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )
