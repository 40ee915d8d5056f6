"""What is told of requests to a runner's model: rows of usage, the operation log, metrics and health.

A real gateway process; the runner is played by frames.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import fetch
from tests.support.nats_server import nats_server
from tests.support.played_runner import PlayedRunner
from tests.support.serving_gateway import ServingGateway, serving_gateway

USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}'
DONE = "data: [DONE]"
BY_RUNNER = ("default", "llama", "runner:laptop", "qwen:7b")
BY_NOBODY = ("default", "llama", "", "")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def runner(gateway: ServingGateway) -> PlayedRunner:
    runner = PlayedRunner(gateway)
    runner.model("llama")
    gateway.until_served("llama")
    return runner


class Told:
    """What is told from now on."""

    def __init__(self, gateway: ServingGateway) -> None:
        self._gateway = gateway
        self._rows, self._events = len(gateway.usage()), len(self._history())

    def _history(self) -> list[dict[str, Any]]:
        status, body = self._get("/stats/history")
        assert status in (200, 404)  # before the first line of a day there is no log
        return [json.loads(line) for line in body.splitlines()] if status == 200 else []

    def _get(self, path: str) -> tuple[int, bytes]:
        return fetch(self._gateway.ports["control"], path, self._gateway.token_file.read_text().strip())

    def rows(self, number: int) -> list[tuple[Any, ...]]:
        """Of usage, and no more than so many."""
        return awaited(lambda: self._gateway.usage()[self._rows :], number)

    def events(self, number: int) -> list[dict[str, Any]]:
        """Of the operation log."""
        return awaited(lambda: self._history()[self._events :], number)

    def metrics(self) -> dict[str, float]:
        lines = self._get("/metrics")[1].decode().splitlines()
        pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
        return {name: float(value) for name, _, value in pairs}

    def health(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._get("/health/providers")[1])["providers"]
        return found


def awaited(look: Callable[[], list[Any]], number: int) -> list[Any]:
    """They are written in batches, half a second after a request at most."""
    deadline = time.monotonic() + 20
    while len(found := look()) < number and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(found) == number, found
    return found


def test_a_stream_is_told_with_its_runner_its_model_and_its_tokens(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    told = Told(gateway)
    with runner.dialled_in() as line, gateway.connect() as client:
        gateway.send(client, {"model": "llama", "stream": True})
        line.stream("data: {}", USAGE, DONE)
        assert client.answer().status == 200
    assert told.rows(1) == [(*BY_RUNNER, 200, 3, 4, 1, "")]
    ends = [each for each in told.events(4) if each["event"] in ("stream_completed", "infer_completed")]
    assert [each["provider"] for each in ends] == ["runner:laptop"] * 2
    assert (ends[1]["model"], ends[1]["prompt_tokens"], ends[1]["attempts"]) == ("qwen:7b", 3, 1)


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        ({"error": "runner_busy", "status": 429}, 429),
        ({"error": "runner_proxy_timeout", "status": 504}, 504),
        ({"error": "runner_model_not_allowed", "status": 403}, 403),
        ({"error": "runner_upstream_error", "status": 418}, 418),
        ({"error": "runner_upstream_unavailable", "status": 502}, 502),
        ({"data": "x" * 65_537}, 502),
    ],
    ids=["busy", "timeout", "not allowed", "upstream error", "unavailable", "too large"],
)
@pytest.mark.guarantee("L4")
def test_what_fails_before_an_answer_is_one_row_of_one_attempt_and_one_reason(
    gateway: ServingGateway, runner: PlayedRunner, frame: dict[str, Any], status: int
) -> None:
    told = Told(gateway)
    with runner.dialled_in() as line, gateway.connect() as client:
        gateway.send(client, {"model": "llama"})
        line.answer(line.receive(), **frame, done=True)
        answer = client.answer()
        code = json.loads(answer.body)["error"]["code"]
        assert (answer.status, code) == (status, frame.get("error", "runner_frame_too_large"))
    assert told.rows(1) == [(*BY_NOBODY, status, None, None, 1, "")]
    _, end = told.events(2)
    assert (end["event"], end["reason"], end["http_status"], end["attempts"]) == ("infer_failed", code, status, 1)


def test_a_runner_that_is_away_is_one_row_and_counts_as_an_attempt_of_its_own(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    told = Told(gateway)
    assert gateway.call("llama").status == 503
    assert told.rows(1) == [(*BY_NOBODY, 503, None, None, 1, "")]
    assert told.events(2)[1]["reason"] == "runner_offline"
    name = 'pointsman_attempts_total{account="default",outcome="runner_offline",provider="runner:laptop"}'
    assert told.metrics()[name] >= 1.0


@pytest.mark.guarantee("L4")
def test_a_line_that_ends_in_a_stream_and_a_client_that_leaves_are_one_row_each(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    told = Told(gateway)
    with gateway.connect() as client:
        with runner.dialled_in() as line:
            gateway.send(client, {"model": "llama", "stream": True})
            request = line.receive()
            line.answer(request, USAGE)
            assert line.receive()["operation"] == "next"
        body = client.answer().body
        assert body.count(b"response truncated: runner_offline") == 1
    with runner.dialled_in() as line:
        with gateway.connect() as client:
            gateway.send(client, {"model": "llama", "stream": True})
            line.answer(line.receive(), "data: {}")
            assert line.receive()["operation"] == "next"
        assert line.receive()["operation"] == "cancel"
    cut, left = told.rows(2)
    assert cut == (*BY_RUNNER, 200, 3, 4, 1, "")
    assert left == (*BY_RUNNER, 200, 9, 1, 1, "")
    ends = [each for each in told.events(6) if each["event"] in ("infer_failed", "infer_cancelled")]
    assert [each["reason"] for each in ends] == ["stream_truncated", "client_gone"]


def test_the_gauges_and_the_health_of_runners_follow_them(gateway: ServingGateway, runner: PlayedRunner) -> None:
    told = Told(gateway)

    def gauges() -> tuple[float, float]:
        found = told.metrics()
        return found["pointsman_runners_connected"], found["pointsman_runner_requests_active"]

    assert gauges() == (0, 0)
    PlayedRunner(gateway, "desk")
    with runner.dialled_in() as line, ExitStack() as clients:
        assert gauges() == (1, 0)
        for _ in range(4):
            gateway.send(clients.enter_context(gateway.connect()), {"model": "llama"})
        requests = [line.receive() for _ in range(4)]
        assert gauges() == (1, 4)
        assert gateway.call("llama").status == 429
        assert told.health() == [
            {"name": "runner:desk", "status": "not_connected"},
            {"name": "runner:laptop", "status": "ok"},
        ]
        for each in requests:
            line.answer(each, "{}", done=True)
        told.rows(5)
        assert gauges() == (1, 0)
    assert gauges() == (0, 0)


def test_a_process_that_serves_data_alone_tells_who_is_connected_to_another(tmp_path: Path) -> None:
    with nats_server(tmp_path) as broker:
        roles = ("--role=api", f"--nats={broker.url}"), ("--role=data", f"--nats={broker.url}")
        api, worker = (ServingGateway(tmp_path / "data", (0, 0, 0), *options) for options in roles)
        try:
            for each in (api, worker):
                each.start()
            runner, told = PlayedRunner(api), Told(worker)
            with runner.dialled_in():
                assert told.health() == [{"name": "runner:laptop", "status": "ok"}]
                assert told.metrics()["pointsman_runners_connected"] == 0
                assert Told(api).metrics()["pointsman_runners_connected"] == 1
        finally:
            worker.close()
            api.close()
