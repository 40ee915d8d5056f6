"""What the run prints: a line for each step, with how long it took and what was seen; it can stand in a release note."""

import contextlib
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator

_WIDTH = 118
Tell = Callable[[str], None]


class Transcript:
    """Steps in their order. One that fails does not keep the others from being tried."""

    def __init__(self, title: str) -> None:
        self._began = time.monotonic()
        self.steps = 0
        self.failed: list[str] = []
        print(title, flush=True)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Tell]:
        """What is told in the block stands below the step's line. Whatever is raised in it is the step's failure."""
        told: list[str] = []
        began = time.monotonic()
        verdict = "ok"
        try:
            yield told.append
        except Exception as error:
            verdict = "FAILED"
            self.failed.append(name)
            told.append(f"{type(error).__name__}: {error}" if not isinstance(error, AssertionError) else str(error))
            told.append(f"at {_place(error)}")
        self.steps += 1
        print(f"{verdict:>6} {time.monotonic() - began:6.1f} s  {name}")
        for text in told:
            for line in text.splitlines():
                print(textwrap.fill(line, _WIDTH, initial_indent=" " * 17, subsequent_indent=" " * 19))
        sys.stdout.flush()

    def end(self) -> int:
        """The exit status."""
        seconds = time.monotonic() - self._began
        verdict = f"failed: {'; '.join(self.failed)}" if self.failed else "all held"
        print(f"{self.steps} steps in {seconds:.0f} s: {verdict}", flush=True)
        return 1 if self.failed else 0


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return ", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[1:])
