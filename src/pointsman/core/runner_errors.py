"""What a client hears when a runner's model does not answer (DESIGN section 8)."""

from typing import ClassVar

from pointsman.core.errors import RouterError

_TOLD = {
    "runner_offline": "the runner of this model is not connected; start it with: pointsman runner start",
    "runner_busy": "the runner of this model answers as many requests as it may; try again later",
    "runner_model_not_allowed": "the runner does not allow this model; approve it there with: pointsman runner models",
    "runner_proxy_timeout": "the model did not answer in time",
    "runner_request_too_large": "the request is too large for a runner's model",
    "runner_frame_too_large": "the model answered with more at once than a runner may carry",
    "runner_response_limit": "the model's answer is longer than a runner may carry",
    "runner_proxy_error": "the runner's line does not work; try again",
    "runner_upstream_error": "the model's server refused the request",
    "runner_upstream_unavailable": "the model's server cannot be reached on the runner's machine",
    "runner_upstream_read_error": "the model's server broke off its answer",
}
RUNNER_CODES = frozenset(_TOLD)
UPSTREAM_ERROR, PROXY_ERROR = "runner_upstream_error", "runner_proxy_error"
_STATUSES = {
    "runner_offline": 503,
    "runner_busy": 429,
    "runner_model_not_allowed": 403,
    "runner_proxy_timeout": 504,
    "runner_request_too_large": 413,
    "runner_frame_too_large": 502,
    "runner_response_limit": 502,
    "runner_proxy_error": 503,
    "runner_upstream_unavailable": 502,
    "runner_upstream_read_error": 502,
}
_SAME_AGAIN = frozenset(("runner_proxy_timeout", "runner_frame_too_large", "runner_response_limit"))
_BAD_GATEWAY, _LEAST_ERROR, _MOST_ERROR = 502, 400, 599


class RunnerError(RouterError):
    """`code` is one of DESIGN section 8's. Nothing that a runner wrote is in it."""

    text: ClassVar[str] = "the runner's model did not answer"

    def __init__(self, code: str, status: int = 0) -> None:
        """`status` counts for an upstream's error alone, all others have theirs. What is unknown is such an error."""
        self.code = code if code in _TOLD else UPSTREAM_ERROR
        self.told = _TOLD[self.code]
        self.reason = self.code  # type: ignore[misc]  # of the class, elsewhere
        usual = status if _LEAST_ERROR <= status <= _MOST_ERROR else _BAD_GATEWAY
        self.status = _STATUSES.get(self.code, usual)  # type: ignore[misc]  # of the class, elsewhere
        self.may_pass = self.code not in _SAME_AGAIN
        """False where the same request would most likely fail again, after the model has worked for it once more."""
        super().__init__(self.code)
