"""A chain's last resort in a real gateway: a model file, loaded when it is needed, once, and quick from then on."""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.support.chained_gateway import ChainedGateway, chained_gateway
from tests.support.gateway_process import fetch
from tests.support.scripted_model import Failure

GREET: Any = [{"role": "user", "content": "Hello?"}]
STORY: Any = [{"role": "user", "content": "Write a long story about a dragon."}]
LIMITED = Failure(429, {"error": {"message": "slow down"}}, {"Retry-After": "600"})
CALLERS = 50
STREAMS = 20

pytestmark = [pytest.mark.alone, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChainedGateway]:
    with chained_gateway(tmp_path_factory.mktemp("chained")) as running:
        running.plays = {"first": LIMITED, "second": LIMITED}
        yield running


@pytest.fixture(scope="module")
def client(gateway: ChainedGateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def engines(gateway: ChainedGateway) -> list[int]:
    """Processes that the gateway has started."""
    tasks = Path(f"/proc/{gateway.process.pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def local_status(gateway: ChainedGateway) -> str:
    token = gateway.process.token_file.read_text().strip()
    status, body = fetch(gateway.process.ports["control"], "/health/providers", token)
    assert status == 200
    [local] = [each for each in json.loads(body)["providers"] if each["name"] == "local"]
    return str(local["status"])


def test_a_model_is_loaded_by_the_first_that_need_it_once_for_all_of_them(
    gateway: ChainedGateway, client: openai.OpenAI
) -> None:
    assert local_status(gateway) == "not_loaded"
    assert client.models.retrieve("safe").id == "safe"
    assert engines(gateway) == []

    def ask(_: int) -> str | None:
        raw = client.chat.completions.with_raw_response.create(model="safe", messages=GREET, max_tokens=1, timeout=120)
        return raw.headers.get("x-pointsman-fallback")

    with ThreadPoolExecutor(CALLERS) as pool:
        assert set(pool.map(ask, range(CALLERS))) == {"local"}
    told = [line for line in gateway.process.lines if "engine" in line and "died" in line]
    assert (len(engines(gateway)), told) == (1, [])


def test_a_warm_model_says_its_first_word_within_a_second(client: openai.OpenAI) -> None:
    def first_word() -> float:
        since = time.monotonic()
        with client.chat.completions.create(
            model="safe", messages=GREET, max_tokens=2, stream=True, timeout=120
        ) as chunks:
            assert next(chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content)
            return time.monotonic() - since

    first_word()
    taken = sorted(first_word() for _ in range(STREAMS))
    assert taken[STREAMS * 95 // 100 - 1] < 1.0, taken


def killed_in_its_answer(gateway: ChainedGateway, claude: anthropic.Anthropic) -> None:
    with claude.messages.create(model="safe", max_tokens=2000, messages=STORY, stream=True) as events:
        for event in events:
            if event.type == "content_block_delta":
                for pid in engines(gateway):
                    os.kill(pid, signal.SIGKILL)


def test_an_engine_that_is_killed_in_its_answer_truncates_it_and_the_next_request_is_answered(
    gateway: ChainedGateway,
) -> None:
    with anthropic.Anthropic(base_url=gateway.url, api_key="unused", max_retries=0, timeout=120) as claude:
        with pytest.raises(anthropic.APIStatusError, match="response truncated: upstream read error"):
            killed_in_its_answer(gateway, claude)
        # At once: its socket has gone, its process perhaps not yet.
        assert claude.messages.create(model="safe", max_tokens=1, messages=GREET).content
