"""What is told of a change: what differs, in one spelling, and of what is secret a word."""

import ipaddress
import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pointsman.core.audited import LONGEST_TEXT, changed_records, revision_of, told
from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.money import NANO
from pointsman.core.price import Price, PriceChange
from pointsman.core.secret import Secret
from tests.conformance.records import chain, key, provider, route, runner, token
from tests.support.canary import KEY, Finder


def texts(before: object | None, after: object | None) -> tuple[Any, Any]:
    left, right = told(before, after)
    return json.loads(left or "null"), json.loads(right or "null")


def test_of_a_new_record_all_that_somebody_said_is_told() -> None:
    assert texts(None, route()) == (
        None,
        {
            "provider_name": "openai-1",
            "model": "gpt-x",
            "timeout_seconds": 7,
            "version": 0,
            "kind": "direct",
            "request_timeout_seconds": 0,
            "via_gateway": False,
            "forwards_model": False,
        },
    )
    before, after = texts(None, chain())
    assert before is None
    assert after["candidates"][1] == {"provider_name": "groq_1", "model": 'a "quoted" model'}


def test_of_a_record_that_is_gone_the_same_is_told_on_the_other_side() -> None:
    assert texts(route(), None) == tuple(reversed(texts(None, route())))


def test_of_a_changed_record_what_differs_is_told_and_what_became_empty_too() -> None:
    assert texts(chain(), replace(chain(), fallback="", version=4)) == (
        {"fallback": "local", "version": 0},
        {"fallback": "", "version": 4},
    )
    assert texts(route(), route()) == ({}, {})


def test_a_map_is_told_by_the_entries_that_differ() -> None:
    old = provider()
    new = replace(old, config={"Z": "other", "ü": "😀", "NEW": "1"})
    assert texts(old, new) == (
        {"config": {"Z": "last given first", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}},
        {"config": {"Z": "other", "NEW": "1"}},
    )


def test_credentials_are_told_by_name_and_word() -> None:
    old = replace(provider(), credentials={"A": Secret(KEY), "B": Secret("b"), "C": Secret("c")})
    new = replace(old, credentials={"A": Secret(KEY + "x"), "B": Secret("b"), "D": Secret("d")})
    assert texts(old, new) == (
        {"credentials": {"A": "set", "C": "set"}},
        {"credentials": {"A": "changed", "C": "removed", "D": "set"}},
    )
    assert texts(None, old)[1]["credentials"] == {"A": "set", "B": "set", "C": "set"}


def test_a_new_token_of_a_runner_is_told_by_a_word() -> None:
    assert texts(runner(), replace(runner(), token_digest=b"x")) == ({"token": "set"}, {"token": "changed"})


@pytest.mark.guarantee("W2")
def test_no_secret_and_no_digest_is_in_any_text() -> None:
    finder = Finder({"key": KEY})
    holder = replace(provider(), credentials={"A": Secret(KEY)})
    digest = bytes(range(32))
    held = (
        holder,
        *(replace(each, digest=digest) for each in (key(), token())),
        replace(runner(), token_digest=digest),
    )
    for record in held:
        for text in (*told(None, record), *told(record, None)):
            assert finder.find(text.encode()) == []
            assert digest.hex()[:8] not in text


@dataclass(frozen=True, slots=True)
class Foreign:
    name: str
    value: object


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    effect: str = "deny"
    pattern: str = ""


def test_of_a_list_of_records_with_ids_those_that_differ_are_told_and_their_order() -> None:
    old = Foreign("n", (Rule("a"), Rule("b"), Rule("c")))
    assert texts(old, Foreign("n", (Rule("a"), Rule("b", "flag"), Rule("c")))) == (
        {"value": {"b": {"effect": "deny"}}},
        {"value": {"b": {"effect": "flag"}}},
    )
    assert texts(old, Foreign("n", (Rule("c"), Rule("a"), Rule("b")))) == (
        {"value": {"(order)": ["a", "b", "c"]}},
        {"value": {"(order)": ["c", "a", "b"]}},
    )
    before, after = texts(old, Foreign("n", (Rule("a"), Rule("b"))))
    assert set(before["value"]) == {"(order)", "c"}
    assert set(after["value"]) == {"(order)"}


def test_a_map_by_pairs_is_told_by_both() -> None:
    assert texts(Foreign("n", {("groq", "m"): 1}), Foreign("n", {("groq", "m"): 2})) == (
        {"value": {"groq/m": 1}},
        {"value": {"groq/m": 2}},
    )


def test_a_zero_and_a_no_are_told() -> None:
    assert texts(None, Foreign("n", 0)) == (None, {"value": 0})
    assert texts(None, Foreign("n", False)) == (None, {"value": False})
    assert texts(Foreign("n", None), Foreign("n", 0)) == ({"value": None}, {"value": 0})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Secret("hidden!"), "set"),
        (b"hidden!", "set"),
        (memoryview(b"hidden!"), "set"),
        ((Secret("hidden!"), "a"), ["set", "a"]),
        ({"a": {"b": Secret("hidden!")}}, {"a": {"b": "set"}}),
        (Foreign("n", Secret("hidden!")), {"name": "n", "value": "set"}),
    ],
)
def test_a_secret_is_a_word_wherever_a_record_keeps_it(value: object, shown: object) -> None:
    assert texts(None, Foreign("n", value))[1] == {"value": shown}
    assert "hidden" not in "".join(told(Foreign("n", value), Foreign("n", b"hidden?")))


def test_a_value_that_has_no_words_is_an_error() -> None:
    with pytest.raises(TypeError, match="object cannot be told"):
        told(None, Foreign("n", object()))
    with pytest.raises(TypeError, match="str is no record"):
        told(None, "text")


@pytest.mark.parametrize("more", [0, 1])
def test_a_long_text_is_told_by_its_beginning_and_its_hash(more: int) -> None:
    (_, after) = texts(None, Foreign("n", "x" * (LONGEST_TEXT + more)))
    assert after["value"].startswith("x" * LONGEST_TEXT)
    rest = after["value"][LONGEST_TEXT:]
    assert rest.startswith(f"… ({LONGEST_TEXT + 1} characters, SHA-256 ") if more else not rest


def test_texts_are_ascii_whatever_a_record_holds() -> None:
    assert told(None, Foreign("n", "ü\0\ud800"))[1] == '{"value":"\\u00fc\\u0000\\ud800"}'


def test_of_many_records_those_that_differ_are_told() -> None:
    before = {"route a": route("a"), "route b": route("b"), "route c": route("c")}
    after = {"route a": route("a"), "route b": replace(route("b"), model="other"), "route d": route("d")}
    left, right = map(json.loads, changed_records(before, after))
    assert left["route b"] == {"model": "gpt-x"}
    assert right["route b"] == {"model": "other"}
    assert (set(left), set(right)) == ({"route b", "route c"}, {"route b", "route d"})
    assert revision_of(before) != revision_of(after) != revision_of({}) != revision_of(before)
    assert revision_of(before) == revision_of(dict(before))


def test_a_network_is_told_as_it_is_written_however_large_it_is() -> None:
    networks = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32"))
    assert texts(None, replace(key(), networks=networks))[1]["networks"] == ["10.0.0.0/8", "2001:db8::/32"]


def test_money_prices_and_times_are_told_as_commands_write_them() -> None:
    money = Budget("default", "month", BudgetScope.ACCOUNT, "", BudgetUnit.MONEY, 50 * NANO, BudgetWindow.MONTH)
    assert texts(None, money)[1]["amount"] == "50.00"
    assert texts(None, replace(money, unit=BudgetUnit.TOKENS, amount=50))[1]["amount"] == 50
    change = PriceChange("default", 1, 1.7e9, Price("work", "gpt", 150_000, 600_000, None, NANO))
    assert texts(None, change)[1] == {
        "version": 1,
        "at": "2023-11-14T22:13:20Z",
        "price": {
            "provider": "work", "model": "gpt", "input": "0.15", "output": "0.60", "cached_input": None,
            "request": "1.00",
        },
        "is_removed": False,
    }  # fmt: skip
    assert texts(key(), replace(key(), revoked_at=1.7e9)) == (
        {"revoked_at": None},
        {"revoked_at": "2023-11-14T22:13:20Z"},
    )
