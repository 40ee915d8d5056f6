"""The command as a child of init: its start, its signals, its end."""

import os
import signal
from typing import Any, NoReturn

from .channel import COULD_NOT_START, Channel
from .groups import join
from .kernel import PR_SET_PDEATHSIG, prctl

END = int(signal.SIGRTMIN)  # plus 0: end everything
PASSED = frozenset(
    (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
)
AWAITED = PASSED | {signal.SIGCHLD, signal.SIGCONT} | set(range(END, signal.SIGRTMAX + 1))


def exit_code(status: int) -> int:
    """A wait status in the shell's manner: 128 + n for a death by signal n."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def execute(orders: dict[str, Any], environment: dict[str, str], parent: int, channel: Channel) -> NoReturn:
    """In the child: become CMD."""
    # Each fork and each change of uid clears it.
    prctl("parent death", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(COULD_NOT_START)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if orders["isolation"] == "none":
        channel.stage = "limits"
        join(orders)
    channel.stage = "directory"
    os.chdir(orders["cwd"])
    channel.stage = "execute" if os.path.exists(orders["path"]) else "find"
    os.execve(orders["path"], orders["argv"], environment)  # noqa: S606 - no shell is the point


def spawn(orders: dict[str, Any], environment: dict[str, str], channel: Channel) -> int | None:
    """Start CMD and return its process id once it really runs; None when it does not."""
    reading, writing = os.pipe()  # closed by a successful exec
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            execute(orders, environment, parent, channel)
        except BaseException as error:
            channel.fail(error)
            os.write(writing, b"!")
        os._exit(COULD_NOT_START)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return None if pipe.read() else child


def attend(command: int, channel: Channel, *, isolated: bool) -> int:
    """Reap and pass signals on until CMD ends; returns its exit code."""
    echoes: set[int] = set()
    while True:
        received = signal.sigwaitinfo(AWAITED)
        number = received.si_signo
        if number == signal.SIGCHLD:
            code = reap(command, channel)
            if code is not None:
                return code
        elif number == signal.SIGCONT:
            # A shell that resumes the job wakes the job's process group; CMD may have left that for its own.
            os.kill(command, signal.SIGCONT)
        elif number == END:
            os.kill(command, signal.SIGKILL)
        elif number in PASSED:
            # It went to the whole process group (a terminal's Ctrl-C), so CMD has its own copy, and the supervisor,
            # which cannot tell, is about to ask for another. Inside the PID namespace outsiders have number 0.
            if received.si_pid == 0 or not isolated:
                echoes.add(number)
        elif number - END in echoes:
            echoes.discard(number - END)
        else:
            os.kill(command, number - END)


def reap(command: int, channel: Channel) -> int | None:
    """Collect what has ended; CMD's exit code when it is among them."""
    while True:
        child, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if child == 0:
            return None
        if os.WIFSTOPPED(status):
            if child == command:
                channel.send({"stopped": os.WSTOPSIG(status)})
        elif child == command:
            return exit_code(status)


def end_leftovers() -> None:
    """Kill what CMD left behind: as its subreaper, we are the parent of every orphan."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            for child in children.read().split():
                os.kill(int(child), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
