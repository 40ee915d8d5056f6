"""What becomes of a gateway's answers: which bundle is put in force, what the operator is told, when to ask again.

Decisions only. Asking is `gateway_link`'s, carrying the decisions out `bundle_poller`'s.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.core.candidate import Bundle
from pointsman.core.event_kinds import (
    FETCH_FAILED,
    FETCH_RECOVERED,
    INFERENCE_DISABLED,
    INFERENCE_ENABLED,
    ROUTE_LEFT_OUT,
    ROUTES_LOADED,
    ROUTES_UPDATED,
    EventKind,
)
from pointsman.core.received_bundle import LeftOut, ReceivedBundle

DEFAULT_INTERVAL_SECONDS = 5.0
"""Between two polls (the inference-routing design's route cache)."""
INTERVAL_VARIABLES = ("POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS", "OPENSHELL_ROUTE_REFRESH_INTERVAL_SECS")
"""Environment variables that set it; the first that is there decides."""

_SECONDS = re.compile(r"[0-9]{1,5}(\.[0-9]{1,3})?")
_MOST_LEFT_OUT_TOLD = 8
"""Of one bundle; a gateway must not fill the log."""


class FetchFailed(Exception):
    """No bundle could be had."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        """A word of `events.reasons.REASONS`."""
        self.detail = detail


@dataclass(frozen=True, slots=True)
class News:
    """Something to tell the operator."""

    kind: EventKind
    reason: str = ""
    detail: str = ""
    route: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the outcome of one fetch."""

    bundle: Bundle | None = None
    """To be put in force; None: what is in force stays."""
    news: tuple[News, ...] = ()
    """In this order, when that is done."""


_NOTHING = Decision()


class RouteRefresh:
    """Remembers what is in force and what the operator knows."""

    def __init__(self) -> None:
        self.revision = ""
        """Of what is in force; empty at first."""
        self._last: ReceivedBundle | None = None
        self._enabled: bool | None = None
        self._told: set[str] = set()
        self._failures = 0

    def failed(self, failure: FetchFailed) -> Decision:
        """Nothing came. What is in force stays; each reason is told once until a bundle comes again."""
        self._failures += 1
        if failure.reason in self._told:
            return _NOTHING
        self._told.add(failure.reason)
        return Decision(news=(News(FETCH_FAILED, failure.reason, failure.detail),))

    def answered(self, received: ReceivedBundle | None) -> Decision:
        """A bundle came; None: the one that is in force."""
        news: list[News] = []
        if self._failures:
            failures, self._failures = self._failures, 0
            self._told.clear()
            news.append(News(FETCH_RECOVERED, detail=f"{failures} fetch{'es' if failures > 1 else ''} had failed"))
        if received is None or received == self._last:  # without a revision, equality is all there is to go by
            return Decision(news=tuple(news))
        self._last, bundle = received, received.bundle
        self.revision = bundle.revision
        news.append(News(ROUTES_LOADED if self._enabled is None else ROUTES_UPDATED))
        news += [News(ROUTE_LEFT_OUT, "route_unusable", each.reason, each.route) for each in _some(received)]
        if bool(bundle.routes) is not self._enabled:
            self._enabled = bool(bundle.routes)
            news.append(News(INFERENCE_ENABLED if self._enabled else INFERENCE_DISABLED))
        return Decision(bundle, tuple(news))


def _some(received: ReceivedBundle) -> tuple[LeftOut, ...]:
    return received.left_out[:_MOST_LEFT_OUT_TOLD]


def next_tick(last: int, elapsed: float, interval: float) -> int:
    """The number of the next poll, which is due at `interval` times it: none twice, none made up for."""
    return max(last, int(elapsed / interval)) + 1


def read_interval(environ: Mapping[str, str]) -> float:
    """Seconds between two polls: what the environment says, the default for 0 and for what is no number."""
    text = next((environ[name] for name in INTERVAL_VARIABLES if name in environ), "").strip()
    seconds = float(text) if _SECONDS.fullmatch(text) else 0.0
    return seconds or DEFAULT_INTERVAL_SECONDS
