"""Processes under measurement: started on one core, read through /proc, stopped by id.

It knows nothing of what the processes do. CPU time is in nanoseconds, memory in KiB.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

LOAD_CORE = 0
"""The loader, the upstream and this program."""
PROXY_CORE = 1
"""The proxy that is measured, alone."""
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0


class Unusable(Exception):
    """A program cannot be measured here; the text says why and what to do."""


class Starved(Unusable):
    """Something took too long, which a busy machine explains as well as a fault does."""


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
            # What is saved in results names no place on this machine.
            why = lines[-1].replace(str(Path(__file__).resolve().parent.parent), ".")[:300]
            raise Unusable(f"{'ended' if ended else 'not ready after 30 s'}: {why}")
        time.sleep(0.01)


def cpu_by_thread(pid: int) -> dict[int, int]:
    """Nanoseconds on a CPU, by thread, of a process and its descendants: user and system, soft interrupts too."""
    times: dict[int, int] = {}
    for process in _tree(pid):
        for task in _tasks(process):
            with contextlib.suppress(OSError):
                times[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return times


def cpu_between(before: dict[int, int], after: dict[int, int]) -> int:
    """Nanoseconds used between two readings. What a thread used that ended meanwhile is lost."""
    return sum(used - before.get(thread, 0) for thread, used in after.items())


class Neighbours:
    """How much of the two cores goes to programs that are not ours, and to the hypervisor, from now on."""

    def __init__(self) -> None:
        self._others, self._wall = self._clocks()

    def share(self) -> float:
        """Of both cores together since the start, 0 to 1."""
        others, wall = self._clocks()
        return max(0.0, (others - self._others) / (wall - self._wall) / 2)

    def _clocks(self) -> tuple[float, float]:
        busy = 0
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith((f"cpu{LOAD_CORE} ", f"cpu{PROXY_CORE} ")):
                user, nice, system, _, _, interrupts, soft, stolen = (int(field) for field in line.split()[1:9])
                busy += user + nice + system + interrupts + soft + stolen
        # Ours are this process and what it started: what still runs, and what has ended and was waited for.
        ended = os.times()
        ours = sum(cpu_by_thread(os.getpid()).values()) / 1e9 + ended.children_user + ended.children_system
        return busy / os.sysconf("SC_CLK_TCK") - ours, time.monotonic()


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
