"""What the data listener refuses besides what the door does: its clients name models, and may have keys.

`told` is what a client hears; it never holds more of the request than a short model name.
"""

from typing import ClassVar

from pointsman.core.errors import RequestRejected, RouterError


class ListenerError(RequestRejected):
    """Base; `code` is the word that clients' libraries look at."""

    code: ClassVar[str] = ""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told


class UnknownPath(ListenerError):
    """A path that the data listener does not serve."""

    status = 404
    text = "unknown path"
    code = "unknown_url"


class NoSuchModel(ListenerError):
    """No route of the caller's has that name."""

    status = 404
    text = "the model does not exist"
    code = "model_not_found"


class NoModel(ListenerError):
    """The route sends on the client's model name, and there is none that can be sent."""

    text = "the request names no model"
    code = "missing_required_parameter"


class InvalidKey(ListenerError):
    """No key, or none that is valid."""

    status = 401
    text = "invalid key"
    code = "invalid_api_key"


class ModelNotAuthorized(ListenerError):
    """The route exists, and this key or token may not use it."""

    status = 403
    text = "the key may not use this model"
    code = "model_not_authorized"


class PolicyBlocked(ListenerError):
    """A rule of the account's policy refuses a request or an answer; `told` names it, not what it matched."""

    status = 403
    text = "the request is refused by policy"
    code = "policy_blocked"


class PolicyUnsearchable(ListenerError):
    """A policy applies, and the body cannot be searched: it is too large, or names something twice."""

    text = "the request cannot be searched, and a policy applies"
    code = "policy_unsearchable"


class AccountHalted(ListenerError):
    """The account may do nothing until it is resumed; what it did when it was halted is ended."""

    status = 403
    text = "the account is halted"
    code = "account_halted"

    def __init__(self) -> None:
        # With the word: Anthropic's errors have no field for it.
        super().__init__("account_halted: this account is halted; ask whoever runs this gateway to resume it")


class SourceNotAllowed(ListenerError):
    """A key that is valid, shown from where it may not be."""

    status = 403
    text = "the key may not be used from this address"
    code = "source_not_allowed"


class LoopDetected(ListenerError):
    """The request has been through this gateway before: a provider's base URL leads back to it."""

    status = 508
    text = "loop detected"
    code = "loop_detected"


class BudgetExhausted(ListenerError):
    """A hard budget has no room for the request."""

    status = 429
    text = "a budget has no room for this request"
    code = "insufficient_quota"
    reason = "insufficient_quota"

    def __init__(self, told: str, retry_after_seconds: float | None) -> None:
        super().__init__(told)
        self.retry_after_seconds = retry_after_seconds
        """When the budget's window is over; None for never."""


class BudgetUncounted(RouterError):
    """A hard budget cannot be counted, and what cannot be counted is not sent."""

    status = 503
    text = "budgets cannot be counted at present; try again later"
    code = "budget_uncounted"
    reason = "budget_uncounted"
    retry_after_seconds = 1.0


class NoProviderAvailable(RouterError):
    """Nobody of a chain answered: all were skipped, or failed before a byte of theirs reached the client."""

    status = 503
    text = "no provider available"
    code = "no_provider_available"
    told = "no provider of this model can answer at present; try again later"
    reason = "exhausted"

    def __init__(self, retry_after_seconds: float | None, detail: str = "") -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds
        """When the first of them may be tried again; None when nobody knows."""
