"""`/prices` as HTTP: what may be sent, and what is answered. For the admin alone."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel, ConfigDict, Field

from pointsman.core.control_errors import InvalidRequest, NotFound
from pointsman.core.money import shown_amount, shown_price
from pointsman.core.price import ANY_MODEL, Price, PriceChange
from pointsman.core.provider import LONGEST_NAME
from pointsman.core.route import LONGEST_MODEL
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.prices import LATEST, PriceDraft
from pointsman.gateway.providers import DEFAULT_PAGE
from pointsman.gateway.rest.admission import account_of
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.refusals import looks_like_a_credential
from pointsman.gateway.rest.requests import Limit, written_exactly
from pointsman.routing.registered_models import DIRECT_PREFIX

_LARGEST_VERSION = 10**9
AccountName = Annotated[str, Depends(account_of)]
ProviderName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LONGEST_NAME + len(DIRECT_PREFIX),
        description="A provider, runner:NAME for a runner's models, or direct:ALIAS for a direct model.",
        examples=["openai-1"],
    ),
]
ModelName = Annotated[
    str, Field(min_length=1, max_length=LONGEST_MODEL, description="*: any that has no price of its own.")
]
PerMillion = Annotated[
    str, Field(min_length=1, max_length=40, description="Of a million tokens, a decimal number.", examples=["0.15"])
]
PerRequest = Annotated[str, Field(min_length=1, max_length=40, description="Of each request besides.")]
Before = Annotated[
    int,
    Field(ge=1, le=_LARGEST_VERSION, strict=True, description="Only changes that made versions below."),
    written_exactly(int),
]


def _provider_in_path(name: str) -> str:
    """Raises InvalidRequest for what names nobody."""
    if looks_like_a_credential(name):
        raise InvalidRequest("the name in the path looks like a credential; a provider's name belongs there")
    return name


PathName = Annotated[str, Depends(_provider_in_path)]


class NewPrice(BaseModel):
    """What tokens of a provider's model are to cost."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    provider: ProviderName
    model: ModelName = ANY_MODEL
    input: PerMillion
    output: PerMillion
    cached_input: PerMillion | None = Field(default=None, description="null: as input.")
    request: PerRequest | None = Field(default=None, description="null: none.")

    def draft(self) -> PriceDraft:
        """The same for an operation."""
        return PriceDraft(
            self.provider, self.model, self.input, self.output, self.cached_input or "", self.request or ""
        )


class PriceAnswer(BaseModel):
    """What tokens of a provider's model cost, a million of them."""

    provider: str
    model: str
    input: str
    output: str
    cached_input: str | None
    request: str | None

    @classmethod
    def of(cls, price: Price) -> "PriceAnswer":
        """A price as it is shown."""
        return cls(
            provider=price.provider,
            model=price.model,
            input=shown_price(price.input),
            output=shown_price(price.output),
            cached_input=None if price.cached_input is None else shown_price(price.cached_input),
            request=shown_amount(price.request) if price.request else None,
        )


class PriceList(BaseModel):
    """The account's table, by provider and model."""

    version: int = Field(description="0: there never was a price.")
    prices: list[PriceAnswer]


class PriceChangeAnswer(BaseModel):
    """A step to another version of the table."""

    version: int
    at: datetime
    removed: bool = Field(description="The price is the one that went.")
    price: PriceAnswer

    @classmethod
    def of(cls, change: PriceChange) -> "PriceChangeAnswer":
        """A change as it is shown."""
        at = datetime.fromtimestamp(change.at, UTC)
        return cls(version=change.version, at=at, removed=change.is_removed, price=PriceAnswer.of(change.price))


class PriceChangeList(BaseModel):
    """The latest first."""

    changes: list[PriceChangeAnswer]


class PriceDeletion(BaseModel):
    """A price was deleted."""

    deleted: bool


class PriceEndpoints:
    """`/prices`."""

    def __init__(self, control: ControlPlane) -> None:
        self._prices = control.prices

    async def list(self, account: AccountName) -> PriceList:
        """All prices of the moment."""
        table = await self._prices.table(account)
        return PriceList(version=table.version, prices=[PriceAnswer.of(each) for each in table.prices.values()])

    async def set(self, account: AccountName, body: NewPrice) -> PriceChangeAnswer:
        """Set a price. The table has a new version then, unless the price is that already."""
        return PriceChangeAnswer.of(await self._prices.set(account, body.draft()))

    async def delete(self, account: AccountName, name: PathName, model: ModelName = ANY_MODEL) -> PriceDeletion:
        """Delete a price. What it was for costs what any model of its provider costs, or nothing."""
        if not await self._prices.delete(account, name, model):
            raise NotFound(f"there is no such price; see {BASE}/prices")
        return PriceDeletion(deleted=True)

    async def history(
        self, account: AccountName, limit: Limit = DEFAULT_PAGE, before: Before | None = None
    ) -> PriceChangeList:
        """How the table came to be what it is."""
        changes = await self._prices.history(account, limit, LATEST if before is None else before)
        return PriceChangeList(changes=[PriceChangeAnswer.of(each) for each in changes])


def add_prices(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths."""
    prices, path = PriceEndpoints(control), f"{BASE}/prices"
    for method, where, endpoint, name in (
        ("GET", path, prices.list, "list_prices"),
        ("PUT", path, prices.set, "set_price"),
        ("DELETE", f"{path}/{{name:path}}", prices.delete, "delete_price"),
        ("GET", f"{BASE}/price-changes", prices.history, "list_price_changes"),
    ):
        api.router.add_api_route(where, endpoint, methods=[method], operation_id=name)
