"""What the run prints: a line for each step, how long it took and what was seen. It can stand in a release note."""

import sys
import textwrap
import time
import traceback
from collections.abc import Callable

_WIDTH = 118
Tell = Callable[[str], None]


class Transcript:
    """Steps in their order. One that fails does not keep the others from being tried."""

    def __init__(self, title: str) -> None:
        self._began = time.monotonic()
        self.steps = 0
        self.failed: list[str] = []
        print(title, flush=True)

    def step(self, name: str, work: Callable[[Tell], None]) -> bool:
        """Whether it held. Whatever it raises is its failure; what it tells stands below its line."""
        told: list[str] = []
        began = time.monotonic()
        holds = True
        try:
            work(told.append)
        except Exception as error:
            holds = False
            self.failed.append(name)
            told.append(str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}")
            told += [] if str(error) else [f"not so: {traceback.extract_tb(error.__traceback__)[-1].line}"]
            told.append(f"at {_place(error)}")
        self.steps += 1
        print(f"{'ok' if holds else 'FAILED':>6} {time.monotonic() - began:6.1f} s  {name}")
        for line in "\n".join(told).splitlines():
            print(textwrap.fill(line, _WIDTH, initial_indent=" " * 17, subsequent_indent=" " * 19))
        sys.stdout.flush()
        return holds

    def end(self) -> int:
        """The exit status."""
        seconds = time.monotonic() - self._began
        verdict = f"failed: {'; '.join(self.failed)}" if self.failed else "all held"
        print(f"{self.steps} steps in {seconds:.0f} s: {verdict}", flush=True)
        return 1 if self.failed else 0


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return ", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[1:])
