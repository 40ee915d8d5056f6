"""A sandboxed command on a terminal: Ctrl-C, Ctrl-Z, shells. Needs root, as CI has."""

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.sandboxes import Sandbox, sandbox


class Terminal:
    """The person's end of a terminal on which a supervisor runs a command."""

    def __init__(self, inside: Sandbox, *argv: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            inside.supervisor(*argv),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=inside.environment(TERMINAL="1", PS1="$ ", TERM="dumb"),
        )
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, text: str, seconds: float = 20.0) -> None:
        """Read until `text` has come after what was expected before."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"waited for {text!r}, saw {self.seen!r}"
            self.seen += os.read(self.master, 65536).decode()
        self.seen = self.seen.split(text, 1)[1]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self.master)


@pytest.fixture(params=["netns", "bwrap", "none"])
def inside(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with sandbox(request.param) as made:
        yield made


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for each in opened:
        each.close()


COUNTING = """
import os, signal
counts = {"INT": 0}
def interrupted(*_):
    counts["INT"] += 1
    os.write(1, b"interrupted\\n")
def asked(*_):
    os.write(1, b"count %d\\n" % counts["INT"])
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGUSR1, asked)
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_ctrl_c_reaches_the_command_once_and_a_sent_signal_still_does(
    terminals: list[Terminal], inside: Sandbox
) -> None:
    terminal = Terminal(inside, inside.python, "-c", COUNTING)
    terminals.append(terminal)
    terminal.expect("ready")
    for count in (1, 2):
        terminal.type("\x03")
        terminal.expect("interrupted")
        terminal.process.send_signal(signal.SIGUSR1)  # passed on after whatever came before it
        terminal.expect(f"count {count}\r\n")
    terminal.process.send_signal(signal.SIGINT)
    terminal.expect("interrupted")
    terminal.process.send_signal(signal.SIGUSR1)
    terminal.expect("count 3\r\n")


def test_a_shell_has_job_control_and_the_terminal_comes_back_after_it(
    terminals: list[Terminal], inside: Sandbox
) -> None:
    terminal = Terminal(inside, "bash", "--norc", "--noprofile", "-i")
    terminals.append(terminal)
    terminal.expect("$ ")
    assert "no job control" not in terminal.seen
    terminal.type("sh -c 'echo go-$((6 * 7)); exec sleep 300'\n")
    terminal.expect("go-42")  # said by the job itself, so it has the terminal
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("kill %1; fg; echo back-$((40 + 2))\n")
    terminal.expect("back-42")
    terminal.type("exit 7\n")
    terminal.expect("exit")
    terminal.type("typed later\n")
    terminal.expect("after: typed later")
    assert terminal.process.wait(10) == 7


@pytest.mark.parametrize("own_group", [False, True])
def test_a_command_that_stops_itself_stops_the_whole_job_until_it_is_resumed(
    terminals: list[Terminal], inside: Sandbox, own_group: bool
) -> None:
    code = f"""
import os, signal
{own_group} and os.setpgid(0, 0)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
print("resumed", flush=True)
"""
    terminal = Terminal(inside, inside.python, "-c", code)
    terminals.append(terminal)
    terminal.expect("ready")
    _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.killpg(terminal.process.pid, signal.SIGCONT)
    terminal.expect("resumed")
    terminal.type("typed later\n")
    terminal.expect("after: typed later")
    assert terminal.process.wait(10) == 0
