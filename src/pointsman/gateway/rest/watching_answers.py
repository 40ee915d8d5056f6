"""The shapes of `/stats/live` and `/health/providers`, for the OpenAPI document. What fills them is not here."""

from pydantic import BaseModel, ConfigDict, Field

_TIME = "RFC 3339 in UTC."


class LiveQuotaAnswer(BaseModel):
    """One provider's quota now."""

    model_config = ConfigDict(extra="forbid")

    provider_name: str
    daily_limit: int = Field(description="0: none.")
    daily_count: int = Field(description="Calls of chains in the current day that were answered with a 2xx, or go on.")
    rpm_limit: int = Field(description="0: none.")
    rpm_window_count: int = Field(description="The same of the current minute.")
    is_exhausted: bool = Field(description="Whether chains pass it over now.")
    exhausted_until: str | None = Field(description=f"{_TIME} Null: there is room, or nobody can tell.")
    resets_at: str | None = Field(description=f"{_TIME} When the next day begins in the quota's time zone.")
    runs_dry_at: str | None = Field(description=f"{_TIME} At the day's pace so far; null: not before it is renewed.")


class LiveStats(BaseModel):
    """The quotas of all providers of an account, by name."""

    model_config = ConfigDict(extra="forbid")

    providers: list[LiveQuotaAnswer]


class ProviderHealthAnswer(BaseModel):
    """How one provider is, or one runner."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="Of a runner with `runner:` before it.")
    status: str = Field(
        description="`ok`, `auth_error`, `rate_limit`, `server_error`, `unknown_error`, `unreachable`, `not_loaded` or "
        "`unusable`; of a runner `ok` or `not_connected`."
    )
    http_status: int = Field(default=0, description="Of its answer, where there was one.")
    latency_ms: int = Field(default=0, description="Until the head of its answer, where there was one.")


class ProvidersHealth(BaseModel):
    """How all providers of an account are, and its runners behind them."""

    model_config = ConfigDict(extra="forbid")

    checked_at: str = Field(description=_TIME)
    providers: list[ProviderHealthAnswer]
