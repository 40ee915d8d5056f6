"""`/stats` and `/health/providers` on the data listener, in the words that InferRouter's clients know."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.core.caller import SANDBOX_TOKEN, Caller
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.core.quota_window import Day
from pointsman.core.token_digest import digest_of
from pointsman.events.operations_file import operation_files
from pointsman.gateway.data_watching import WatchedPaths
from pointsman.gateway.provider_health import Target
from pointsman.proxy.live_quotas import LiveQuota
from pointsman.testing import FakeClock
from tests.support.canary import KEY
from tests.support.chain_requests import GROQ, MIDNIGHT, succeed
from tests.support.data_door import DataDoor
from tests.support.descriptors import open_at
from tests.support.dialects import Say
from tests.support.door import candidate
from tests.support.gateway_process import GatewayProcess, fetch
from tests.support.ports import free_ports
from tests.support.raw_client import Answer
from tests.support.scripted_model import ScriptedModel
from tests.support.watched_api import DAY, Watched

PATHS = ["/stats/live", "/stats/history?date=2026-11-30", "/health/providers"]
TODAY = Day("2026-11-30", "2026-12-01", MIDNIGHT - DAY, MIDNIGHT)


class Running:
    def __init__(self, data: DataDoor, watched: Watched, directory: Path) -> None:
        self.data = data
        self.watched = watched
        self.directory = directory
        self.is_served = True

    def ask(self, target: str, key: str = "", *, method: str = "GET") -> Answer:
        fields = f"Authorization: Bearer {key}\r\n" if key else ""
        with self.data.connect() as client:
            client.send(f"{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode())
            return client.answer()

    def tell(self, *requests: tuple[str, str]) -> None:
        """Requests of accounts on routes, in the journal and in the file."""

        async def run() -> None:
            journal = self.watched.journal
            records = [journal.request(route, account) for account, route in requests]
            for record in records:
                succeed(record, journal, GROQ, GROQ)
            journal.journal.flush()

        before = self.lines()
        self.data.call(run())
        deadline = time.monotonic() + 20
        while self.lines() < before + 4 * len(requests) and time.monotonic() < deadline:
            time.sleep(0.01)  # the writer's thread

    def lines(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self.directory.iterdir())


@contextlib.contextmanager
def running(tmp_path: Path, *, is_open: bool = True) -> Iterator[Running]:
    directory = tmp_path / "operations"
    data = DataDoor()
    data.is_open = is_open
    with operation_files(directory, 30, print, FakeClock(MIDNIGHT - DAY)) as lines:
        watched = Watched(directory, lines, metrics_are_open=False)
        made = Running(data, watched, directory)
        for account in ("default", "team"):
            data.keys[digest_of(f"key-of-{account}")] = Entry(Caller(account, "laptop"), ModelTable())
            sandbox = Caller(account, "box", SANDBOX_TOKEN)
            data.keys[digest_of(f"sandbox-of-{account}")] = Entry(sandbox, ModelTable())
            key = QuotaKey(account, f"{account}-groq")
            watched.rows.append(LiveQuota(key, Quota(14, 2), Counters(7, 2), TODAY, MIDNIGHT - DAY / 2))
        data.watched = WatchedPaths(watched.watching, lambda: made.is_served)
        with data:
            yield made
        assert not data.leftover


@pytest.fixture
def keyless(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as made:
        yield made


def test_quotas_are_told_in_the_fields_that_inferrouters_clients_know(keyless: Running) -> None:
    answer = keyless.ask("/stats/live")
    assert (answer.status, answer.value(b"content-type")) == (200, b"application/json")
    told = json.loads(answer.body)
    assert set(told) == {"providers"}
    [row] = told["providers"]
    expected = {
        "provider_name": "default-groq",
        "daily_limit": 14,
        "daily_count": 7,
        "rpm_limit": 2,
        "rpm_window_count": 2,
        "is_exhausted": True,
    }
    assert expected.items() <= row.items()


def test_providers_are_told_in_the_fields_that_inferrouters_clients_know_and_no_model_is_loaded(
    keyless: Running,
) -> None:
    local = candidate("gguf:///models/small.gguf")
    keyless.watched.targets += [Target("mocked", candidate("mock://a")), Target("local", local)]
    for query in ("", "?load=true"):
        told = json.loads(keyless.ask(f"/health/providers{query}").body)["providers"]
        assert told == [{"name": "mocked", "status": "ok", "latency_ms": 0}, {"name": "local", "status": "not_loaded"}]


@pytest.mark.parametrize("target", ["/stats/history?date=2026-11-30", "/stats/history"])
def test_a_day_is_told_as_text_line_by_line(keyless: Running, target: str) -> None:
    keyless.tell(("default", "fast"))
    answer = keyless.ask(target)
    assert (answer.status, answer.value(b"content-type")) == (200, b"text/plain; charset=utf-8")
    assert answer.complete
    assert answer.value(b"x-pointsman-request-id")
    events = [json.loads(line)["event"] for line in answer.body.splitlines()]
    assert events == ["infer_started", "infer_ordering", "infer_retried", "infer_completed"]
    assert KEY.encode() not in answer.body


def test_a_client_of_http_1_0_gets_the_day_to_the_end_of_the_connection(keyless: Running) -> None:
    keyless.tell(("default", "fast"))
    with keyless.data.connect() as client:
        client.send(b"GET /stats/history HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = client.read_to_end().partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert b"connection: close" in head
    assert body.count(b"\n") == 4 == len(body.splitlines())


@pytest.mark.parametrize(("query", "status"), [("2026-11-29", 404), ("", 400), ("../x", 400), ("2026-11-31", 400)])
def test_a_day_that_is_not_there_is_refused_in_openais_shape(keyless: Running, query: str, status: int) -> None:
    answer = keyless.ask(f"/stats/history?date={query}")
    assert answer.status == status
    assert json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
def test_they_are_only_read_and_the_connection_stays(keyless: Running, path: str) -> None:
    assert keyless.ask(path, method="POST").status == 405
    with keyless.data.connect() as client:
        client.send(f"HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert json.loads(client.answer().body)["status"] == "ok"


@pytest.mark.parametrize("path", PATHS)
def test_without_inferrouters_configuration_there_are_no_such_paths(keyless: Running, path: str) -> None:
    keyless.is_served = False
    answer = keyless.ask(path)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (404, "unknown_url")


def test_where_keys_are_asked_for_each_sees_its_own_account(tmp_path: Path) -> None:
    with running(tmp_path, is_open=False) as made:
        made.tell(("default", "fast"), ("team", "slow"), ("default", "fast"), ("team", "slow"))
        for path in PATHS:
            assert made.ask(path).status == made.ask(path, "nonsense").status == 401
            assert made.ask(path, "sandbox-of-team").status == 403
        for account, route, ids in [("default", "fast", {"r-1", "r-3"}), ("team", "slow", {"r-2", "r-4"})]:
            key = f"key-of-{account}"
            [row] = json.loads(made.ask(PATHS[0], key).body)["providers"]
            assert row["provider_name"] == f"{account}-groq"
            events = [json.loads(line) for line in made.ask(PATHS[1], key).body.splitlines()]
            assert len(events) == 8
            assert {each["request_id"] for each in events} == ids
            assert {each.get("route", route) for each in events} == {route}


def test_a_client_that_leaves_in_the_middle_of_a_long_day_ends_it(keyless: Running) -> None:
    keyless.tell(("default", "fast"))
    path = keyless.directory / "operations-2026-11-30.jsonl"
    day = path.read_bytes()
    with path.open("ab") as file:
        file.writelines([day * 1000] * 20)
    with keyless.data.connect() as client:
        client.send(b"GET /stats/history HTTP/1.1\r\nHost: a\r\n\r\n")
        client.read_until(b"infer_completed")
        assert open_at(path)
    # One descriptor is the writer's.
    deadline = time.monotonic() + 20
    while len(open_at(path)) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(open_at(path)) == 1


def test_a_long_day_arrives_whole(keyless: Running) -> None:
    keyless.tell(("default", "fast"))
    path = keyless.directory / "operations-2026-11-30.jsonl"
    day = path.read_bytes() * 20_000
    path.write_bytes(day)
    assert keyless.ask("/stats/history").body == day


def test_a_gateway_with_inferrouters_configuration_has_them_for_the_providers_of_its_file(tmp_path: Path) -> None:
    with ScriptedModel(lambda _: Say("hello")) as upstream:
        provider = {"Name": "groq", "Type": "OpenAiCompatible", "BaseUrl": upstream.url, "Model": "m"}
        fallback = {"Name": "ollama", "Type": "OpenAiCompatible", "BaseUrl": upstream.url, "Model": "m"}
        section = {"HideModels": True, "Providers": [{**provider, "DailyRequestLimit": 9}], "FinalFallback": fallback}
        config = tmp_path / "appsettings.json"
        config.write_text(json.dumps({"InferRouter": section}))
        gateway = GatewayProcess(tmp_path / "data", free_ports(3), f"--config={config}")
        gateway.start({"GROQ_API_KEY_FILE": str(tmp_path / "missing")})
        try:
            port = gateway.ports["data"]
            status, live = fetch(port, "/stats/live", "")
            assert status == 200
            rows = {each["provider_name"]: each["daily_limit"] for each in json.loads(live)["providers"]}
            assert rows == {"groq": 9, "ollama": 0}
            found = json.loads(fetch(port, "/health/providers", "")[1])["providers"]
            assert {each["name"]: each["status"] for each in found} == {"groq": "ok", "ollama": "ok"}
            assert {each.method for each in upstream.requests} == {"GET"}
            assert fetch(port, "/stats/history", "") == (200, b"")
            assert fetch(port, "/metrics", "")[0] == 404
        finally:
            gateway.end()
