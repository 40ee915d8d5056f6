"""What a gateway does around each request of its data listener, in the order of DESIGN section 5.

authorize, budget_reserve, request_policy, context, then the attempts, then response_policy, usage_record. Owns the
order and that each is asked once; what a stage does is whoever's composes the gateway. The door has none.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pointsman.events.record import Record
from pointsman.wire.request import Request

Before = Callable[[Request, Record], Awaitable[None]]
"""Asked when the route is known and nothing was sent. Raises RouterError to refuse; then no later one is asked."""
After = Callable[[Record], None]
"""Told once per request of how it went, on every exit, refusals and cancellation included. Must not raise or wait."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Those that there are; None costs nothing. A route's own authorization, by key or token, comes before all."""

    authorize: Before | None = None
    budget_reserve: Before | None = None
    request_policy: Before | None = None
    context: Before | None = None
    response_policy: After | None = None
    usage_record: After | None = None

    @property
    def before(self) -> tuple[Before, ...]:
        """What stands before the attempts, in order."""
        stages = (self.authorize, self.budget_reserve, self.request_policy, self.context)
        return tuple(stage for stage in stages if stage is not None)

    @property
    def after(self) -> tuple[After, ...]:
        """What stands behind them, in order."""
        return tuple(stage for stage in (self.response_policy, self.usage_record) if stage is not None)


NO_STAGES = Stages()
