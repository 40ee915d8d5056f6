"""Looks at the processes that descend from this one, as an agent with the same user could: arguments and environments.

A thread that samples. What lives shorter than a look is not seen; the tests that are about one process ask it directly.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

from tests.support import evidence

_SECONDS = 0.1

# These are given the key by whoever starts them, which is what `api_key_env` is for.
_GIVEN_THE_KEY = (
    b"\0sandbox\0proxy\0",
    b"\0sandbox\0run\0",
    b"\0sandbox\0routes\0",
    b"\0doctor",
    b"tests",
    b"pytest",
    b"examples/",
)


def descendants(pid: int) -> Iterator[int]:
    """Every process below `pid` that can still be read."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield int(child)
            yield from descendants(int(child))


class Onlooker:
    """Samples while the tests run."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._seen: set[bytes] = set()
        self._thread = threading.Thread(target=self._look, name="onlooker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _look(self) -> None:
        while not self._stop.wait(_SECONDS):
            for pid in descendants(self._pid):
                self._look_at(pid)

    def _look_at(self, pid: int) -> None:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            self._note(b"arguments " + arguments)
            if not any(word in b"\0" + arguments for word in _GIVEN_THE_KEY):
                self._note(b"environment of " + arguments[:80] + b" " + Path(f"/proc/{pid}/environ").read_bytes())
        except OSError:
            return  # it has ended, or is not ours to read

    def _note(self, data: bytes) -> None:
        if data not in self._seen:
            self._seen.add(data)
            evidence.keep("process", data)
