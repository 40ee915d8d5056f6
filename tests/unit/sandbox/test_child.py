"""Who a command becomes, what it may ask of the kernel, and the words for what went wrong."""

import errno
import pwd
import struct
from dataclasses import replace

import pytest

from pointsman.sandbox.child import NOBODY, CannotStart, Failure, User, sandbox_user, system_call_filter, system_calls

ALLOW = 0x7FFF0000


@pytest.mark.parametrize(
    ("requested", "environment", "user"),
    [
        (None, {}, NOBODY),
        (None, {"SUDO_UID": "1000", "SUDO_GID": "1001", "SUDO_USER": "ada"}, User(1000, 1001, "ada")),
        (None, {"SUDO_UID": "1000", "SUDO_GID": "1001"}, User(1000, 1001, "1000")),
        (None, {"SUDO_UID": "0", "SUDO_GID": "0", "SUDO_USER": "root"}, NOBODY),
        (None, {"SUDO_UID": "1000"}, NOBODY),
        (None, {"SUDO_UID": "-1", "SUDO_GID": "x"}, NOBODY),
        ("nobody", {"SUDO_UID": "1000", "SUDO_GID": "1000"}, NOBODY),
        ("65534", {}, NOBODY),
        ("4321:8765", {}, User(4321, 8765, "4321")),
    ],
)
def test_the_user_is_the_one_asked_for_else_who_called_sudo_else_nobody(
    requested: str | None, environment: dict[str, str], user: User
) -> None:
    assert replace(sandbox_user(requested, environment), homes=()) == user


def test_homes_of_a_known_user_are_known() -> None:
    entry = pwd.getpwnam("nobody")
    for name in ("nobody", str(entry.pw_uid), f"{entry.pw_uid}:{entry.pw_gid}", f"{entry.pw_uid}:1"):
        assert sandbox_user(name, {}).homes == (entry.pw_dir,)
    sudo = {"SUDO_UID": str(entry.pw_uid), "SUDO_GID": str(entry.pw_gid)}
    assert sandbox_user(None, sudo).homes == (entry.pw_dir,)


@pytest.mark.parametrize("name", ["no-such-user-here", "4000000001", "", "1:", ":1", "9" * 30])
def test_an_unknown_user_is_refused_with_the_next_step(name: str) -> None:
    with pytest.raises(CannotStart, match="no such user; name one of this host, or give UID:GID"):
        sandbox_user(name, {})


@pytest.mark.parametrize("name", ["root", "0", "0:1000"])
def test_root_is_refused_because_it_owns_the_hosts_files(name: str) -> None:
    with pytest.raises(CannotStart, match="would let the command rewrite"):
        sandbox_user(name, {})


def answer(program: bytes, data: bytes) -> int:
    """Run classic BPF, of the four instructions that the filter uses, as the kernel would."""
    position, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("HBBI", program, 8 * position)
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            assert code in (0x15, 0x35), "an instruction this test does not know"
            holds = accumulator == value if code == 0x15 else accumulator >= value
            position += if_true if holds else if_false


def asked(architecture: int, number: int, first: int = 0, second: int = 0) -> bytes:
    return struct.pack("IIQQQ", number, architecture, 0, first, second)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_the_filter_refuses_what_namespaces_do_not_contain_and_nothing_else(machine: str) -> None:
    calls = system_calls(machine)
    program = system_call_filter(calls)
    here = calls.architecture
    cases = [
        (asked(here, calls.ioctl, 0, 0x5412), errno.EPERM),
        (asked(here, calls.ioctl, 0, 0x5412 | 1 << 40), errno.EPERM),  # the kernel reads 32 bits of it
        (asked(here, calls.ioctl, 0, 0x541C), errno.EPERM),
        (asked(here, calls.ioctl, 0, 0x5413), None),
        (asked(here, calls.ioctl, 0x5412, 0), None),
        *((asked(here, calls.socket, family), None) for family in (1, 2, 10, 16)),
        *((asked(here, calls.socket, family), errno.EAFNOSUPPORT) for family in (0, 3, 9, 11, 15, 17, 38, 40, 44)),
        (asked(here, 425), errno.ENOSYS),
        *((asked(here, number), None) for number in (424, 426)),
        (asked(here, 0x40000000), errno.ENOSYS),
        (asked(here, 0x3FFFFFFF), None),
        (asked(here ^ 1, calls.ioctl), errno.ENOSYS),
        (asked(0x40000003, 102), errno.ENOSYS),  # i386's socketcall
    ]
    for data, number in cases:
        assert answer(program, data) == (ALLOW if number is None else 0x50000 | number), data


def test_an_unknown_processor_is_refused_rather_than_left_unfiltered() -> None:
    with pytest.raises(CannotStart, match="--isolation none"):
        system_calls("pdp11")


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Failure("namespaces", errno.EPERM, ""), "--isolation none"),
        (Failure("namespaces", errno.ENOSPC, ""), "max_*_namespaces"),
        (Failure("namespaces", errno.EINVAL, ""), "--isolation none"),
        (Failure("listener", errno.EACCES, ""), "AppArmor"),
        (Failure("limits", errno.EACCES, "x"), "--memory"),
        (Failure("directory", errno.EACCES, ""), "nobody cannot start in /work"),
        (Failure("find", errno.ENOENT, ""), "--expose"),
        (Failure("execute", errno.EACCES, ""), "nobody may not execute it"),
        (Failure("execute", errno.ENOEXEC, ""), "#! line"),
        (Failure("execute", errno.ENOENT, ""), "interpreter"),
        (Failure("execute", errno.E2BIG, ""), "Argument list too long"),
        (Failure("view", errno.EINVAL, "mounting on /x"), "mounting on /x"),
        (Failure("privileges", None, "KeyError: 'user'"), "KeyError"),
    ],
)
def test_every_failure_is_one_line_that_says_what_to_do(failure: Failure, words: str) -> None:
    text = failure.explain("agent", "/work", "nobody")
    assert words in text
    assert "\n" not in text
