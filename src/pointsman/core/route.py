"""A route as an operator stores it: a public name and where it leads. Everything else is resolved when it is used."""

from dataclasses import dataclass

from pointsman.core.candidate import INFERENCE_LOCAL, SANDBOX_SYSTEM
from pointsman.core.context_options import ContextOptions

DIRECT = "direct"
"""One provider and one model; the upstream's answer is the answer."""
CHAIN = "chain"
"""Several providers in the order of a strategy, then a fallback; always executed by a gateway."""
ALIAS = "alias"
"""Another name of a route: how `inference.local` and `sandbox-system` lead to a named one."""
RUNNER = "runner"
"""A registered model beside a runner; always executed by a gateway, with no second attempt. Its record is the model's
(`core.ai_model`): no route of this kind is stored."""
MODEL = "model"
"""A registered model at an address of its account's own choosing; executed by a gateway. Its record is the model's."""
RESERVED_NAMES = (INFERENCE_LOCAL, SANDBOX_SYSTEM)
"""What a sandbox knows; every other name is an alias of the operator's."""
STRATEGIES = ("in_order", "weighted", "least_used")
"""In which order a chain asks its candidates (DESIGN section 5); the first is the default."""
MOST_CANDIDATES = 64
"""That one chain lists, its fallback not counted."""
DEFAULT_REQUEST_TIMEOUT_SECONDS = 300
"""What a stored request timeout of 0 stands for: until commit, all attempts together (DESIGN section 5)."""
DEFAULT_TIMEOUT_SECONDS = 60
"""What a stored timeout of 0 stands for (the inference-routing design's timeout model)."""
LONGEST_TIMEOUT_SECONDS = 24 * 3600
LONGEST_MODEL = 256


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    """One provider of a chain."""

    provider_name: str
    model: str = ""
    """Empty: the provider's own."""


@dataclass(frozen=True, slots=True)
class Route:
    """One route. It stores no endpoint and no key: those are the provider's, at the time of use."""

    account: str
    name: str
    provider_name: str
    model: str
    timeout_seconds: int = 0
    version: int = 0
    """Starts at 1, grows with every change, is never used twice for one name of one account."""
    kind: str = DIRECT
    candidates: tuple[RouteCandidate, ...] = ()
    """Of a chain; its `provider_name` and `model` are empty."""
    strategy: str = ""
    """Of a chain: `in_order`, `weighted` or `least_used`; empty means in_order."""
    fallback: str = ""
    """Of a chain: the provider that answers when all others do not; empty for none."""
    request_timeout_seconds: int = 0
    """Of a chain: until commit, all attempts together; 0 means the default."""
    target: str = ""
    """Of an alias: the named route that it leads to, which is never an alias; all else of an alias is empty."""
    via_gateway: bool = False
    """Of a direct route: whether sandboxes reach it through the gateway's data listener (DESIGN D29)."""
    context: ContextOptions | None = None
    """Of a direct route or a chain: what the gateway takes out of conversations; None for nothing."""
    forwards_model: bool = False
    """Of a chain from a file: whether the client's model is sent, not each provider's own. Never stored."""
    from_file: bool = False
    """Whether the gateway's configuration file defines it, so that no command changes it. Never stored."""

    @property
    def provider_names(self) -> tuple[str, ...]:
        """Every provider that it may ask, once each."""
        names = (self.provider_name, *(each.provider_name for each in self.candidates), self.fallback)
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True)
class ValidatedEndpoint:
    """What a verification reached."""

    url: str
    protocol: str
