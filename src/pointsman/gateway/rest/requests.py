"""What a request may hold. Strict: nothing is converted but 60.0 to 60, nothing unknown is passed over."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from pointsman.core import provider as records
from pointsman.core.context_options import CONTEXT_RULE, LONGEST_CONTEXT
from pointsman.core.data_key import INFERENCE, PERMISSIONS
from pointsman.core.provider import ProviderDraft
from pointsman.core.route import (
    DEFAULT_REQUEST_TIMEOUT_SECONDS,
    LONGEST_MODEL,
    LONGEST_TIMEOUT_SECONDS,
    MOST_CANDIDATES,
    RouteCandidate,
)
from pointsman.core.secret import Secret
from pointsman.core.source_network import MOST_NETWORKS
from pointsman.gateway.keys import MOST_ROUTES, KeyDraft
from pointsman.gateway.lifetime import LONGEST_LIFETIME_SECONDS
from pointsman.gateway.providers import LARGEST_PAGE
from pointsman.gateway.rest.refusals import looks_like_a_credential
from pointsman.gateway.route_rules import context_of
from pointsman.gateway.routes import RouteEdit, RouteTarget

_LARGEST_OFFSET = 10**9
_NAME_RULE = f"{records.NAME_RULE.capitalize()}."


def _no_credential(text: str) -> str:
    if looks_like_a_credential(text):
        raise ValueError("it looks like a credential; those belong into the values of credentials")
    return text


def written_exactly(kind: type[int] | type[bool]) -> BeforeValidator:
    """A query's value, spelt in the one way that the document gives."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if kind is bool:
            return {"true": True, "false": False}.get(value, value)
        return int(value) if value.isascii() and value.isdigit() and len(value) < 12 else value

    return BeforeValidator(read)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""Of a number in a body: to JSON Schema, and to the document, 60.0 is a whole number."""

# The function stands last: behind one, a pattern would not get into the document.
Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=records.LONGEST_NAME,
        pattern=records.NAME_PATTERN,
        description=_NAME_RULE,
    ),
    AfterValidator(_no_credential),
]
Key = Annotated[str, Field(min_length=1, max_length=records.LONGEST_KEY), AfterValidator(_no_credential)]
Value = Annotated[str, Field(max_length=records.LONGEST_VALUE)]
Credentials = Annotated[dict[Key, Value], Field(max_length=records.MOST_CREDENTIALS)]
Config = Annotated[dict[Key, Value], Field(max_length=records.MOST_CONFIG_ENTRIES)]
Model = Annotated[str, Field(min_length=1, max_length=LONGEST_MODEL, description="As the provider spells it.")]
Timeout = Annotated[int, Field(ge=0, le=LONGEST_TIMEOUT_SECONDS, description="Seconds; 0 is the default of 60."), WHOLE]
RequestTimeout = Annotated[
    int,
    Field(
        ge=0,
        le=LONGEST_TIMEOUT_SECONDS,
        description=f"Of a chain: seconds for all attempts; 0 is the default of {DEFAULT_REQUEST_TIMEOUT_SECONDS}.",
    ),
    WHOLE,
]
Lifetime = Annotated[int, Field(ge=1, le=LONGEST_LIFETIME_SECONDS), WHOLE]
Strategy = Annotated[
    Literal["in_order", "weighted", "least_used"], Field(description="Of a chain; in_order when it is left out.")
]
ViaGateway = Annotated[
    bool, Field(description="Of one provider: whether sandboxes reach it through the gateway's data listener.")
]
Verify = Annotated[
    bool, Field(description="Ask the provider with a small request first, and change nothing unless it answers.")
]
Limit = Annotated[int, Field(ge=1, le=LARGEST_PAGE, strict=True, description="Of one page."), written_exactly(int)]
Offset = Annotated[
    int, Field(ge=0, le=_LARGEST_OFFSET, strict=True, description="How many to pass over."), written_exactly(int)
]
Force = Annotated[
    bool,
    Field(strict=True, description="Delete it although routes use it; they lead nowhere then."),
    written_exactly(bool),
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class NewProvider(_Request):
    """A provider to create."""

    name: Name | None = Field(default=None, description=f"{_NAME_RULE} Made from the type when it is left out.")
    type: str = Field(
        min_length=1, max_length=records.LONGEST_TYPE, description="openai, anthropic, nvidia or openai_compatible."
    )
    credentials: Credentials = Field(description="At least one value.", examples=[{"OPENAI_API_KEY": "sk-…"}])
    config: Config = Field(default_factory=dict, examples=[{"OPENAI_BASE_URL": "https://api.openai.com/v1"}])

    def draft(self) -> ProviderDraft:
        """The same for an operation."""
        return ProviderDraft(self.name or "", self.type, _secrets(self.credentials), self.config)


class ProviderChanges(_Request):
    """What to change of a provider: entries are merged, an empty value deletes its key."""

    credentials: Credentials = Field(default_factory=dict, examples=[{"OPENAI_API_KEY": "sk-…"}])
    config: Config = Field(default_factory=dict)

    def draft(self, name: str) -> ProviderDraft:
        """The same for an operation."""
        return ProviderDraft(name, "", _secrets(self.credentials), self.config)


def _secrets(credentials: dict[str, str]) -> dict[str, Secret]:
    return {key: Secret(value) for key, value in credentials.items()}


Context = Annotated[
    str,
    Field(
        max_length=LONGEST_CONTEXT,
        description=f"What is taken out of conversations: {CONTEXT_RULE}.",
        examples=["drop-duplicates,most-tokens=60000"],
    ),
]


class Candidate(_Request):
    """One provider of a chain."""

    provider_name: Name
    model: Annotated[str, Field(max_length=LONGEST_MODEL)] = Field(
        default="", description="Empty: the MODEL of the provider's config."
    )


Candidates = Annotated[
    list[Candidate], Field(max_length=MOST_CANDIDATES, description="Of a chain, in the order of in_order.")
]


class RouteSetting(_Request):
    """Where a route is to lead: provider and model, or the candidates of a chain, or the target of an alias."""

    provider_name: Name | None = None
    model: Model | None = None
    timeout_seconds: Timeout = 0
    candidates: Candidates = Field(default_factory=list)
    strategy: Strategy | None = None
    fallback: Name | None = Field(default=None, description="The provider that answers when no candidate does.")
    request_timeout_seconds: RequestTimeout = 0
    target: Name | None = Field(
        default=None, description="Of inference.local and sandbox-system: the named route that they lead to."
    )
    via_gateway: ViaGateway = False
    context: Context = ""
    verify: Verify = True

    def route_target(self, name: str) -> RouteTarget:
        """The same for an operation."""
        return RouteTarget(
            name,
            self.provider_name or "",
            self.model or "",
            self.timeout_seconds,
            candidates=_candidates(self.candidates),
            strategy=self.strategy or "",
            fallback=self.fallback or "",
            request_timeout_seconds=self.request_timeout_seconds,
            target=self.target or "",
            via_gateway=self.via_gateway,
            context=context_of(self.context),
        )


def _candidates(given: list[Candidate]) -> tuple[RouteCandidate, ...]:
    return tuple(RouteCandidate(each.provider_name, each.model) for each in given)


class RouteChanges(_Request):
    """What to change of a route; what is left out stays."""

    provider_name: Name | None = None
    model: Model | None = None
    timeout_seconds: Timeout | None = None
    candidates: Candidates | None = Field(default=None, min_length=1)
    strategy: Strategy | None = None
    fallback: Name | Literal[""] | None = Field(default=None, description="Empty: none any more.")
    request_timeout_seconds: RequestTimeout | None = None
    via_gateway: ViaGateway | None = None
    context: Context | None = None
    verify: Verify = True

    def edit(self) -> RouteEdit:
        """The same for an operation."""
        return RouteEdit(
            self.provider_name,
            self.model,
            self.timeout_seconds,
            candidates=None if self.candidates is None else _candidates(self.candidates),
            strategy=self.strategy,
            fallback=self.fallback,
            request_timeout_seconds=self.request_timeout_seconds,
            via_gateway=self.via_gateway,
            context=None if self.context is None else context_of(self.context),
        )


class NewSandboxToken(_Request):
    """A sandbox's token to make."""

    name: Name
    route: Annotated[str, AfterValidator(_no_credential)] = Field(
        default="", max_length=records.LONGEST_NAME, description="Where inference.local leads; empty: the shared route."
    )
    lifetime_seconds: Lifetime | None = None


class NewKey(_Request):
    """A key of the data listener to make."""

    name: Name | None = Field(default=None, description=f"{_NAME_RULE} Made when it is left out.")
    permissions: list[
        Annotated[str, Field(json_schema_extra={"enum": list(PERMISSIONS)}), AfterValidator(_no_credential)]
    ] = Field(
        default_factory=list,
        max_length=len(PERMISSIONS),
        description=f"{', '.join(PERMISSIONS)}; none: {INFERENCE}.",
    )
    routes: list[Name] = Field(
        default_factory=list, max_length=MOST_ROUTES, description="The only ones it may use; none: all of the account."
    )
    lifetime_seconds: Lifetime | None = None
    networks: list[Annotated[str, AfterValidator(_no_credential)]] = Field(
        default_factory=list,
        max_length=MOST_NETWORKS,
        description="Where its requests may come from, as 10.0.0.0/8 or 2001:db8::/32; none: anywhere.",
    )
    user: Name | None = Field(default=None, description=f"{_NAME_RULE} Who has it.")

    def draft(self) -> KeyDraft:
        """The same for an operation."""
        routes, networks = tuple(self.routes), tuple(self.networks)
        limits = (tuple(self.permissions), routes, self.lifetime_seconds, networks)
        return KeyDraft(self.name or "", *limits, self.user or "")


class NewAccount(_Request):
    """An account to create."""

    name: Name
