"""What tokens of a provider's model cost, as an operator says. Tables don't change: each change is a new version."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pointsman.core.money import cost_of, rounded_up

ANY_MODEL = "*"
"""In place of a model: all of a provider that have no price of their own."""


@dataclass(frozen=True, slots=True)
class Price:
    """Of one provider's model; trillionths of the unit per token (`core.money.parse_price`)."""

    provider: str
    """A provider's name; `runner:NAME` for a runner's models."""
    model: str
    input: int
    output: int
    cached_input: int | None = None
    """Of input that the provider had kept; None: as `input`."""
    request: int = 0
    """For each request besides, as an amount."""


class Tokens(NamedTuple):
    """What one request used, as far as it is known. A tuple, since some are made per request."""

    input: int = 0
    """Cached ones included."""
    output: int = 0
    """Those of reasoning included."""
    cached_input: int = 0
    reasoning: int = 0
    is_estimated: bool = False
    """Whether the upstream said nothing, and it was reckoned from the bytes."""


@dataclass(frozen=True, slots=True)
class PriceTable:
    """An account's prices at one moment."""

    version: int = 0
    prices: Mapping[tuple[str, str], Price] = field(default_factory=dict)
    """By provider and model."""

    def find(self, provider: str, model: str) -> Price | None:
        """The model's own, else the provider's for any; None: unpriced, which costs nothing and is told as such."""
        return self.prices.get((provider, model)) or self.prices.get((provider, ANY_MODEL))

    def cost(self, provider: str, model: str, tokens: Tokens) -> int | None:
        """What one request cost, as an amount; None when there is no price."""
        price = self.prices.get((provider, model)) or self.prices.get((provider, ANY_MODEL))
        if price is None:
            return None
        if not tokens.cached_input:
            return rounded_up(tokens.input * price.input + tokens.output * price.output) + price.request
        cached = min(tokens.cached_input, tokens.input)
        cached_price = price.input if price.cached_input is None else price.cached_input
        used = cost_of((tokens.input - cached, price.input), (cached, cached_price), (tokens.output, price.output))
        return used + price.request


NO_PRICES = PriceTable()


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A step from one version of an account's table to the next."""

    account: str
    version: int
    """Of the table that it makes; the first is 1."""
    at: float
    """Seconds since the epoch."""
    price: Price
    """As it was set; one that was removed, as it was before."""
    is_removed: bool = False


def tables_of(last_changes: Iterable[PriceChange]) -> Mapping[str, PriceTable]:
    """Accounts' tables, of the last change that each price has seen."""
    versions: dict[str, int] = {}
    prices: dict[str, dict[tuple[str, str], Price]] = {}
    for change in last_changes:
        account, price = change.account, change.price
        versions[account] = max(versions.get(account, 0), change.version)
        of_account = prices.setdefault(account, {})
        if not change.is_removed:
            of_account[price.provider, price.model] = price
    return {account: PriceTable(version, prices[account]) for account, version in versions.items()}
