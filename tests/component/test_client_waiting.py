"""What somebody at a terminal sees while a gateway takes its time, and what is left when they give up."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from pointsman.rpc.gen import control_pb2
from tests.support import evidence
from tests.support.processes import POINTSMAN
from tests.support.scripted_control import scripted_control

SET = ("inference", "set", "--provider", "work", "--model", "gpt")


class SlowGateway:
    """Answers a SetRoute when it is told to."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def set_route(self, request: control_pb2.SetRouteRequest) -> control_pb2.RouteChange:
        self.asked.set()
        self.may_answer.wait(60)
        return control_pb2.RouteChange(route=control_pb2.Route(name=request.name))


@pytest.fixture
def slow() -> Iterator[tuple[SlowGateway, str]]:
    gateway = SlowGateway()
    with scripted_control({"SetRoute": gateway.set_route}) as scripted:
        try:
            yield gateway, scripted.url
        finally:
            gateway.may_answer.set()


@contextlib.contextmanager
def started(url: str, stderr: int) -> Iterator["subprocess.Popen[bytes]"]:
    environ = {**os.environ, "POINTSMAN_GATEWAY": url}
    process = subprocess.Popen([POINTSMAN, *SET], stdout=subprocess.PIPE, stderr=stderr, env=environ)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


def read_until(descriptor: int, text: bytes, seconds: float = 40) -> bytes:
    seen = b""
    deadline = time.monotonic() + seconds
    while text not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"waited for {text!r}, saw {seen!r}"
        seen += os.read(descriptor, 65536)
    return seen


def test_a_verification_that_takes_long_is_told_on_a_terminal_and_wiped_away(slow: tuple[SlowGateway, str]) -> None:
    gateway, url = slow
    master, slave = pty.openpty()
    try:
        with started(url, slave) as process:
            os.close(slave)
            seen = read_until(master, b"pointsman: waiting for the verification of work, ")
            gateway.may_answer.set()
            assert process.stdout is not None
            assert process.stdout.read().startswith(b"Gateway inference configured:\n")
            assert process.wait(30) == 0
        with contextlib.suppress(OSError):  # how a terminal says that nobody is left at its other end
            while piece := os.read(master, 65536):
                seen += piece
        assert seen.endswith(b" s\r\x1b[K")
        evidence.keep("cli", seen.decode())
    finally:
        os.close(master)


def test_nothing_is_told_of_waiting_where_nobody_watches(slow: tuple[SlowGateway, str]) -> None:
    gateway, url = slow
    with started(url, subprocess.PIPE) as process:
        assert gateway.asked.wait(30)
        # Long enough for a line, had there been a terminal.
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=3.5)
        gateway.may_answer.set()
        stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (0, b"")
    assert stdout.startswith(b"Gateway inference configured:\n")


def test_an_interrupt_ends_the_wait_at_once_without_a_traceback(slow: tuple[SlowGateway, str]) -> None:
    gateway, url = slow
    with started(url, subprocess.PIPE) as process:
        assert gateway.asked.wait(30)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (130, b"", b"\n")  # so that a prompt begins a line
