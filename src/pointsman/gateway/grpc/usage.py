"""`pointsman.v1.Prices` and `pointsman.v1.Usage`: what tokens cost, and what was used."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.gateway.grpc.gate import caller
from pointsman.gateway.prices import LATEST, MOST_CHANGES, PriceDraft, Prices
from pointsman.gateway.usage_report import UsageReport
from pointsman.rpc.gen import usage_pb2 as pb
from pointsman.rpc.gen import usage_pb2_grpc
from pointsman.rpc.usage import price_change_message, price_message, usage_sum_message

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
        return price_change_message(await self._prices.set(caller().account, draft))

    async def ListPrices(self, request: pb.ListPricesRequest, context: _Context) -> pb.ListPricesResponse:
        """All of the moment."""
        table = await self._prices.table(caller().account)
        return pb.ListPricesResponse(prices=map(price_message, table.prices.values()), version=table.version)

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
        return pb.ListPriceChangesResponse(changes=map(price_change_message, changes))


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
        return pb.SumUsageResponse(sums=map(usage_sum_message, sums))
