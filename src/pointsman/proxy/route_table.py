"""Where requests find the current bundle."""

from dataclasses import replace

from pointsman.core.candidate import Bundle, Candidate


class RouteTable:
    """Holds the current bundle. A request takes it once and keeps it, so a swap neither waits nor cuts."""

    __slots__ = ("bundle",)

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    def swap(self, new: Bundle) -> None:
        """Put a bundle in the place of the current one, in one step.

        Candidates that did not change, key included, stay the same objects: what was derived from them, their kept
        connections among it, stays with them.
        """
        known = {each: each for each in (*self.bundle.routes, *self.bundle.system_routes)}

        def kept(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
            return tuple(known.get(each, each) for each in candidates)

        self.bundle = replace(new, routes=kept(new.routes), system_routes=kept(new.system_routes))
