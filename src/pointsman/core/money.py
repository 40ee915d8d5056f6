"""Amounts of money as whole numbers. Pure; which currency it is, is the operator's affair, and the same everywhere."""

from decimal import Decimal, InvalidOperation

NANO = 1_000_000_000
"""An amount is in billionths of the unit: 50 dollars are 50 * NANO. A signed 64-bit number holds nine billion units."""
MOST = 9_000_000_000 * NANO
_MILLION = 1_000_000
_PICO_OF_NANO = 1_000


def parse_amount(text: str) -> int:
    """`50`, `0.25` as an amount. Raises ValueError for what is negative, too large, or finer than a billionth."""
    units = _decimal(text)
    if not 0 <= units <= MOST // NANO:  # first: `9e999999` as a whole number takes a minute
        raise ValueError("is not between 0 and 9 billion")
    amount = units * NANO
    if amount != int(amount):
        raise ValueError("is finer than a billionth")
    return int(amount)


def parse_price(text: str) -> int:
    """A price per million tokens, as providers write it (`0.15`), as trillionths per token.

    Raises ValueError for what is negative, over a million, or finer than a millionth of the unit for a million tokens.
    """
    units = _decimal(text)
    if not 0 <= units <= _MILLION:
        raise ValueError("is not between 0 and a million")
    price = units * _MILLION
    if price != int(price):
        raise ValueError("is finer than a millionth for a million tokens")
    return int(price)


def cost_of(*tokens_and_prices: tuple[int, int]) -> int:
    """What tokens cost at their prices (`parse_price`), as an amount, rounded up: what is used is never free."""
    pico = 0
    for tokens, price in tokens_and_prices:
        pico += tokens * price
    return rounded_up(pico)


def rounded_up(pico: int) -> int:
    """Trillionths of the unit as an amount."""
    return -(-pico // _PICO_OF_NANO)


def shown_amount(amount: int) -> str:
    """For people: at least two digits behind the point, and as many as it has."""
    return _shown(Decimal(amount) / NANO)


def shown_price(price: int) -> str:
    """Per million tokens, as `parse_price` reads it."""
    return _shown(Decimal(price) / _MILLION)


def _shown(value: Decimal) -> str:
    whole, _, rest = f"{value:f}".partition(".")
    return f"{whole}.{rest.rstrip('0'):0<2}"


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError("is no number") from None
    if not value.is_finite():
        raise ValueError("is no number")
    return value
