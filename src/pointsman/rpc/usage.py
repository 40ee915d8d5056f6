"""Prices and sums of usage as messages."""

from pointsman.core.money import shown_amount, shown_price
from pointsman.core.price import Price, PriceChange
from pointsman.core.usage_sum import UsageSum
from pointsman.rpc.gen import usage_pb2 as pb


def price_message(price: Price) -> pb.Price:
    """A price, as texts that lose nothing."""
    return pb.Price(
        provider=price.provider,
        model=price.model,
        input=shown_price(price.input),
        output=shown_price(price.output),
        cached_input="" if price.cached_input is None else shown_price(price.cached_input),
        request=shown_amount(price.request) if price.request else "",
    )


def price_change_message(change: PriceChange) -> pb.PriceChange:
    """One version of the table."""
    return pb.PriceChange(
        price=price_message(change.price),
        version=change.version,
        at_ms=round(change.at * 1000),
        removed=change.is_removed,
    )


def usage_sum_message(each: UsageSum) -> pb.UsageSum:
    """A sum."""
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
