"""Operations on an account's price table. What requests cost by it is `core.price`'s."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.core.control_errors import InvalidRequest, NotFound, NotPossibleNow
from pointsman.core.money import parse_amount, parse_price
from pointsman.core.price import ANY_MODEL, Price, PriceChange, PriceTable
from pointsman.core.provider import LONGEST_NAME, check_name
from pointsman.core.route import LONGEST_MODEL
from pointsman.routing.registered_models import DIRECT_PREFIX, PROVIDER_PREFIX
from pointsman.store.interface import Reader, Store

MOST_PRICES = 1000
"""Of one account (ours): several times the models that all well-known providers have together."""
MOST_CHANGES = 1000
"""Of one page of the history."""
LATEST = 2**62
"""Above every version."""


@dataclass(frozen=True, slots=True)
class PriceDraft:
    """What tokens are to cost, in words: prices are per million tokens."""

    provider: str
    model: str
    input: str
    output: str
    cached_input: str = ""
    """Empty: as `input`."""
    request: str = ""
    """Empty: nothing besides the tokens."""


class Prices:
    """Sets, lists and deletes prices. Every change makes a new version of the account's table."""

    def __init__(self, store: Store, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._say = say

    async def set(self, account: str, draft: PriceDraft) -> PriceChange:
        """A new price, or another than before. Raises InvalidRequest, NotFound (of whom it is), NotPossibleNow.

        To set what is set makes no version.
        """
        price = _price(draft)
        async with self._store.write() as writer:
            await _check_provider(writer, account, price.provider)
            table = await writer.price_table(account)
            before = table.prices.get((price.provider, price.model))
            change = PriceChange(account, table.version + 1, self._clock(), price)
            if before == price:
                return PriceChange(account, table.version, change.at, price)
            if before is None and len(table.prices) >= MOST_PRICES:
                raise NotPossibleNow(f"the account has {MOST_PRICES} prices, and no more can be; delete one")
            await writer.insert_price_change(change)
        self._say(f"prices of {account}: version {change.version}: {named(price)} is priced")
        return change

    async def delete(self, account: str, provider: str, model: str) -> bool:
        """Whether there was one."""
        async with self._store.write() as writer:
            table = await writer.price_table(account)
            price = table.prices.get((provider, model or ANY_MODEL))
            if price is None:
                return False
            change = PriceChange(account, table.version + 1, self._clock(), price, is_removed=True)
            await writer.insert_price_change(change)
        self._say(f"prices of {account}: version {change.version}: {named(price)} has no price any more")
        return True

    async def table(self, account: str) -> PriceTable:
        """All prices of the moment."""
        async with self._store.read() as reader:
            return await reader.price_table(account)

    async def history(self, account: str, limit: int, before: int) -> Sequence[PriceChange]:
        """Changes that made versions below `before`, the latest first; `LATEST`: from the last on."""
        async with self._store.read() as reader:
            return await reader.price_changes(account, limit, before)


def named(price: Price) -> str:
    """Whose price it is."""
    return price.provider if price.model == ANY_MODEL else f"{price.provider}={price.model}"


def _price(draft: PriceDraft) -> Price:
    if not draft.provider:
        raise InvalidRequest("name the provider whose price it is; see: pointsman provider list")
    if len(draft.provider) > LONGEST_NAME + len(PROVIDER_PREFIX):
        raise InvalidRequest(f"the provider's name is longer than {LONGEST_NAME} characters")
    if len(draft.model) > LONGEST_MODEL or not draft.model.isprintable():
        raise InvalidRequest(f"the model is longer than {LONGEST_MODEL} characters, or has some that cannot be shown")
    return Price(
        draft.provider,
        draft.model or ANY_MODEL,
        _parsed(parse_price, "input price", draft.input),
        _parsed(parse_price, "output price", draft.output),
        _parsed(parse_price, "price of cached input", draft.cached_input) if draft.cached_input else None,
        _parsed(parse_amount, "price of a request", draft.request) if draft.request else 0,
    )


def _parsed(parse: Callable[[str], int], what: str, text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        problem = str(error)
    raise InvalidRequest(f"the {what} {text[:40]!r} {problem}")


async def _check_provider(reader: Reader, account: str, name: str) -> None:
    """A price of somebody who does not exist would price nothing."""
    if name.startswith(PROVIDER_PREFIX):
        if name.removeprefix(PROVIDER_PREFIX) not in [each.name for each in await reader.runners(account)]:
            raise NotFound(f"there is no runner {name.removeprefix(PROVIDER_PREFIX)[:64]!r}; see: pointsman status")
    elif name.startswith(DIRECT_PREFIX):
        if await reader.ai_model_by_alias(account, name.removeprefix(DIRECT_PREFIX)) is None:
            raise NotFound(f"there is no model {name.removeprefix(DIRECT_PREFIX)[:64]!r}; see /api/v1/ai-models")
    else:
        check_name(name, "provider's name")
        if await reader.provider(account, name) is None:
            raise NotFound(f"there is no provider {name[:64]!r}; see: pointsman provider list")
