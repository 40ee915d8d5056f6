"""`pointsman price`: what tokens cost, as the operator says."""

from typing import TYPE_CHECKING, Any

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.show import moment, output_option, show, show_json, show_lines, told
from pointsman.cli.table import table
from pointsman.core.price import ANY_MODEL

if TYPE_CHECKING:
    from pointsman.rpc.gen.usage_pb2 import Price, PriceChange

_HEAD = ("PROVIDER", "MODEL", "INPUT", "OUTPUT", "CACHED INPUT", "REQUEST")
_HISTORY_HEAD = ("VERSION", "TIME", "CHANGE", *_HEAD)
_NONE = "No prices, so nothing costs anything; 'pointsman price set --help' shows how"
_whose = click.argument("whose", metavar="PROVIDER[=MODEL]")


@click.group()
def price() -> None:
    """Prices: what tokens of a provider's models cost, a million of them.

    What has no price costs nothing. Which currency it is, is yours to say: all amounts are in the same. Every change
    makes a new version of the account's prices, and usage tells by which each request was counted.
    """


@price.command(name="set")
@_whose
@click.option("--input-price", metavar="PRICE", required=True, help="Of a million tokens of prompts.")
@click.option("--output-price", metavar="PRICE", required=True, help="Of a million tokens of answers.")
@click.option("--cached-price", metavar="PRICE", default="", help="Of prompts that were kept. Default: --input-price.")
@click.option("--request-price", metavar="AMOUNT", default="", help="Of each request besides.")
@output_option
@client_options
def set_(access: Access, whose: str, output: str, **wanted: str) -> None:
    """Set what tokens cost, of one model or of any of a provider that has no price of its own.

    For a runner's models the provider is runner:NAME.

    \b
    Examples:
      pointsman price set work=gpt-4o-mini --input-price 0.15 --output-price 0.60 --cached-price 0.075
      pointsman price set work --input-price 2.50 --output-price 10
      pointsman price set runner:laptop --input-price 0 --output-price 0 --request-price 0.001
    """
    from pointsman.rpc.gen import usage_pb2

    provider, model = _split(whose)
    wanted_price = usage_pb2.Price(
        provider=provider,
        model=model,
        input=wanted["input_price"],
        output=wanted["output_price"],
        cached_input=wanted["cached_price"],
        request=wanted["request_price"],
    )
    with access.open() as gateway:
        change = gateway.call(gateway.prices.SetPrice, usage_pb2.SetPriceRequest(price=wanted_price))
    made = change.price
    line = f"Price of {told(_named(made))}: {made.input} in, {made.output} out, a million tokens"
    show(output, [f"{line} (version {change.version})"], _change_json(change))


@price.command(name="list")
@output_option
@client_options
def list_(access: Access, output: str) -> None:
    """List prices."""
    from pointsman.rpc.gen import usage_pb2

    with access.open() as gateway:
        found = gateway.call(gateway.prices.ListPrices, usage_pb2.ListPricesRequest())
    if output == "json":
        show_json({"version": found.version, "prices": [_json(each) for each in found.prices]})
    else:
        show_lines(table(_HEAD, [_row(each) for each in found.prices]) if found.prices else [_NONE])


@price.command()
@_whose
@output_option
@client_options
def delete(access: Access, whose: str, output: str) -> None:
    """Delete a price. What was counted by it stays counted.

    \b
    Examples:
      pointsman price delete work=gpt-4o-mini
      pointsman price delete work
    """
    from pointsman.rpc.gen import usage_pb2

    provider, model = _split(whose)
    with access.open() as gateway:
        request = usage_pb2.DeletePriceRequest(provider=provider, model=model)
        deleted = gateway.call(gateway.prices.DeletePrice, request).deleted
    if not deleted:
        raise click.ClickException(f"no price of {told(whose)}; 'pointsman price list' shows them")
    show(output, [f"Deleted the price of {told(whose)}"], {"provider": provider, "model": model, "deleted": True})


@price.command()
@output_option
@client_options
def history(access: Access, output: str) -> None:
    """How the prices came to be what they are: the last thousand changes, the latest first."""
    from pointsman.rpc.gen import usage_pb2

    with access.open() as gateway:
        request = usage_pb2.ListPriceChangesRequest()
        changes = gateway.call(gateway.prices.ListPriceChanges, request).changes
    if output == "json":
        show_json([_change_json(each) for each in changes])
    else:
        show_lines(table(_HISTORY_HEAD, [_change_row(each) for each in changes]) if changes else [_NONE])


def _split(whose: str) -> tuple[str, str]:
    provider, _, model = whose.partition("=")
    return provider, model or ANY_MODEL


def _named(made: "Price") -> str:
    return made.provider if made.model == ANY_MODEL else f"{made.provider}={made.model}"


def _row(made: "Price") -> tuple[str, ...]:
    return (
        told(made.provider),
        told(made.model),
        made.input,
        made.output,
        made.cached_input or "-",
        made.request or "-",
    )


def _json(made: "Price") -> dict[str, Any]:
    return {
        "provider": made.provider,
        "model": made.model,
        "input": made.input,
        "output": made.output,
        "cached_input": made.cached_input or None,
        "request": made.request or None,
    }


def _change_row(change: "PriceChange") -> tuple[str, ...]:
    what = "deleted" if change.removed else "set"
    return (str(change.version), moment(change.at_ms) or "", what, *_row(change.price))


def _change_json(change: "PriceChange") -> dict[str, Any]:
    at = moment(change.at_ms)
    return {"version": change.version, "at": at, "removed": change.removed, "price": _json(change.price)}
