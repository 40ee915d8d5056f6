"""`/usage` as HTTP: sums, and rows by pages. For the admin alone."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel, Field

from pointsman.core.money import shown_amount
from pointsman.core.usage_row import UsageRow
from pointsman.core.usage_sum import MOST_ROWS, UsageBy, UsageSum, parse_by
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.rest.admission import account_of
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.moments import moment_field, read_moment
from pointsman.gateway.rest.requests import written_exactly
from pointsman.gateway.usage_report import DEFAULT_DAYS, parse_place, written_place

AccountName = Annotated[str, Depends(account_of)]
Since = Annotated[str, moment_field(f"From then on. Left out: {DEFAULT_DAYS} days ago.")]
Until = Annotated[str, moment_field("Before then. Left out: now.")]
_BY = "|".join(UsageBy)
By = Annotated[
    str, Field(pattern=rf"^({_BY})(,({_BY}))*$", max_length=64, description="One, or several: `day,key,model`.")
]
PageSize = Annotated[int, Field(ge=1, le=MOST_ROWS, strict=True, description="Of one page."), written_exactly(int)]
After = Annotated[
    str, Field(max_length=64, pattern=r"^[0-9]+(\.[0-9]+)?-[0-9]{1,19}$", description="The `next` of the page before.")
]
_DEFAULT_PAGE = 100


class UsageSumAnswer(BaseModel):
    """What the requests of one group came to."""

    names: list[str] = Field(description="What they have in common, in the order of `by`; empty: they have none of it.")
    requests: int
    failed: int = Field(description="Those that did not complete.")
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int = Field(description="Of the prompts, those that providers had kept.")
    reasoning_tokens: int = Field(description="Of the completions.")
    saved_tokens: int = Field(description="That context optimisation took out.")
    cost: str = Field(description="A decimal number, in the unit of the prices.")
    estimated: int = Field(description="Requests whose tokens were reckoned, since their upstream did not tell them.")
    unpriced: int = Field(description="Requests with tokens and without a price, which cost nothing here.")

    @classmethod
    def of(cls, each: UsageSum) -> "UsageSumAnswer":
        """A sum as it is shown."""
        names = set(cls.model_fields) - {"cost"}
        return cls(cost=shown_amount(each.cost), **{name: getattr(each, name) for name in names})


class UsageSums(BaseModel):
    """The dearest first, within the latest days; a thousand at most."""

    by: list[UsageBy]
    usage: list[UsageSumAnswer]


class UsageRowAnswer(BaseModel):
    """One request."""

    request_id: str
    at: datetime = Field(description="When it ended.")
    account: str
    key_name: str = Field(description="The key, or sandbox:NAME for a sandbox's token; empty: none was asked for.")
    method: str
    path: str
    dialect: str
    route: str
    provider: str = Field(description="Whose answer it was; empty: nobody answered.")
    model: str
    status: int = Field(description="0: the client left before there was an answer.")
    reason: str = Field(description="Why it did not complete; empty: it did.")
    attempts: int
    duration_ms: float
    prompt_tokens: int | None = Field(description="null: it used none.")
    completion_tokens: int | None
    total_tokens: int | None
    cached_tokens: int
    reasoning_tokens: int
    usage_source: str = Field(description="reported, estimated, or empty where there are no tokens.")
    cost: str | None = Field(description="null: there was no price.")
    price_version: int = Field(description="Of the account's prices then; 0: there never was one.")
    policy_hits: int
    saved_tokens: int
    key_user: str = Field(description="Who has the key, as the operator calls them.")
    requested_model: str = Field(description="What the client named; its route is another where that is the default.")
    ai_model_id: str = Field(description="The registered model that it was for; empty: a provider's.")
    upstream_request_id: str = Field(description="What the provider calls it.")
    finish_reason: str = Field(description="Why the model stopped, in the provider's word: stop, length, tool_calls.")
    error_detail: str = Field(description="Why it did not complete, in a line. No word of a prompt is in it.")
    client_retries: int = Field(description="How often its client had tried before, as its library says.")
    is_fallback: bool = Field(description="Whether the answer is the one of a chain's fallback.")
    budgets: list[str] = Field(description="The names of those that it counts for.")
    refused_budget: str = Field(description="The name of the one that had no room for it.")

    @classmethod
    def of(cls, row: UsageRow) -> "UsageRowAnswer":
        """A row as it is shown."""
        names = set(cls.model_fields) - {"at", "duration_ms", "cost", "budgets"}
        return cls(
            at=datetime.fromtimestamp(row.at, UTC),
            budgets=row.budgets.split(",") if row.budgets else [],
            duration_ms=row.latency_ms,
            cost=None if row.cost is None else shown_amount(row.cost),
            **{name: getattr(row, name) for name in names},
        )


class UsageRows(BaseModel):
    """A page of requests, the newest first."""

    rows: list[UsageRowAnswer]
    next: str | None = Field(description="Where the next page begins; null: this was the last.")


class UsageEndpoints:
    """`/usage`."""

    def __init__(self, control: ControlPlane) -> None:
        self._usage = control.usage

    async def sums(
        self, account: AccountName, by: By = "model", since: Since | None = None, until: Until | None = None
    ) -> UsageSums:
        """What was used, put together by what requests have in common. By account, all accounts are told."""
        period = self._usage.period(read_moment(since), read_moment(until))
        found = await self._usage.sums(account, by, period)
        return UsageSums(by=list(parse_by(by)), usage=[UsageSumAnswer.of(each) for each in found])

    async def rows(
        self,
        account: AccountName,
        since: Since | None = None,
        until: Until | None = None,
        limit: PageSize = _DEFAULT_PAGE,
        after: After | None = None,
    ) -> UsageRows:
        """Requests one by one."""
        period = self._usage.period(read_moment(since), read_moment(until))
        page = await self._usage.rows(account, period, limit, None if after is None else parse_place(after))
        following = None if page.next is None else written_place(page.next)
        return UsageRows(rows=[UsageRowAnswer.of(each) for each in page.rows], next=following)


def add_usage(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths."""
    usage = UsageEndpoints(control)
    for path, endpoint, name in (
        (f"{BASE}/usage", usage.sums, "sum_usage"),
        (f"{BASE}/usage/rows", usage.rows, "list_usage"),
    ):
        api.router.add_api_route(path, endpoint, methods=["GET"], operation_id=name)
