"""Keeper and init: what the launcher turns into."""

import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from .channel import COULD_NOT_START, Channel
from .command import AWAITED, END, attend, end_leftovers, exit_code, spawn
from .groups import join, leave
from .kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    call,
    libc,
    prctl,
)
from .network import listen, loopback_up
from .privileges import become, become_again, drop, drop_bounding_set
from .view import make_view


def guarded(channel: Channel, work: Callable[[], int]) -> int:
    """Run `work`; whatever goes wrong before CMD runs is told to the supervisor."""
    try:
        return work()
    except Exception as error:
        channel.fail(error)
        return COULD_NOT_START


# --- init


def enter_namespaces(orders: dict[str, Any], channel: Channel) -> None:
    """With root: what bubblewrap has done where there is none."""
    channel.stage = "namespaces"
    call("unshare", libc.unshare, CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC)
    channel.stage = "view"
    make_view(orders)
    channel.stage = "listener"
    loopback_up()


def run_isolated(orders: dict[str, Any], channel: Channel, keeper: int) -> int:
    """Init's whole life; returns the exit code. `keeper` is a descriptor that is readable when the keeper is dead."""
    prctl("parent death", PR_SET_PDEATHSIG, signal.SIGKILL)
    by_root = orders["isolation"] == "netns"
    if by_root:
        enter_namespaces(orders, channel)
    channel.stage = "listener"
    listeners = [listen(port) for port in orders["ports"]]
    channel.send({"ready": True}, *(each.fileno() for each in listeners))
    for each in listeners:
        each.close()
    environment: dict[str, str] = channel.receive()["environment"]
    channel.stage = "privileges"
    if by_root:
        drop_bounding_set()
        become(orders["user"])
    else:
        become_again(orders["user"])
        drop_bounding_set()
    drop(orders["system_calls"])
    prctl("parent death", PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([keeper], [], [], 0)[0]:
        os._exit(COULD_NOT_START)
    command = spawn(orders, environment, channel)
    if command is None:
        return COULD_NOT_START
    channel.send({"started": True})
    return attend(command, channel, isolated=True)


def run_unprotected(orders: dict[str, Any], channel: Channel) -> int:
    """Keeper and init in one, without isolation; returns the exit code."""
    prctl("subreaper", PR_SET_CHILD_SUBREAPER, 1)
    channel.send({"ready": True})
    environment: dict[str, str] = channel.receive()["environment"]
    channel.stage = "privileges"
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)
    try:
        command = spawn(orders, environment, channel)
        if command is None:
            return COULD_NOT_START
        channel.send({"started": True})
        code = attend(command, channel, isolated=False)
        end_leftovers()
        return code
    finally:
        leave(orders)


def init_in_bubblewrap() -> int:
    """Process 1 of what bwrap has made. Its last arguments are three descriptors.

    They are the conversation, the keeper, and the real standard error.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)  # bwrap has let one of them through
    conversation, keeper, stderr = (int(word) for word in sys.argv[-3:])
    os.dup2(stderr, 2)
    os.close(stderr)
    with socket.socket(fileno=keeper) as joint:
        joint.set_inheritable(False)
        joint.send(b"!")  # with it goes our number, as the keeper knows it
        channel = Channel(conversation)
        orders = Channel(os.dup(joint.fileno())).receive()
        return guarded(channel, lambda: run_isolated(orders, channel, joint.fileno()))


# --- the keeper


@contextmanager
def private_rooms(orders: dict[str, Any], channel: Channel) -> Iterator[None]:
    """The sandbox's own directory: HOME, what lies over /tmp, its hosts file. Removed at the end."""
    channel.stage = "home"
    private, user = orders["private"], orders["user"]
    os.mkdir(private)
    try:
        os.chmod(private, 0o711)  # noqa: S103 - the user must get through, but need not list it
        for name in orders["rooms"]:
            os.mkdir(os.path.join(private, name), 0o700)
            os.chown(os.path.join(private, name), user["uid"], user["gid"])
        for name, text in (("hosts", orders["hosts"] or ""), ("blank", "")):
            descriptor = os.open(os.path.join(private, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                os.fchmod(descriptor, 0o444)
                file.write(text)
        yield
    finally:
        remove(private)


def remove(tree: str) -> None:
    """By programs, which are not beaten by any depth; nor, in the second turn, by directories without rights."""
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwX"), ("rm", "-rf")):
        if os.path.exists(tree):
            with suppress(OSError), open(os.devnull, "w") as null:
                quiet = [(os.POSIX_SPAWN_DUP2, null.fileno(), 2)]
                argv = [*words, "--", tree]
                os.waitpid(os.posix_spawnp(words[0], argv, {"PATH": os.defpath}, file_actions=quiet, setsigmask=()), 0)


def keep(orders: dict[str, Any], channel: Channel) -> int:
    """Start init in its namespaces, stay until it ends, clean up."""
    try:
        with private_rooms(orders, channel):
            return by_root(orders, channel) if orders["isolation"] == "netns" else by_bubblewrap(orders, channel)
    finally:
        leave(orders)


def by_root(orders: dict[str, Any], channel: Channel) -> int:
    """Make the PID namespace, and init in it."""
    channel.stage = "namespaces"
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    call("unshare", libc.unshare, CLONE_NEWPID)
    keeper = os.pidfd_open(os.getpid())
    init = os.fork()
    if init == 0:

        def work() -> int:
            channel.stage = "limits"
            join(orders)
            return run_isolated(orders, channel, keeper)

        os._exit(guarded(channel, work))
    # The programs that clean up afterwards cannot start in a namespace whose process 1 has ended.
    call("setns", libc.setns, own, CLONE_NEWPID)
    channel.socket.close()  # so that the supervisor sees init's end as the end of the conversation
    return oversee(init, os.pidfd_open(init))


def by_bubblewrap(orders: dict[str, Any], channel: Channel) -> int:
    """Let bwrap make everything and become init. It stays between us as the parent of init."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    said = os.memfd_create("bwrap", os.MFD_CLOEXEC)
    bwrap = os.fork()
    if bwrap == 0:
        os._exit(guarded(channel, lambda: become_bubblewrap(orders, channel, theirs, said)))
    theirs.close()
    _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(12))
    numbers = [struct.unpack("3i", data)[0] for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS]
    if not numbers or not numbers[0]:
        os.waitpid(bwrap, 0)
        channel.stage = "bwrap"
        channel.fail(RuntimeError(os.pread(said, 4096, 0).decode(errors="replace")))
        return COULD_NOT_START
    init = os.pidfd_open(numbers[0])  # it waits for the orders, so the number is still its own
    channel.socket.close()  # so that the supervisor sees init's end as the end of the conversation
    ours.sendall(json.dumps(orders).encode() + b"\n")
    code = oversee(bwrap, init)
    # bwrap may have been killed without it.
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(init, signal.SIGKILL)
    select.select([init], [], [])
    return code


def become_bubblewrap(orders: dict[str, Any], channel: Channel, joint: socket.socket, said: int) -> NoReturn:
    """In the child: what bwrap says goes into `said`, and not between the command's own lines."""
    channel.stage = "limits"
    join(orders)
    channel.stage = "bwrap"
    stderr = os.dup(2)
    os.dup2(said, 2)
    descriptors = (channel.socket.fileno(), joint.fileno(), stderr)
    for each in descriptors:
        os.set_inheritable(each, True)
    init = [*orders["launcher"], *map(str, descriptors)]
    os.execve(orders["bwrap"][0], [*orders["bwrap"], "--", *init], dict(os.environ))  # noqa: S606


def oversee(child: int, init: int) -> int:
    """Pass on to init, a pidfd, what the supervisor sends, until `child` ends; returns its exit code."""
    while True:
        number = signal.sigwaitinfo(AWAITED).si_signo
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return exit_code(status)
        elif number >= END:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(init, signal.SIGKILL if number == END else number)


def main() -> int:
    """The launcher, with the number of its descriptor as the last argument; returns the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    channel = Channel(int(sys.argv[-1]))
    orders = channel.receive()
    prctl("parent death", PR_SET_PDEATHSIG, END)
    if os.getppid() != orders["supervisor"]:
        return COULD_NOT_START
    if orders["isolation"] == "none":
        return guarded(channel, lambda: run_unprotected(orders, channel))
    return guarded(channel, lambda: keep(orders, channel))
