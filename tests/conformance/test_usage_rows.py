"""Usage rows on their way into either database: batches, an outage, the end, retention."""

import asyncio
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.event_kinds import INFER_CANCELLED
from pointsman.core.money import MOST
from pointsman.core.policy import Effect, PolicyHit
from pointsman.core.price import ANY_MODEL, Price, PriceChange, PriceTable
from pointsman.core.usage_row import ESTIMATED, REPORTED, UsageRow
from pointsman.events.record import Record, StageNotes
from pointsman.gateway.following import Followed
from pointsman.gateway.stages.prices_in_force import PricesInForce
from pointsman.gateway.stages.usage import FORMED_AT_ONCE, WRITTEN_AT_ONCE, UsageRows, keeping, row_of
from pointsman.store.sql import SqlStore
from pointsman.wire.usage import TokenUsage
from tests.support.databases import Database, PostgresServer, postgresql_database
from tests.support.waiting import until

CANDIDATE = Candidate("fast", parse_endpoint("http://127.0.0.1:1/v1"), "real", (), provider="groq")
HIT = PolicyHit("no-shell", Effect.FLAG, "/tools/0")


class Counted:
    """A body that is read at most once, and not before its request has ended."""

    def __init__(self, *counts: int) -> None:
        self.usage_read = 0
        self._usage = TokenUsage(*counts)

    def usage(self) -> TokenUsage | None:
        self.usage_read += 1
        return self._usage

    def finished(self) -> bool:
        return False

    def finish_reason(self, protocol: str) -> str:
        return "stop"


def ended(number: int = 1, time_: float = 1000.0) -> Record:
    record = Record(f"r-{number}", time_, "POST", "/v1/chat/completions", "openai_chat_completions")
    record.caller = Caller("default", "laptop", KEY)
    record.route, record.candidate, record.status, record.attempts = "fast", CANDIDATE, 200, 1
    record.seconds, record.is_answered, record.meter = 0.25, True, Counted(12, -1)
    return record


def rows_in(store: SqlStore, said: list[str], most_waiting: int = 20_000) -> UsageRows:
    return UsageRows(store, said.append, time.time, keep_days=400_000, most_waiting=most_waiting)


async def count(store: SqlStore) -> int:
    async with store.read() as reader:
        return len(await reader.usage("default", 0, 100_000))


@pytest.mark.parametrize(
    ("was_sent", "is_answered", "status", "prompt"),
    [(True, False, 0, 10), (True, False, 403, 10), (False, False, 403, None), (False, True, 403, None)],
)
def test_what_an_upstream_had_before_its_client_had_to_go_used_its_prompt(
    was_sent: bool, is_answered: bool, status: int, prompt: int | None
) -> None:
    record = ended()
    record.was_sent, record.is_answered, record.status = was_sent, is_answered, status
    record.kind, record.meter, record.received = INFER_CANCELLED, None, 40
    row = row_of(record)
    assert (row.prompt_tokens, row.usage_source) == (prompt, "" if prompt is None else ESTIMATED)


def test_a_row_tells_who_asked_for_what_and_what_it_took() -> None:
    record = ended()
    record.meter, record.received, record.sent, record.notes = Counted(12, 3, 8, 2), 40, 80, StageNotes()
    record.notes.hits, record.notes.saved_tokens = (HIT, HIT), 9
    record.notes.budgets, record.notes.client_retries = "team,laptop-day", 1
    record.caller, record.requested_model = Caller("default", "laptop", KEY, "ada"), "gpt-any"
    record.candidate, record.is_fallback = replace(CANDIDATE, ai_model_id="m-1"), True
    record.answer_fields = [(b"Content-Type", b"application/json"), (b"X-Request-Id", b"req_1")]
    prices = PriceTable(5, {("groq", "real"): Price("groq", "real", 1_000_000, 2_000_000, 0)})
    asked = ("default", "r-1", 1000.25, "fast", "groq", "real", 200, 12, 3, 1, 250.0, "laptop", "POST")
    dialect = ("/v1/chat/completions", "openai_chat_completions")
    usual = UsageRow(*asked, *dialect, 8, 2, REPORTED, 10_000, 5, "", 2, 9)
    facts = {"upstream_request_id": "req_1", "finish_reason": "stop", "budgets": "team,laptop-day"}
    whose = usual._replace(key_user="ada", requested_model="gpt-any", ai_model_id="m-1", client_retries=1)
    assert row_of(record, prices) == whose._replace(is_fallback=1, **facts)  # type: ignore[arg-type]  # all are texts
    assert row_of(record).total_tokens == 15
    assert (row_of(record).cost, row_of(record).price_version) == (None, 0)
    refused = ended()
    refused.is_answered, refused.status, refused.meter = False, 503, None
    refused.caller = Caller("default", "laptop", SANDBOX_TOKEN)
    refused.reason, refused.detail = "insufficient_quota", "budget team:\n1 of 1"
    refused.notes = StageNotes()
    refused.notes.refused_budget = "team"
    row = row_of(refused, prices)
    assert (row.refused_budget, row.budgets, row.error_detail) == ("team", "", "budget team:\\x0a1 of 1")
    assert (row.provider, row.model, row.prompt_tokens, row.key_name) == ("", "", None, "sandbox:laptop")
    assert (row.total_tokens, row.usage_source, row.cost, row.reason) == (None, "", None, "insufficient_quota")


def test_what_no_upstream_told_is_estimated_and_costs() -> None:
    record = ended()
    record.meter, record.received, record.sent, record.is_stream = None, 40, 1000, True
    prices = PriceTable(1, {("groq", ANY_MODEL): Price("groq", ANY_MODEL, 1_000_000, 2_000_000)})
    row = row_of(record, prices)
    assert (row.prompt_tokens, row.completion_tokens, row.usage_source, row.cost) == (10, 10, ESTIMATED, 30_000)
    left = ended()
    left.is_answered, left.was_sent, left.status, left.meter, left.received = False, True, 0, None, 40
    left.kind = INFER_CANCELLED
    row = row_of(left, prices)
    assert (row.provider, row.prompt_tokens, row.completion_tokens, row.cost) == ("", 10, 0, 10_000)
    counted = ended()
    counted.path = "/v1/messages/count_tokens"
    assert row_of(counted, prices).total_tokens is None


def test_a_cost_beyond_what_a_database_holds_is_the_most_that_it_holds() -> None:
    record = ended()
    record.meter = Counted(10**15, 10**15)
    dear = Price("groq", "real", 10**12, 10**12)
    assert row_of(record, PriceTable(1, {("groq", "real"): dear})).cost == MOST


def test_a_model_that_a_client_chose_is_made_fit_for_any_database() -> None:
    record = ended()
    record.candidate = replace(CANDIDATE, model="a\0b" + 300 * "x")
    model = row_of(record).model
    assert model.startswith("a\\x00b")
    assert len(model) == 256


def test_a_body_is_read_once_whoever_asks_first() -> None:
    record = ended()
    meter = record.meter
    assert isinstance(meter, Counted)
    record.kinds()
    row_of(record)
    record.kinds()
    assert meter.usage_read == 1
    assert record.usage == TokenUsage(12, -1)


@pytest.mark.parametrize("number", [1, FORMED_AT_ONCE, FORMED_AT_ONCE + 1, WRITTEN_AT_ONCE + 1])
async def test_every_request_has_its_row_soon(database: Database, number: int) -> None:
    said: list[str] = []
    async with database.opened() as store:
        rows = rows_in(store, said)
        async with keeping(rows):
            for each in range(number):
                rows.record(ended(each))
            async with asyncio.timeout(30):
                while await count(store) < number:
                    await asyncio.sleep(0.02)
        async with store.read() as reader:
            found = await reader.usage("default", 0, 100_000)
    assert {row.request_id for row in found} == {f"r-{each}" for each in range(number)}
    assert len(found) == number
    assert (said, rows.lost) == ([], 0)


async def test_what_has_not_been_written_is_written_at_the_end(database: Database) -> None:
    said: list[str] = []
    async with database.opened() as store:
        rows = rows_in(store, said)
        async with keeping(rows):
            rows.record(ended())
        assert await count(store) == 1
        rows.record(ended(2))
        rows.give_up()
    assert rows.lost == 1
    assert said == ["usage: rows lost: 1: the database did not take them before the end"]


async def test_old_rows_go_and_the_others_stay(database: Database) -> None:
    said: list[str] = []
    now = time.time()
    async with database.opened() as store:
        at = [now - 400 * 86_400 - 60, now - 400 * 86_400 + 60, now]
        await store.append_usage([row_of(ended(number, time_)) for number, time_ in enumerate(at)])
        rows = UsageRows(store, said.append, lambda: now, keep_days=400)
        async with keeping(rows):
            await until(lambda: bool(said))
        assert await count(store) == 2
    assert said == ["usage: 1 rows older than 400 days were removed"]


async def test_a_request_is_reckoned_by_the_prices_of_its_end_as_its_budgets_are(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        prices, records = PricesInForce(), Followed(store, print)
        await records.keep(prices, "prices")
        rows = UsageRows(store, print, time.time, keep_days=400_000, prices_of=prices.of_account)
        prices.before_change = rows.form
        for version, nano_per_million in ((1, 10**6), (2, 10**9)):
            async with store.write() as writer:
                price = Price("groq", ANY_MODEL, nano_per_million, 0)
                await writer.insert_price_change(PriceChange("default", version, 1.0, price))
            rows.record(ended(version))
            await records.refresh()
        rows.record(ended(3))
        async with keeping(rows):
            pass
        async with store.read() as reader:
            found = {row.request_id: row for row in await reader.usage("default", 0, 100)}
    assert [(found[f"r-{n}"].price_version, found[f"r-{n}"].cost) for n in (1, 2, 3)] == [
        (0, None),
        (1, 12_000),
        (2, 12_000_000),
    ]


@pytest.mark.guarantee("L4")
def test_rows_wait_while_the_database_is_away_and_too_many_are_counted(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    said: list[str] = []
    database = postgresql_database(own_server, tmp_path)

    async def whole() -> None:
        async with database.opened() as store:
            rows = rows_in(store, said, most_waiting=FORMED_AT_ONCE + 1)
            async with keeping(rows):
                rows.record(ended())
                async with asyncio.timeout(30):
                    while await count(store) < 1:
                        await asyncio.sleep(0.02)
                await asyncio.to_thread(own_server.stop)
                for each in range(2 * FORMED_AT_ONCE):
                    rows.record(ended(each + 2))
                await until(lambda: any("rows wait for the database:" in line for line in said))
                assert rows.lost == FORMED_AT_ONCE - 1
                await asyncio.to_thread(own_server.start)
                await until(lambda: any("written again" in line for line in said))
                assert await count(store) == 1 + FORMED_AT_ONCE + 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())
    assert said[0] == f"usage: {FORMED_AT_ONCE + 1} rows wait for the database; more are lost until it answers"
    assert said[1:] == [said[1], f"usage: rows are written again; {FORMED_AT_ONCE - 1} were lost since the start"]


async def test_rows_that_were_committed_as_the_database_went_are_not_written_twice(database: Database) -> None:
    async with database.opened() as store:
        first = [row_of(ended(number, 1000.0 + number)) for number in range(3)]
        await store.append_usage(first)
        await store.append_usage([*first, row_of(ended(9, 1009.0))], again=True)
        await store.append_usage(first[:1], again=True)
        async with store.read() as reader:
            found = [row.request_id for row in await reader.usage("default", 0, 100)]
    assert sorted(found) == ["r-0", "r-1", "r-2", "r-9"]


def test_a_database_that_stays_away_does_not_keep_a_gateway_from_ending(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    said: list[str] = []
    database = postgresql_database(own_server, tmp_path)

    async def whole() -> UsageRows:
        async with database.opened() as store:
            rows = rows_in(store, said)
            async with keeping(rows):
                await asyncio.to_thread(own_server.stop)
                rows.record(ended())
            return rows

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asyncio.wait_for(whole(), 60)).lost == 1
    assert "rows lost: 1:" in said[-1]


async def test_a_batch_that_no_database_takes_does_not_keep_those_behind_it(sqlite: Database) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        rows = rows_in(store, said)
        async with keeping(rows):
            bad = ended()
            bad.attempts = 2**70
            rows.record(bad)
            await until(lambda: bool(said))
            rows.record(ended(2))
        assert await count(store) == 1
    assert rows.lost == 1
    assert "internal error: OverflowError" in said[0]


async def test_a_request_whose_row_cannot_be_formed_ends_all_the_same(sqlite: Database) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        rows = rows_in(store, said)
        bad = ended()
        bad.caller = None  # type: ignore[assignment]  # a bug of ours
        rows.record(bad)
        rows.record(ended(2))
        async with keeping(rows):
            pass
        assert await count(store) == 1
    assert rows.lost == 1


@pytest.mark.alone
def test_a_row_costs_its_request_less_than_half_a_microsecond_and_the_loop_less_than_seven() -> None:
    """CPU of the loop's thread; the best of a few rounds, for others run too. Writing to a database is not in it."""

    async def best() -> tuple[float, float]:
        noting = forming = math.inf
        for _ in range(10):
            records = [ended(each) for each in range(FORMED_AT_ONCE)]
            rows = UsageRows(None, print, time.time, keep_days=1)  # type: ignore[arg-type]  # not asked
            began = time.thread_time()
            for record in records[:-1]:
                rows.record(record)
            noting = min(noting, (time.thread_time() - began) / len(records))
            began = time.thread_time()
            rows.record(records[-1])
            forming = min(forming, (time.thread_time() - began) / len(records))
        return noting, forming

    noting, forming = asyncio.run(best())
    assert noting < 0.5e-6
    assert forming < 7e-6
