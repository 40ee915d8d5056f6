"""`pointsman.v1.Prices` and `pointsman.v1.Usage`: what tokens cost, and what was used."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.core.money import shown_amount, shown_price
from pointsman.core.price import Price, PriceChange
from pointsman.core.usage_sum import UsageSum
from pointsman.gateway.grpc.gate import caller
from pointsman.gateway.prices import LATEST, MOST_CHANGES, PriceDraft, Prices
from pointsman.gateway.usage_report import UsageReport
from pointsman.rpc.gen import usage_pb2 as pb
from pointsman.rpc.gen import usage_pb2_grpc

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class PricesServicer(usage_pb2_grpc.PricesServicer):
    """Translates; every decision is an operation's."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices

    async def SetPrice(self, request: pb.SetPriceRequest, context: _Context) -> pb.PriceChange:
        """A new price, or another than before."""
        wanted = request.price
        draft = PriceDraft(
            wanted.provider.strip(),
            wanted.model.strip(),
            wanted.input.strip(),
            wanted.output.strip(),
            wanted.cached_input.strip(),
            wanted.request.strip(),
        )
        return _change_message(await self._prices.set(caller().account, draft))

    async def ListPrices(self, request: pb.ListPricesRequest, context: _Context) -> pb.ListPricesResponse:
        """All of the moment."""
        table = await self._prices.table(caller().account)
        return pb.ListPricesResponse(prices=map(_price_message, table.prices.values()), version=table.version)

    async def DeletePrice(self, request: pb.DeletePriceRequest, context: _Context) -> pb.DeletePriceResponse:
        """What it was for costs nothing from then on, or what any model of its provider costs."""
        deleted = await self._prices.delete(caller().account, request.provider.strip(), request.model.strip())
        return pb.DeletePriceResponse(deleted=deleted)

    async def ListPriceChanges(
        self, request: pb.ListPriceChangesRequest, context: _Context
    ) -> pb.ListPriceChangesResponse:
        """How the table came to be what it is."""
        before = min(request.before or LATEST, LATEST)
        changes = await self._prices.history(caller().account, MOST_CHANGES, before)
        return pb.ListPriceChangesResponse(changes=map(_change_message, changes))


class UsageServicer(usage_pb2_grpc.UsageServicer):
    """Translates; every decision is an operation's."""

    def __init__(self, usage: UsageReport) -> None:
        self._usage = usage

    async def SumUsage(self, request: pb.SumUsageRequest, context: _Context) -> pb.SumUsageResponse:
        """Sums by what requests have in common."""
        period = self._usage.period(
            request.since_ms / 1000 if request.HasField("since_ms") else None,
            request.until_ms / 1000 if request.HasField("until_ms") else None,
        )
        sums = await self._usage.sums(caller().account, request.by, period)
        return pb.SumUsageResponse(sums=map(_sum_message, sums))


def _price_message(price: Price) -> pb.Price:
    return pb.Price(
        provider=price.provider,
        model=price.model,
        input=shown_price(price.input),
        output=shown_price(price.output),
        cached_input="" if price.cached_input is None else shown_price(price.cached_input),
        request=shown_amount(price.request) if price.request else "",
    )


def _change_message(change: PriceChange) -> pb.PriceChange:
    return pb.PriceChange(
        price=_price_message(change.price),
        version=change.version,
        at_ms=round(change.at * 1000),
        removed=change.is_removed,
    )


def _sum_message(each: UsageSum) -> pb.UsageSum:
    return pb.UsageSum(
        names=each.names,
        requests=each.requests,
        failed=each.failed,
        prompt_tokens=each.prompt_tokens,
        completion_tokens=each.completion_tokens,
        total_tokens=each.total_tokens,
        cached_tokens=each.cached_tokens,
        reasoning_tokens=each.reasoning_tokens,
        saved_tokens=each.saved_tokens,
        cost=shown_amount(each.cost),
        estimated=each.estimated,
        unpriced=each.unpriced,
    )
