"""`/stats`, `/health/providers` and `/metrics` on the control listener, with a day that had an outage in it."""

import asyncio
import json
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.core.quota_window import Day
from pointsman.events.operations_record import OperationJournal
from pointsman.proxy.live_quotas import LiveQuota
from tests.support.canary import KEY
from tests.support.chain_requests import MIDNIGHT, Journal, a_day_with_an_outage
from tests.support.descriptors import open_paths
from tests.support.gateway_process import GatewayProcess, NotStarted, fetch
from tests.support.ports import free_ports
from tests.support.rest import BEARER, RunningApi, rest_api
from tests.support.watched_api import Watched, watched_api

PATHS = ["/stats/history?date=2026-11-30", "/stats/live", "/health/providers", "/metrics"]
DAY = 86400.0
TODAY = Day("2026-12-01", "2026-12-02", MIDNIGHT, MIDNIGHT + DAY)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with watched_api(tmp_path_factory.mktemp("quiet")) as (running, _):
        yield running


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[RunningApi, Watched]]:
    with watched_api(tmp_path) as made:
        yield made


def history(api: RunningApi, day: str, least: int) -> list[dict[str, object]]:
    """The day's events, once the writer's thread has written them."""
    deadline = time.monotonic() + 20
    while True:
        answer = api.ask("GET", f"/stats/history?date={day}")
        assert answer.status == 200, answer.body
        assert answer.headers["content-type"] == "application/x-ndjson"
        events = [json.loads(line) for line in answer.body.splitlines()]
        if len(events) >= least or time.monotonic() > deadline:
            return events
        time.sleep(0.01)


def test_a_day_of_history_tells_an_outage_and_the_metrics_tell_the_same(api: tuple[RunningApi, Watched]) -> None:
    running, watched = api
    running.running.call(a_day_with_an_outage(watched.journal))
    events = history(running, "2026-11-30", 720 * 3 + 60 * 2 + 420)
    counts = Counter(each["event"] for each in events)
    assert counts == {
        "infer_started": 720,
        "infer_ordering": 720,
        "infer_completed": 720,
        "infer_retried": 60,
        "infer_fallback": 60,
        "rate_limit_hit": 420,
    }
    fallbacks = [each for each in events if each["event"] == "infer_completed" and each["fallback"]]
    assert Counter(each["provider"] for each in fallbacks) == {"gemini": 30, "local": 30}
    assert {str(each["ts"])[11:13] for each in fallbacks} == {"09", "10"}
    assert {each["attempts"] for each in fallbacks} == {3}
    text = running.ask("GET", "/metrics").body.decode()
    totals: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "pointsman_requests_total":
                totals[sample.labels["provider"]] += int(sample.value)
    assert totals == Counter(str(each["provider"]) for each in events if each["event"] == "infer_completed")
    assert KEY not in text


def test_a_day_that_is_left_out_is_today(api: tuple[RunningApi, Watched]) -> None:
    running, watched = api
    running.running.call(a_day_with_an_outage(watched.journal))
    wanted = history(running, "2026-11-30", 720 * 3 + 60 * 2 + 420)
    watched.journal.clock.now = MIDNIGHT - 1
    answer = running.ask("GET", "/stats/history")
    assert [json.loads(line) for line in answer.body.splitlines()] == wanted
    watched.journal.clock.now = MIDNIGHT
    assert running.ask("GET", "/stats/history").status == 404


@pytest.mark.parametrize("path", PATHS)
def test_they_take_the_admins_token(api: tuple[RunningApi, Watched], path: str) -> None:
    running, _ = api
    assert running.ask("GET", path, headers={}).status == 401
    assert running.ask("GET", path, headers=running.sandbox_bearer()).status == 403
    assert running.ask("GET", path).status == 200
    assert running.ask("POST", path, {}).status == 405


def test_metrics_can_be_opened_and_nothing_else_with_them(tmp_path: Path) -> None:
    with watched_api(tmp_path, metrics_are_open=True) as (running, _):
        assert [running.ask("GET", path, headers={}).status for path in PATHS] == [401, 401, 401, 200]


@pytest.mark.parametrize(
    "query",
    [
        "?date=",
        "?date=2026-11-31",
        "?date=2026-1-1",
        "?date=20261130",
        "?date=2026-11-30T00",
        "?date=2026-W48-1",
        "?date=../2026-11-30",
        "?date=2026-11-30%00",
        "?date=2026-11-30%0a",
        "?date=%2e%2e%2f2026-11-30",
        "?date=/etc/passwd",
        "?date=٢٠٢٦-١١-٣٠".encode().decode("latin-1"),
        "?date=" + "2" * 5000,
        "?date=2026-11-30&date=2026-11-30",
        "?date=2026-11-30&other=1",
    ],
)
def test_what_is_no_day_is_refused(quiet: RunningApi, query: str) -> None:
    quoted = query.encode("latin-1")
    head = b"GET /stats/history%b HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\nConnection: close\r\n\r\n"
    answer = quiet.raw(
        head % (re.sub(rb"[\x80-\xff]", lambda m: b"%%%02X" % m[0][0], quoted), BEARER["authorization"].encode())
    )
    assert answer.startswith(b"HTTP/1.1 400 "), answer


def test_a_day_without_a_log_is_not_found(api: tuple[RunningApi, Watched], tmp_path: Path) -> None:
    running, _ = api
    answer = running.ask("GET", "/stats/history?date=2026-11-29")
    assert answer.status == 404
    assert "2026-11-29" in answer.error
    assert str(tmp_path) not in answer.error
    (tmp_path / "operations" / "operations-2026-11-29.jsonl").symlink_to("/etc/passwd")
    assert running.ask("GET", "/stats/history?date=2026-11-29").status == 404


def test_a_long_day_is_streamed_and_a_client_that_leaves_ends_it(
    api: tuple[RunningApi, Watched], tmp_path: Path
) -> None:
    running, _ = api
    path = tmp_path / "operations" / "operations-2026-11-28.jsonl"
    with path.open("wb") as file:
        file.truncate(256 * 1024 * 1024)
    head = b"GET /stats/history?date=2026-11-28 HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\n\r\n"
    before = peak_kib()
    running.raw(head % BEARER["authorization"].encode(), until=b"\0" * 100)
    assert peak_kib() - before < 32 * 1024
    deadline = time.monotonic() + 20
    while str(path) in open_paths() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert str(path) not in open_paths()


def peak_kib() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def test_live_tells_the_rows_of_the_account_that_asks(api: tuple[RunningApi, Watched]) -> None:
    running, watched = api
    for account, provider in [("default", "groq"), ("default", "gemini"), ("other", "groq")]:
        key = QuotaKey(account, provider)
        counters = Counters(7, 2)
        watched.rows.append(LiveQuota(key, Quota(14, 2), counters, TODAY, MIDNIGHT + 3600))
    answer = running.ask("GET", "/stats/live")
    assert [each["provider_name"] for each in answer.json["providers"]] == ["groq", "gemini"]
    assert {"daily_limit": 14, "daily_count": 7, "rpm_window_count": 2, "is_exhausted": True}.items() <= (
        answer.json["providers"][0].items()
    )
    assert answer.json["providers"][0]["runs_dry_at"] == "2026-12-01T02:00:00Z"


def test_metrics_are_what_prometheus_asks_for(api: tuple[RunningApi, Watched]) -> None:
    running, _ = api
    answer = running.ask("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {each.name: each for each in text_string_to_metric_families(answer.body.decode())}
    assert families["pointsman_open_connections"].samples[0].value == 3
    assert "process_open_fds" in families


def test_without_a_log_the_paths_are_not_there(tmp_path: Path) -> None:
    with rest_api(tmp_path) as running:
        assert [running.ask("GET", path).status for path in PATHS] == [404] * 4


def test_a_journal_that_nobody_reads_keeps_nothing() -> None:
    async def run() -> None:
        journal = OperationJournal(None, wall_clock=time.time, clock=time.monotonic)
        for _ in range(1000):
            journal.started(Journal().request().subject).cancelled()
        assert not journal._pending

    asyncio.run(run())


def test_a_gateway_is_watched_by_its_admin(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "data", free_ports(3))
    gateway.start()
    try:
        token = gateway.token_file.read_text().strip()
        answers = {path: fetch(gateway.ports["control"], path, token) for path in PATHS[1:]}
        today = time.strftime("%Y-%m-%d", time.gmtime())
        assert fetch(gateway.ports["control"], f"/stats/history?date={today}", token) == (200, b"")
    finally:
        gateway.end(signal.SIGTERM)
    assert {status for status, _ in answers.values()} == {200}
    assert b"pointsman_store_up 1.0" in answers["/metrics"][1]
    assert json.loads(answers["/health/providers"][1])["providers"] == []


def test_a_gateway_whose_log_has_no_directory_says_so_and_does_not_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "operations").write_text("")
    gateway = GatewayProcess(data, free_ports(3))
    with pytest.raises(NotStarted):
        gateway.start()
    assert any("operation log" in line and "directory" in line for line in gateway.lines), gateway.lines
