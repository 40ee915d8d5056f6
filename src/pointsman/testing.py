"""Fakes that ship with the package, for tests of code that uses it."""


class FakeClock:
    """A clock that stands still until it is told to move. Call it for the time in seconds."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move forward."""
        self.now += seconds
