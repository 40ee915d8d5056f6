"""An upstream's answer that is slowed down for several reasons at once: it goes on when the last of them is gone."""

from typing import Self

from pointsman.proxy.upstream.exchange import Flow


class Brake:
    """One reason's hand on a flow, and itself a flow."""

    __slots__ = ("_flow", "_held")

    def __init__(self, flow: Flow, held: "set[Brake]") -> None:
        """`held`: those of this flow that are held; one set for all of them."""
        self._flow = flow
        self._held = held

    @classmethod
    def two_of(cls, flow: Flow) -> tuple[Self, Self]:
        """For two who know nothing of each other."""
        held: set[Brake] = set()
        return cls(flow, held), cls(flow, held)

    @property
    def is_held(self) -> bool:
        """Whether this one is."""
        return self in self._held

    def pause(self) -> None:
        """Slow down, if nobody has."""
        if not self._held:
            self._flow.pause()
        self._held.add(self)

    def resume(self) -> None:
        """Let go; the last one lets it flow."""
        if self in self._held:
            self._held.remove(self)
            if not self._held:
                self._flow.resume()
