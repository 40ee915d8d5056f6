"""Budgets around the requests of a data listener: what is reserved, what is refused, and what each end comes to."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest

from pointsman.core.attempts import Chain, Member
from pointsman.core.budget import Budget, BudgetRefusal, BudgetScope, BudgetUnit, BudgetWindow, Charge, Hold
from pointsman.core.caller import KEY, Caller
from pointsman.core.model_table import Entry, ModelTable, Target
from pointsman.core.money import NANO
from pointsman.core.price import Price, PriceTable
from pointsman.core.quota import LedgerUnavailable
from pointsman.core.token_digest import digest_of
from pointsman.gateway.stages.budgets import BudgetStages
from pointsman.proxy.memory_budgets import MemoryBudgetLedger
from pointsman.proxy.stages import Stages
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer, post
from tests.support.upstream import Upstream

MESSAGES = b"/v1/messages"
USAGE = b'{"usage":{"prompt_tokens":11,"completion_tokens":5}}'
PRICES = PriceTable(1, {("openai-1", "real-model"): Price("openai-1", "real-model", 1_000_000, 4_000_000)})
"""A millionth for a token in, four for one out."""


def budget(
    amount: int, unit: BudgetUnit = BudgetUnit.REQUESTS, window: BudgetWindow = BudgetWindow.TOTAL, **more: Any
) -> Budget:
    made = Budget("default", "all", BudgetScope.ACCOUNT, "", unit, amount, window, id="all")
    return replace(made, **more)


class OnTwoBudgets(MemoryBudgetLedger):
    """Counts, until it cannot."""

    is_away = False

    async def reserve(self, account: str, charges: Sequence[Charge], now: float) -> Hold | BudgetRefusal:
        if self.is_away and any(each.limit is not None for each in charges):
            raise LedgerUnavailable("budgets cannot be counted: the disk is full")
        return await super().reserve(account, charges, now)


class Budgeted:
    """A listener with budgets, its upstream played by the test."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.budgets: Mapping[str, Sequence[Budget]] = {}
        self.ledger = OnTwoBudgets()
        self.said: list[str] = []
        self.prices = PRICES
        direct = candidate(upstream.url, route="fast", provider="openai-1")
        off = candidate("http://127.0.0.1:1/v1", route="off", provider="openai-1")
        members = (Member("p0", off), Member("openai-1", direct))
        targets: dict[str, Target] = {
            "fast": direct,
            "off": off,
            "chain": Chain("default", "chain", members, "in_order"),
        }
        self.door = DataDoor(table=ModelTable(targets))
        stages = BudgetStages(lambda: self.budgets, self.ledger, self.said.append, time.time, lambda _: self.prices)
        self.door.stages = Stages(budget_reserve=stages.reserve, budget_settle=stages.settle)

    def of(self, *budgets: Budget) -> None:
        self.budgets = {"default": budgets}

    def used(self, name: str = "all") -> int:
        """Of a budget, in all windows, once what has ended is settled."""

        async def look() -> int:
            for _ in range(20):
                await asyncio.sleep(0)
            return sum(amount for key, amount in self.ledger.used.items() if key[0] == name)

        return self.door.call(look())

    def refused(self, body: Mapping[str, Any], path: bytes = b"/v1/chat/completions") -> Answer:
        with self.door.connect() as client:
            client.send(post(json.dumps(body).encode(), path))
            return client.answer()

    def answered(
        self, body: Mapping[str, Any], answer: bytes = USAGE, path: bytes = b"/v1/chat/completions", fields: bytes = b""
    ) -> Answer:
        with self.door.connect() as client:
            client.send(post(json.dumps(body).encode(), path, fields))
            peer = self.upstream.accept()
            peer.request()
            peer.respond(answer, b"Content-Type: application/json\r\nConnection: close\r\n")
            return client.answer()


@pytest.fixture
def budgeted(upstream: Upstream) -> Iterator[Budgeted]:
    budgeted = Budgeted(upstream)
    with budgeted.door:
        yield budgeted
    assert not budgeted.door.leftover
    assert budgeted.said == []


ASK = {"model": "fast"}


def test_of_three_requests_two_have_room_and_the_third_never_reaches_the_upstream(
    budgeted: Budgeted, upstream: Upstream
) -> None:
    budgeted.of(budget(2))
    assert [budgeted.answered(ASK).status for _ in range(2)] == [200, 200]
    answer = budgeted.refused(ASK)
    assert (answer.status, answer.value(b"x-should-retry"), answer.value(b"retry-after")) == (429, b"false", None)
    assert json.loads(answer.body) == {
        "error": {
            "message": "the budget 'all' has no room for this request; ask whoever runs this gateway for more",
            "type": "insufficient_quota",
            "param": None,
            "code": "insufficient_quota",
        }
    }
    assert upstream.saw_nothing()
    assert budgeted.used() == 2


def test_a_window_that_ends_is_told_in_seconds_and_as_a_moment(budgeted: Budgeted) -> None:
    budgeted.of(budget(1, window=BudgetWindow.DAY, name="team"))
    budgeted.answered(ASK)
    answer = budgeted.refused(ASK)
    wait = int(answer.value(b"retry-after") or b"0")
    assert 0 < wait <= 86_400
    message = json.loads(answer.body)["error"]["message"]
    assert message.startswith("the budget 'team' has no room for this request until 20")
    assert message.endswith("T00:00:00Z")


def test_anthropics_clients_get_their_own_error_object(budgeted: Budgeted) -> None:
    budgeted.of(budget(1, window=BudgetWindow.HOUR))
    budgeted.answered(ASK)
    answer = budgeted.refused({**ASK, "max_tokens": 9}, MESSAGES)
    assert (answer.status, answer.value(b"x-should-retry")) == (429, b"false")
    error = json.loads(answer.body)
    assert (error["type"], error["error"]["type"]) == ("error", "rate_limit_error")
    assert 1 <= int(answer.value(b"retry-after") or b"0") <= 3600


def test_a_refusal_is_in_the_event_log_with_its_reason(budgeted: Budgeted) -> None:
    budgeted.of(budget(0))
    budgeted.refused(ASK)
    assert "insufficient_quota" in budgeted.door.logged()
    assert [each.get("reason") for each in budgeted.door.ended()][-1] == "insufficient_quota"


def test_tokens_are_reserved_from_the_body_and_replaced_by_what_was_used(budgeted: Budgeted) -> None:
    body = {"model": "fast", "max_tokens": 100}
    worst = -(-len(json.dumps(body)) // 3) + 100
    budgeted.of(budget(worst, BudgetUnit.TOKENS))
    assert budgeted.answered(body).status == 200
    assert budgeted.used() == 16
    answer = budgeted.refused(body)
    assert answer.status == 429
    assert "; a lower max_tokens may fit" in json.loads(answer.body)["error"]["message"]
    budgeted.of(budget(worst + 16, BudgetUnit.TOKENS))
    assert budgeted.answered(body).status == 200


def test_a_request_that_can_never_fit_is_told_what_it_may_come_to(budgeted: Budgeted) -> None:
    budgeted.of(budget(1000, BudgetUnit.TOKENS, BudgetWindow.DAY))
    answer = budgeted.refused(ASK)
    told = (
        "this request may come to 4102 tokens, and all of the budget 'all' is 1000 tokens; a lower max_tokens may fit"
    )
    assert (json.loads(answer.body)["error"]["message"], answer.value(b"retry-after")) == (told, None)


def test_money_is_what_tokens_cost_at_the_accounts_prices(budgeted: Budgeted) -> None:
    budgeted.of(budget(NANO, BudgetUnit.MONEY))
    assert budgeted.answered(ASK).status == 200
    assert budgeted.used() == (11 * 1 + 5 * 4) * NANO // 1_000_000
    budgeted.prices = PriceTable()
    assert budgeted.answered(ASK).status == 200
    assert budgeted.used() == 31 * NANO // 1_000_000


def test_an_answer_without_counts_is_reckoned_from_its_bytes(budgeted: Budgeted) -> None:
    budgeted.of(budget(10_000, BudgetUnit.TOKENS))
    assert budgeted.answered(ASK, b"x" * 401).status == 200
    assert budgeted.used() == -(-len(json.dumps(ASK)) // 4) + 101


def test_only_counting_tokens_uses_none(budgeted: Budgeted) -> None:
    budgeted.of(budget(1, BudgetUnit.TOKENS), budget(5, id="requests"))
    answer = budgeted.answered(ASK, b'{"input_tokens":9}', MESSAGES + b"/count_tokens")
    assert (answer.status, budgeted.used(), budgeted.used("requests")) == (200, 0, 1)


def test_what_nobody_answered_is_given_back(budgeted: Budgeted) -> None:
    budgeted.of(budget(1))
    assert [budgeted.refused({"model": "off"}).status for _ in range(3)] == [503, 503, 503]
    assert budgeted.refused({"model": "nobody"}).status == 404
    assert budgeted.used() == 0


def test_a_chain_counts_one_request_and_its_dearest_member_is_reserved(budgeted: Budgeted) -> None:
    dear = Price("openai-1", "dear", 0, 0, request=NANO)
    budgeted.prices = PriceTable(2, {**PRICES.prices, ("openai-1", "dear"): dear})
    member = Member("dear", candidate(budgeted.upstream.url, model="dear", provider="openai-1"))
    chain = budgeted.door.table.targets["chain"]
    assert isinstance(chain, Chain)
    targets: dict[str, Target] = {"chain": chain, "dear": replace(chain, members=(*chain.members, member))}
    budgeted.door.table = ModelTable(targets)
    budgeted.of(budget(NANO - 1, BudgetUnit.MONEY), budget(5, id="requests"))
    assert budgeted.refused({"model": "dear"}).status == 429
    assert budgeted.answered({"model": "chain"}).status == 200
    assert (budgeted.used(), budgeted.used("requests")) == (31 * NANO // 1_000_000, 1)


def test_an_upstreams_own_error_is_a_request_that_used_no_tokens(budgeted: Budgeted, upstream: Upstream) -> None:
    budgeted.of(budget(10_000, BudgetUnit.TOKENS), budget(5, id="requests"))
    with budgeted.door.connect() as client:
        client.send(post(json.dumps(ASK).encode()))
        peer = upstream.accept()
        peer.request()
        peer.send(b"HTTP/1.1 400 X\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        assert client.answer().status == 400
    assert (budgeted.used(), budgeted.used("requests")) == (0, 1)


def test_a_stream_that_is_cut_is_counted_once_by_what_came_of_it(budgeted: Budgeted, upstream: Upstream) -> None:
    budgeted.of(budget(10_000, BudgetUnit.TOKENS), budget(5, id="requests"))
    body = {"model": "fast", "stream": True, "max_tokens": 50}
    with budgeted.door.connect() as client:
        client.send(post(json.dumps(body).encode()))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b'data: {"usage":{"input_tokens":7,"output_tokens":1}}\n\n')
        peer.chunk(b"data: " + b"x" * 300 + b"\n\n")
        peer.close()
        client.answer()
    used = budgeted.used()
    assert 7 + 3 <= used <= 7 + 6
    assert budgeted.used("requests") == 1


FINISHED = b'data: {"choices":[{"finish_reason":"stop"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":7,%b}}\n\n'


@pytest.mark.parametrize(
    ("last", "tokens"),
    [
        (FINISHED % b'"completion_tokens":2', 9),
        (FINISHED.replace(b'"stop"', b"null") % b'"completion_tokens":2', 7 + 5),
        (FINISHED % b'"total_tokens":9', 7 + 5),
    ],
)
def test_a_stream_that_is_cut_after_it_has_said_why_it_ends_is_counted_as_its_upstream_told(
    budgeted: Budgeted, upstream: Upstream, last: bytes, tokens: int
) -> None:
    budgeted.of(budget(10_000, BudgetUnit.TOKENS))
    with budgeted.door.connect() as client:
        client.send(post(b'{"model":"fast","stream":true,"max_tokens":50}'))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b"data: " + b"x" * (492 - len(last)) + b"\n\n")
        peer.chunk(last)
        peer.close()
        client.answer()
    assert budgeted.used() == tokens


def test_a_body_that_is_cut_after_its_usage_is_counted_as_its_upstream_told(
    budgeted: Budgeted, upstream: Upstream
) -> None:
    budgeted.of(budget(10_000, BudgetUnit.TOKENS))
    with budgeted.door.connect() as client:
        client.send(post(json.dumps(ASK).encode()))
        peer = upstream.accept()
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n" + USAGE)
        peer.close()
        client.answer()
    assert budgeted.used() == 16


def test_a_client_that_leaves_before_the_answer_has_used_its_prompt(budgeted: Budgeted, upstream: Upstream) -> None:
    budgeted.of(budget(10_000, BudgetUnit.TOKENS), budget(5, id="requests"))
    with budgeted.door.connect() as client:
        client.send(post(json.dumps(ASK).encode()))
        upstream.accept().request()
    budgeted.door.ended()
    assert (budgeted.used(), budgeted.used("requests")) == (-(-len(json.dumps(ASK)) // 4), 1)


def test_a_client_that_leaves_while_nothing_was_sent_has_used_nothing(budgeted: Budgeted, upstream: Upstream) -> None:
    never = candidate(upstream.url.replace("http:", "https:"), route="fast", provider="openai-1")  # no handshake ends
    chain = Chain("default", "chain", (Member("a", never),), "in_order")
    budgeted.door.table = ModelTable({"fast": never, "chain": chain})
    budgeted.of(budget(5))
    for model in ("fast", "chain"):
        with budgeted.door.connect() as client:
            client.send(post(b'{"model":"%b"}' % model.encode()))
            upstream.accept()
    budgeted.door.ended(2)
    assert budgeted.used() == 0


def test_a_key_is_counted_by_itself_and_other_accounts_not_at_all(budgeted: Budgeted) -> None:
    for name, account in (("ada", "default"), ("bob", "default"), ("eve", "team")):
        caller = Caller(account, name, KEY)
        budgeted.door.keys[digest_of(name)] = Entry(caller, budgeted.door.table)
    budgeted.of(budget(1, scope=BudgetScope.KEY, subject="*"))
    for name in ("ada", "bob", "eve", "eve"):
        assert budgeted.answered(ASK, fields=f"Authorization: Bearer {name}\r\n".encode()).status == 200
    assert budgeted.answered(ASK).status == 200  # without a key
    with budgeted.door.connect() as client:
        client.send(post(b'{"model":"fast"}', fields=b"Authorization: Bearer ada\r\n"))
        assert client.answer().status == 429
    assert budgeted.used() == 2


@pytest.mark.guarantee("B3")
def test_when_nothing_can_be_counted_hard_budgets_are_closed_and_soft_ones_open(
    budgeted: Budgeted, upstream: Upstream
) -> None:
    budgeted.ledger.is_away = True
    budgeted.of(budget(5), budget(5, id="soft", is_hard=False))
    answer = budgeted.refused(ASK)
    assert (answer.status, answer.value(b"retry-after"), answer.value(b"x-should-retry")) == (503, b"1", None)
    assert json.loads(answer.body)["error"]["code"] == "budget_uncounted"
    assert upstream.saw_nothing()
    assert "the disk is full" in budgeted.door.logged()
    budgeted.of(budget(5, id="soft", is_hard=False))
    assert budgeted.answered(ASK).status == 200
    assert budgeted.used("soft") == 1


@pytest.mark.guarantee("B4")
def test_a_soft_budget_refuses_nothing(budgeted: Budgeted) -> None:
    budgeted.of(budget(1, is_hard=False))
    assert [budgeted.answered(ASK).status for _ in range(3)] == [200] * 3
    assert budgeted.used() == 3


def test_a_change_of_budgets_holds_for_the_next_request(budgeted: Budgeted) -> None:
    budgeted.of(budget(0))
    assert budgeted.refused(ASK).status == 429
    budgeted.of(budget(1))
    assert budgeted.answered(ASK).status == 200
    budgeted.budgets = {}
    assert budgeted.answered(ASK).status == 200
    assert budgeted.used() == 1


@pytest.mark.guarantee("B3")
def test_the_vendors_libraries_do_not_repeat_what_a_budget_refuses(budgeted: Budgeted, upstream: Upstream) -> None:
    budgeted.of(budget(1, window=BudgetWindow.MONTH))
    budgeted.answered(ASK)
    host, port = budgeted.door.address
    greet: Any = [{"role": "user", "content": "Hello?"}]
    with openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="x") as client:
        for stream in (False, True):
            with pytest.raises(openai.RateLimitError, match="has no room for this request until") as caught:
                client.chat.completions.create(model="fast", messages=greet, stream=stream)
            assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
        with pytest.raises(openai.RateLimitError):
            client.responses.create(model="fast", input="Hello?")
    refused = pytest.raises(anthropic.RateLimitError, match="has no room for this request until")
    with anthropic.Anthropic(base_url=f"http://{host}:{port}", api_key="x") as claude, refused:
        claude.messages.create(model="fast", max_tokens=9, messages=greet)
    assert len([each for each in budgeted.door.ended(5) if each["event"] == "infer_failed"]) == 4
    assert upstream.saw_nothing()
