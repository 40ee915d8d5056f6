"""A campaign of faults: the row of each cell, for a terminal and for the table at the end, and a cell's time."""

import signal
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_WIDTH = 118


class TooSlow(Exception):
    """A cell's time is over."""


@dataclass(slots=True)
class Row:
    """One line of the table."""

    cell: str
    operators: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    """What those saw who are served."""
    recovered: float = 0.0
    took: float = 0.0
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    who: str = "sandboxes"
    """What `clients` are called."""

    def text(self) -> str:
        """For a terminal."""
        verdict = f"skipped: {self.skipped}" if self.skipped else ("WRONG" if self.wrong else "ok")
        lines = [f"{self.cell}: {verdict}, recovered after {self.recovered:.1f} s (cell {self.took:.1f} s)"]
        for who, texts in (("operators", self.operators), (self.who, self.clients), ("wrong", self.wrong)):
            for each in texts or ["nothing"]:
                lines += textwrap.wrap(f"{who}: {each}", _WIDTH, initial_indent="    ", subsequent_indent="        ")
        return "\n".join(lines)

    def line(self) -> str:
        """Of the table at the end."""
        cells = [self.cell, "; ".join(self.operators) or "nothing", "; ".join(self.clients) or "nothing"]
        lost = self.skipped or "; ".join(self.wrong) or "nothing"
        return "| " + " | ".join([*cells, f"{self.recovered:.1f} s", lost]).replace("\n", " ") + " |"


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raises TooSlow in the main thread when it takes longer."""

    def over(*_: object) -> None:
        raise TooSlow(f"took longer than {seconds:g} s")

    before, began = signal.signal(signal.SIGALRM, over), time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # somebody else's, such as a test's
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left + began - time.monotonic()))
