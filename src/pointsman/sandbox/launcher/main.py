"""Keeper and init: what the launcher turns into."""

import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from .channel import COULD_NOT_START, Channel
from .command import AWAITED, END, attend, end_leftovers, exit_code, spawn
from .kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    MS_PRIVATE,
    MS_REC,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    call,
    libc,
    mount,
    prctl,
)
from .network import listen, loopback_up
from .privileges import drop
from .view import cover, kernel_views, own_hosts


def isolate(orders: dict[str, Any], channel: Channel) -> list[socket.socket]:
    """Enter the namespaces and return the listeners, the only things that lead out of them."""
    channel.stage = "namespaces"
    call("unshare", libc.unshare, CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC)
    channel.stage = "view"
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    for path, binds in orders["view"]:
        cover(path, binds)
    kernel_views()
    own_hosts(orders["hosts"], orders["home"])
    channel.stage = "listener"
    loopback_up()
    return [listen(port) for port in orders["ports"]]


def run_command(orders: dict[str, Any], channel: Channel, keeper: int | None) -> int:
    """Init's whole life; returns the exit code. `keeper` is a pidfd, or None when this process is the keeper."""
    if keeper is None:
        prctl("subreaper", PR_SET_CHILD_SUBREAPER, 1)
        channel.send({"ready": True})
    else:
        prctl("parent death", PR_SET_PDEATHSIG, signal.SIGKILL)
        listeners = isolate(orders, channel)
        channel.send({"ready": True, "home": orders["home"]}, *(each.fileno() for each in listeners))
        for each in listeners:
            each.close()
    environment: dict[str, str] = channel.receive()["environment"]
    channel.stage = "privileges"
    if keeper is None:
        prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)
    else:
        drop(orders["user"], orders["system_calls"])
        prctl("parent death", PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([keeper], [], [], 0)[0]:
            os._exit(COULD_NOT_START)
    command = spawn(orders, environment, channel)
    if command is None:
        return COULD_NOT_START
    channel.send({"started": True})
    code = attend(command, channel, isolated=keeper is not None)
    if keeper is None:
        end_leftovers()
    return code


def guarded(channel: Channel, work: Callable[[], int]) -> int:
    """Run `work`; whatever goes wrong before CMD runs is told to the supervisor."""
    try:
        return work()
    except Exception as error:
        channel.fail(error)
        return COULD_NOT_START


def keep(orders: dict[str, Any], channel: Channel) -> int:
    """Make the PID namespace, start init in it, stay until it ends, clean up."""
    user = orders["user"]
    home = os.path.join(orders["home_base"], f"pointsman-home-{os.urandom(8).hex()}")
    orders["home"] = home
    channel.stage = "namespaces"
    call("unshare", libc.unshare, CLONE_NEWPID)
    channel.stage = "home"
    os.mkdir(home, 0o700)
    try:
        os.chown(home, user["uid"], user["gid"])
        keeper = os.pidfd_open(os.getpid())
        init = os.fork()
        if init == 0:
            os._exit(guarded(channel, lambda: run_command(orders, channel, keeper)))
        channel.socket.close()  # so that the supervisor sees init's end as the end of the conversation
        return oversee(init)
    finally:
        import shutil  # costs more than the rest of the start

        shutil.rmtree(home, ignore_errors=True)


def oversee(init: int) -> int:
    """Wait for init and pass on to it what the supervisor sends; returns its exit code."""
    while True:
        number = signal.sigwaitinfo(AWAITED).si_signo
        if number == END:
            os.kill(init, signal.SIGKILL)
        elif number > END:
            os.kill(init, number)
        elif number == signal.SIGCHLD:
            child, status = os.waitpid(init, os.WNOHANG)
            if child:
                return exit_code(status)


def main() -> int:
    """The launcher, with the number of its descriptor as the last argument; returns the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    channel = Channel(int(sys.argv[-1]))
    orders = channel.receive()
    prctl("parent death", PR_SET_PDEATHSIG, END)
    if os.getppid() != orders["supervisor"]:
        return COULD_NOT_START
    if orders["isolation"] == "netns":
        return guarded(channel, lambda: keep(orders, channel))
    return guarded(channel, lambda: run_command(orders, channel, None))
