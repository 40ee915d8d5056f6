"""Amounts and prices are whole numbers, and nothing is lost on the way from an operator's text."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.money import MOST, NANO, cost_of, parse_amount, parse_price, shown_amount
from pointsman.core.price import Price, PriceTable, Tokens


@pytest.mark.parametrize(
    ("text", "amount"),
    [("50", 50 * NANO), ("0.25", NANO // 4), ("0.000000001", 1), (" 1e3 ", 1000 * NANO), ("9000000000", MOST)],
)
def test_an_amount_is_read_exactly(text: str, amount: int) -> None:
    assert parse_amount(text) == amount


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "0.0000000001", "9000000000.000000001", "1,5"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_amount(text)


@pytest.mark.parametrize("text", ["-0.1", "1000000.000001", "0.0000001", "per token"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_price(text)


@pytest.mark.parametrize("text", ["9e999989", "1e999999", "9e99999", "1e-999999"])
@pytest.mark.parametrize("read", [parse_amount, parse_price])
def test_an_exponent_costs_no_time(text: str, read: Callable[[str], int]) -> None:
    begin = time.thread_time()
    with pytest.raises(ValueError, match="is"):
        read(text)
    assert time.thread_time() - begin < 0.1  # 47 s as a whole number


@given(st.integers(0, MOST))
def test_an_amount_that_is_shown_is_the_amount_that_is_read(amount: int) -> None:
    assert parse_amount(shown_amount(amount)) == amount


def test_tokens_cost_what_a_million_of_them_cost() -> None:
    assert cost_of((1_000_000, parse_price("0.15"))) == parse_amount("0.15")
    assert cost_of((1, parse_price("0.000001"))) == 1, "rounded up"
    assert cost_of((0, parse_price("3"))) == 0


def test_a_models_own_price_goes_before_its_providers_and_none_is_told_from_nothing() -> None:
    own = Price("work", "big", parse_price("3"), parse_price("15"), parse_price("0.3"))
    other = Price("work", "*", parse_price("1"), parse_price("1"))
    table = PriceTable(1, {("work", "big"): own, ("work", "*"): other})
    used = Tokens(input=1_000_000, output=100_000, cached_input=400_000)
    assert table.cost("work", "big", used) == parse_amount("1.8") + parse_amount("0.12") + parse_amount("1.5")
    assert table.cost("work", "small", used) == parse_amount("1.1")
    assert table.cost("home", "big", used) is None
