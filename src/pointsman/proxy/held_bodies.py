"""How much of bodies is held, over all connections of a router.

Each body has its own bound, but an agent may open many connections. Counted is what has come of a request's body, from
its second read on, and a whole one beyond 16 KiB until its request has been answered; and what rules hold of an answer,
beyond 16 KiB.
"""

from pointsman.core.errors import Overloaded


class HeldBodies:
    """Bytes, and their bound."""

    __slots__ = ("_limit", "total")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.total = 0

    def change(self, before: int, now: int) -> None:
        """One connection holds `now` bytes instead of `before`. Raises Overloaded when that is too much for all."""
        self.total += now - before
        if self.total > self._limit and now > before:
            raise Overloaded(f"bodies of all connections together exceed {self._limit} bytes")
