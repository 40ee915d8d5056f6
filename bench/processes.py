"""Processes under measurement: started on one core, read through /proc, stopped by id.

It knows nothing of what the processes do. CPU time is in nanoseconds, memory in KiB.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LOAD_CORE = 0
"""The loader, the upstream and this program."""
PROXY_CORE = 1
"""The proxy that is measured, alone."""
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0


class Unusable(Exception):
    """A program cannot be measured here; the text says why and what to do."""


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, below the range that outgoing connections use."""
    ports: list[int] = []
    # Start at a place of our own: two runs at the same time should not race for the same numbers.
    start = 20_000 + time.monotonic_ns() // 1000 % 9_000
    for port in range(start, 32_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise Unusable("no free port between 20,000 and 32,000")


@contextlib.contextmanager
def started(command: Sequence[str], core: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command on one core, its output in `log`, and end it. Raises Unusable when it cannot start."""
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                ["taskset", "-c", str(core), *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        except OSError as error:
            raise Unusable(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until something listens. Raises Unusable when the process ends or takes more than 30 s."""

    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    _wait(process, listens, log)


def wait_for_line(process: subprocess.Popen[bytes], text: bytes, log: Path) -> None:
    """Until the log has `text`. Raises Unusable when the process ends or takes more than 30 s."""
    _wait(process, lambda: text in log.read_bytes(), log)


def _wait(process: subprocess.Popen[bytes], condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
            raise Unusable(f"{'ended' if ended else 'not ready after 30 s'}: {lines[-1][:300]}")
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Reading:
    """Clocks at one moment, all in nanoseconds."""

    threads: dict[int, int]
    """Time on a CPU of each thread of the proxy: user and system, soft interrupts too."""
    core_busy: int
    """Of the proxy's core, whoever used it."""
    core_stolen: int
    """Of the proxy's core, by the hypervisor."""
    wall: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What happened between two readings."""

    cpu_ns: int
    """Of the proxy. What a thread used that ended meanwhile is lost."""
    others: float
    """Share of the proxy's core that went to other processes or was stolen: how noisy the machine was."""


def read_clocks(pid: int) -> Reading:
    """Clocks of a process and its descendants; of no process if `pid` is 0."""
    threads: dict[int, int] = {}
    for process in _tree(pid) if pid else ():
        for task in _tasks(process):
            with contextlib.suppress(OSError):
                threads[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{PROXY_CORE} "):
            user, nice, system, _, _, interrupts, soft, stolen = (int(field) * tick_ns for field in line.split()[1:9])
            return Reading(threads, user + nice + system + interrupts + soft, stolen, time.monotonic_ns())
    raise Unusable(f"core {PROXY_CORE} is not in /proc/stat")


def usage(before: Reading, after: Reading) -> Usage:
    """What happened between two readings of the same process."""
    cpu_ns = sum(used - before.threads.get(thread, 0) for thread, used in after.threads.items())
    others = after.core_busy - before.core_busy - cpu_ns + after.core_stolen - before.core_stolen
    return Usage(cpu_ns, max(0.0, others / (after.wall - before.wall)))


def resident_kib(pid: int) -> int:
    """Resident memory of a process and its descendants; pages they share are counted for each."""
    total = 0
    for process in _tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1])
    return total


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in _tasks(pid):
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))
