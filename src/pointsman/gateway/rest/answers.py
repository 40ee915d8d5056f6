"""The JSON of answers: what a client may see of each record, by name. A field that is not here is not sent."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pointsman.core.account import Account
from pointsman.core.context_options import written_context
from pointsman.core.data_key import DataKey
from pointsman.core.provider import REDACTED, Provider
from pointsman.core.route import Route, ValidatedEndpoint
from pointsman.core.sandbox_token import SandboxToken
from pointsman.core.secret import Secret
from pointsman.gateway.control import Status
from pointsman.gateway.providers import Deletion
from pointsman.gateway.providers import ProviderPage as Page
from pointsman.gateway.routes import RouteChange

_FROM_FILE = "The gateway's configuration file defines it, and no call changes it; false: it is stored."


class _Answer(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)


class ErrorDetail(_Answer):
    """What went wrong."""

    code: str = Field(examples=["not_found"])
    message: str = Field(description="One line that ends in what to do next.")


class ErrorAnswer(_Answer):
    """The shape of every error."""

    error: ErrorDetail


class ProviderAnswer(_Answer):
    """A provider, without any value of a credential."""

    id: str
    name: str
    type: str
    credentials: dict[str, str] = Field(description=f"Names; every value is {REDACTED}.")
    config: dict[str, str]
    from_file: bool = Field(description=_FROM_FILE)
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, provider: Provider) -> "ProviderAnswer":
        """What may be shown of a record."""
        return cls(
            id=provider.id,
            name=provider.name,
            type=provider.type,
            credentials=dict.fromkeys(sorted(provider.credentials), REDACTED),
            config=dict(provider.config),
            from_file=provider.from_file,
            created_at=_time(provider.created_at),
            updated_at=_time(provider.updated_at),
        )


class ProviderPage(_Answer):
    """Providers by name, as many as were asked for."""

    providers: list[ProviderAnswer]
    total: int = Field(description="How many there are.")

    @classmethod
    def of(cls, page: Page) -> "ProviderPage":
        """The same for a client."""
        return cls(providers=[ProviderAnswer.of(each) for each in page.providers], total=page.total)


class ProviderDeletion(_Answer):
    """What a deletion did."""

    deleted: bool
    broken_routes: list[str] = Field(description="Routes that lead nowhere from now on.")

    @classmethod
    def of(cls, deletion: Deletion) -> "ProviderDeletion":
        """The same for a client."""
        return cls(deleted=deletion.deleted, broken_routes=list(deletion.broken_routes))


class Endpoint(_Answer):
    """What a verification reached."""

    url: str
    protocol: str


class CandidateAnswer(_Answer):
    """One provider of a chain."""

    provider_name: str
    model: str = Field(description="Empty: the MODEL of the provider's config.")


class _Route(_Answer):
    name: str
    kind: str = Field(
        description="direct, chain or alias; runner or model: a registered model, whose alias is the name."
    )
    provider_name: str = Field(
        description="Of a direct route, as the model; runner:NAME or direct:ALIAS of a registered model."
    )
    model: str
    timeout_seconds: int
    candidates: list[CandidateAnswer] = Field(description="Of a chain, as the strategy, fallback and request timeout.")
    strategy: str
    fallback: str
    request_timeout_seconds: int
    target: str = Field(description="Of an alias: the route that it leads to.")
    via_gateway: bool
    context: str = Field(description="What is taken out of conversations; empty for nothing.")
    from_file: bool = Field(description=_FROM_FILE)
    version: int = Field(description="Grows with every change; 0 of a registered model.")


class RouteAnswer(_Route):
    """A route."""

    problem: str | None = Field(default=None, description="Why it cannot be used at present.")

    @classmethod
    def of(cls, route: Route, problem: str = "") -> "RouteAnswer":
        """The same for a client."""
        return cls(**_fields(route), problem=problem or None)


class RouteChanged(_Route):
    """A route after a change."""

    verified: bool
    validated_endpoints: list[Endpoint]

    @classmethod
    def of(cls, change: RouteChange) -> "RouteChanged":
        """The same for a client."""
        endpoints = [_endpoint(each) for each in change.endpoints]
        return cls(**_fields(change.route), verified=change.verified, validated_endpoints=endpoints)


def _fields(route: Route) -> dict[str, Any]:
    values = {name: getattr(route, name) for name in _Route.model_fields}
    candidates = [CandidateAnswer(provider_name=each.provider_name, model=each.model) for each in route.candidates]
    return {**values, "candidates": candidates, "context": written_context(route.context)}


def _endpoint(endpoint: ValidatedEndpoint) -> Endpoint:
    return Endpoint(url=endpoint.url, protocol=endpoint.protocol)


class RouteList(_Answer):
    """All routes, by name."""

    routes: list[RouteAnswer]

    @classmethod
    def of(cls, routes: Sequence[tuple[Route, str]]) -> "RouteList":
        """Routes, each with its problem."""
        return cls(routes=[RouteAnswer.of(*each) for each in routes])


class RouteDeletion(_Answer):
    """A route was deleted."""

    deleted: bool


class SandboxTokenAnswer(_Answer):
    """What is known of a token."""

    name: str
    route: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, token: SandboxToken) -> "SandboxTokenAnswer":
        """What may be shown of a token."""
        return cls(**_token_fields(token))


class SandboxTokenMade(SandboxTokenAnswer):
    """A new token. It is shown this once."""

    token: str

    @classmethod
    def shown(cls, token: SandboxToken, secret: Secret) -> "SandboxTokenMade":
        """The only sight of it."""
        return cls(**_token_fields(token), token=secret.reveal())


def _token_fields(token: SandboxToken) -> dict[str, Any]:
    return {
        "name": token.name,
        "route": token.route,
        "created_at": _time(token.created_at),
        "expires_at": None if token.expires_at is None else _time(token.expires_at),
        "revoked_at": None if token.revoked_at is None else _time(token.revoked_at),
    }


class SandboxTokenList(_Answer):
    """All tokens, by name; revoked ones too."""

    sandbox_tokens: list[SandboxTokenAnswer]


class SandboxTokenRevocation(_Answer):
    """A token was revoked."""

    revoked: bool


class KeyAnswer(_Answer):
    """What is known of a key of the data listener."""

    name: str
    permissions: list[str]
    routes: list[str] = Field(description="The only ones it may use; none: all of the account.")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    networks: list[str] = Field(description="Where its requests may come from; none: anywhere.")
    user: str | None = Field(description="Who has it.")

    @classmethod
    def of(cls, key: DataKey) -> "KeyAnswer":
        """What may be shown of a key."""
        return cls(**_key_fields(key))


class KeyMade(KeyAnswer):
    """A new key. It is shown this once."""

    key: str

    @classmethod
    def shown(cls, key: DataKey, secret: Secret) -> "KeyMade":
        """The only sight of it."""
        return cls(**_key_fields(key), key=secret.reveal())


def _key_fields(key: DataKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "permissions": list(key.permissions),
        "routes": list(key.routes),
        "created_at": _time(key.created_at),
        "expires_at": None if key.expires_at is None else _time(key.expires_at),
        "revoked_at": None if key.revoked_at is None else _time(key.revoked_at),
        "networks": [str(each) for each in key.networks],
        "user": key.user or None,
    }


class KeyList(_Answer):
    """All keys, by name; revoked ones too."""

    keys: list[KeyAnswer]


class KeyRevocation(_Answer):
    """A key was revoked."""

    revoked: bool


class AccountAnswer(_Answer):
    """An account."""

    name: str
    created_at: datetime
    halted_at: datetime | None = Field(description="Since when nothing is served for it; null while it is.")

    @classmethod
    def of(cls, account: Account) -> "AccountAnswer":
        """The same for a client."""
        halted_at = None if account.halted_at is None else _time(account.halted_at)
        return cls(name=account.name, created_at=_time(account.created_at), halted_at=halted_at)


class AccountList(_Answer):
    """All accounts, by name."""

    accounts: list[AccountAnswer]


class StatusAnswer(_Answer):
    """What an operator asks first."""

    version: str
    store: str = Field(description="sqlite or postgresql.")
    providers: int
    routes: list[RouteAnswer]
    sandbox_tokens: int = Field(description="Those that are valid.")
    started_at: datetime

    @classmethod
    def of(cls, status: Status) -> "StatusAnswer":
        """The same for a client."""
        return cls(
            version=status.version,
            store=status.store,
            providers=status.providers,
            routes=RouteList.of(status.routes).routes,
            sandbox_tokens=status.sandbox_tokens,
            started_at=_time(status.started_at),
        )


class Health(_Answer):
    """Whether the gateway can do its work."""

    status: str = Field(description="ok or degraded.")
    version: str


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
