"""Prices and usage over gRPC, by command and over HTTP, on a real store."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pointsman.core.control_errors import InvalidRequest, NotFound, NotPossibleNow
from pointsman.core.money import NANO
from pointsman.core.price import Price, PriceChange
from pointsman.core.usage_row import REPORTED, UsageRow
from pointsman.gateway.prices import MOST_CHANGES, MOST_PRICES, PriceDraft
from tests.support.client_commands import run_client
from tests.support.control_plane import ADMIN_TOKEN, RunningControlPlane, control_plane
from tests.support.rest import RunningApi, rest_api


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        running.provide()
        yield running


@pytest.fixture
def api(tmp_path: Path) -> Iterator[RunningApi]:
    with rest_api(tmp_path) as api:
        yield api


def command(running: RunningControlPlane, tmp_path: Path, *arguments: str) -> Result:
    token_file = tmp_path / "admin.token"
    if not token_file.exists():
        token_file.touch(0o600)
        token_file.write_text(ADMIN_TOKEN)
    return run_client(f"http://127.0.0.1:{running.port}", *arguments, "--token-file", str(token_file))


def done(running: RunningControlPlane, tmp_path: Path, *arguments: str) -> str:
    result = command(running, tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def set_price(running: RunningControlPlane, model: str = "*", **changes: str) -> int:
    draft = PriceDraft("mocked", model, **{"input": "0.15", "output": "0.60", **changes})
    return running.call(running.control.prices.set("default", draft)).version


def used(at: float, **changes: Any) -> UsageRow:
    made = UsageRow("default", "r-1", at, "fast", "mocked", "gpt-x", 200, 10, 5, usage_source=REPORTED, cost=NANO // 2)
    return made._replace(**changes)


def test_a_change_makes_a_version_and_the_same_again_makes_none(running: RunningControlPlane) -> None:
    prices = running.control.prices
    assert [set_price(running), set_price(running), set_price(running, input="0.2"), set_price(running, "m")] == [
        1, 1, 2, 3,
    ]  # fmt: skip
    assert running.call(prices.delete("default", "mocked", "m"))
    assert not running.call(prices.delete("default", "mocked", "m"))
    table = running.call(prices.table("default"))
    assert (table.version, list(table.prices.values())) == (4, [Price("mocked", "*", 200_000, 600_000)])
    history = running.call(prices.history("default", 10, 2**62))
    assert [(each.version, each.is_removed) for each in history] == [(4, True), (3, False), (2, False), (1, False)]
    assert [line for line in running.lines if "prices of default" in line] == [
        "prices of default: version 1: mocked is priced",
        "prices of default: version 2: mocked is priced",
        "prices of default: version 3: mocked=m is priced",
        "prices of default: version 4: mocked=m has no price any more",
    ]


@pytest.mark.parametrize(
    ("draft", "error", "problem"),
    [
        (PriceDraft("mocked", "*", "-1", "1"), InvalidRequest, "input price '-1' is not between 0 and a million"),
        (PriceDraft("mocked", "*", "1", "much"), InvalidRequest, "output price 'much' is no number"),
        (PriceDraft("mocked", "*", "1", "1", "0.0000001"), InvalidRequest, "finer than a millionth"),
        (PriceDraft("mocked", "*", "1", "1", "", "x"), InvalidRequest, "price of a request 'x' is no number"),
        (PriceDraft("", "*", "1", "1"), InvalidRequest, "name the provider"),
        (PriceDraft("mocked", 257 * "m", "1", "1"), InvalidRequest, "longer than 256"),
        (PriceDraft("nobody", "*", "1", "1"), NotFound, "no provider 'nobody'; see: pointsman provider list"),
        (PriceDraft("runner:nobody", "*", "1", "1"), NotFound, "no runner 'nobody'"),
        (PriceDraft("direct:none", "*", "1", "1"), NotFound, "no model 'none'"),
    ],
)
def test_what_cannot_be_a_price_is_refused_with_the_next_step(
    running: RunningControlPlane, draft: PriceDraft, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        running.call(running.control.prices.set("default", draft))
    assert running.call(running.control.prices.table("default")).version == 0


async def _priced(running: RunningControlPlane, count: int) -> None:
    async with running.store.write() as writer:
        for version in range(1, count + 1):
            price = Price("mocked", f"m{version}", 1, 1)
            await writer.insert_price_change(PriceChange("default", version, 1.0, price))


def test_an_account_has_a_thousand_prices_and_no_more(running: RunningControlPlane) -> None:
    running.call(_priced(running, MOST_PRICES - 1))
    set_price(running, "the last one")
    with pytest.raises(NotPossibleNow, match="1000 prices"):
        set_price(running, "another")
    set_price(running, "m1", input="9")


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_page_of_the_history_has_a_thousand_changes_at_most(
    running: RunningControlPlane, tmp_path: Path, more: int
) -> None:
    running.call(_priced(running, MOST_CHANGES + more))
    told = json.loads(done(running, tmp_path, "price", "history", "-o", "json"))
    assert len(told) == min(MOST_CHANGES, MOST_CHANGES + more)


def test_commands_set_list_and_delete_prices(running: RunningControlPlane, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        return done(running, tmp_path, "price", *arguments)

    assert "price set --help" in run("list")
    assert "price set --help" in run("history")
    made = run(
        "set",
        "mocked=a=b",
        "--input-price",
        "0.15",
        "--output-price",
        "0.6",
        "--cached-price",
        "0.075",
        "--request-price",
        "2",
    )
    assert made == "Price of mocked=a=b: 0.15 in, 0.60 out, a million tokens (version 1)\n"
    run("set", "mocked", "--input-price", "2.5", "--output-price", "10")
    assert [line.split() for line in run("list").splitlines()[1:]] == [
        ["mocked", "*", "2.50", "10.00", "-", "-"],
        ["mocked", "a=b", "0.15", "0.60", "0.075", "2.00"],
    ]
    listed = json.loads(run("list", "-o", "json"))
    assert (listed["version"], listed["prices"][0]["cached_input"]) == (2, None)
    assert run("delete", "mocked=a=b") == "Deleted the price of mocked=a=b\n"
    assert command(running, tmp_path, "price", "delete", "mocked=a=b").exit_code == 1
    assert [line.split()[0] for line in run("history").splitlines()] == ["VERSION", "3", "2", "1"]
    assert json.loads(run("history", "-o", "json"))[0]["removed"]


def test_usage_is_shown_as_a_table_as_json_and_as_csv(running: RunningControlPlane, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        return done(running, tmp_path, "usage", *arguments)

    now = running.control.clock()
    assert "No requests in this time" in run()
    rows = [used(now - 60), used(now - 40 * 86_400), used(now - 60, model="=1+1", cost=None)]
    running.call(running.control.store.append_usage(rows))
    assert [line.split() for line in run("--by", "model").splitlines()[:2]] == [
        ["MODEL", "REQUESTS", "FAILED", "PROMPT", "COMPLETION", "CACHED", "REASONING", "COST"],
        ["gpt-x", "1", "0", "10", "5", "0", "0", "0.50"],
    ]
    assert "1 requests had no price" in run("--by", "model")
    [key] = json.loads(run("--by", "key", "--since", "50d", "-o", "json"))
    assert (key["key"], key["requests"], key["cost"], key["total_tokens"], key["unpriced"]) == ("", 3, "1.00", 45, 1)
    [head, *lines] = list(csv.reader(run("--by", "model", "-o", "csv").splitlines()))
    assert head[:2] == ["model", "requests"]
    assert [line[0] for line in lines] == ["gpt-x", "'=1+1"]
    assert "No requests" in run("--since", "30d", "--until", "1h")
    [head, dear, cheap] = [line.split() for line in run("--by", "day,key,model").splitlines()[:3]]
    assert (head[:4], dear[2:4], cheap[2:4]) == (["DAY", "KEY", "MODEL", "REQUESTS"], ["gpt-x", "1"], ["=1+1", "1"])
    assert list(json.loads(run("--by", "key,day", "-o", "json"))[0])[:3] == ["key", "day", "requests"]
    for wrong in (("--since", "never"), ("--by", "colour"), ("--since", "1h", "--until", "2h")):
        assert command(running, tmp_path, "usage", *wrong).exit_code != 0


def test_over_http_prices_are_set_told_and_deleted(api: RunningApi) -> None:
    api.running.provide()
    body = {"provider": "mocked", "model": "gpt-x", "input": "0.15", "output": "0.60"}
    made = api.put("/prices", body)
    told = {**body, "cached_input": None, "request": None}
    assert (made.status, made.json["version"], made.json["price"]) == (200, 1, told)
    assert api.get("/prices").json == {"version": 1, "prices": [told]}
    assert api.put("/prices", {**body, "input": "x"}).status == 400
    assert api.put("/prices", {**body, "provider": "nobody"}).status == 404
    assert api.delete("/prices/mocked?model=gpt-x").json == {"deleted": True}
    assert api.delete("/prices/mocked?model=gpt-x").status == 404
    changes = api.get("/price-changes").json["changes"]
    assert [(each["version"], each["removed"]) for each in changes] == [(2, True), (1, False)]
    assert [each["version"] for each in api.get("/price-changes?before=2&limit=1").json["changes"]] == [1]


def test_over_http_usage_is_told_by_sums_and_by_pages(api: RunningApi) -> None:
    now = api.running.control.clock()
    rows = [used(now - number, request_id=f"r-{number}") for number in range(3)]
    api.running.call(api.running.control.store.append_usage(rows))
    answer = api.get("/usage?by=route").json
    assert (answer["by"], answer["usage"][0]["names"], answer["usage"][0]["cost"]) == (["route"], ["fast"], "1.50")
    two = api.get("/usage?by=key,route").json
    assert (two["by"], two["usage"][0]["names"]) == (["key", "route"], ["", "fast"])
    assert [api.get(f"/usage?by={wrong}").status for wrong in ("", "colour", "key,", "key;route")] == [400] * 4
    page = api.get("/usage/rows?limit=2").json
    assert [each["request_id"] for each in page["rows"]] == ["r-0", "r-1"]
    assert (page["rows"][0]["cost"], page["rows"][0]["total_tokens"]) == ("0.50", 15)
    rest = api.get(f"/usage/rows?limit=2&after={page['next']}").json
    assert ([each["request_id"] for each in rest["rows"]], rest["next"]) == (["r-2"], None)
    for wrong in ("after=x", "since=yesterday", "since=2026-11-30T00:00:00", "limit=0", "limit=1001"):
        assert api.get(f"/usage/rows?{wrong}").status == 400, wrong
    assert api.get("/usage?by=colour").status == 400
