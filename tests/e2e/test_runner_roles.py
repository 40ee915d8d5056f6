"""A shared model behind a gateway of several processes: a runner's line ends at one, its clients come in at others."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support import canary
from tests.support.gateway_process import GatewayProcess
from tests.support.model_server import EVENT_STREAM, ModelServer, Visit, whole
from tests.support.nats_server import NatsServer, nats_server
from tests.support.ports import free_ports
from tests.support.scripted_gateway import until
from tests.support.shared_model import SharedModels, served, shared_models

ASKED: Any = [{"role": "user", "content": f"Answer {canary.PROMPT}."}]
CHUNK = b'{"choices":[{"index":0,"delta":{"content":"well"}}]}'


async def answer(visit: Visit) -> None:
    if not json.loads(visit.body).get("stream"):
        await visit.send(whole(CHUNK))
        return
    await visit.send(EVENT_STREAM + b"data: %b\n\n" % CHUNK)
    await visit.gone()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path) as server:
        yield server


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with served(answer) as server:
        yield server


@pytest.mark.guarantee("S4", "S6", "N11")
def test_two_data_listeners_reach_a_runner_at_the_third_process_and_lose_it_with_the_broker(
    tmp_path: Path, broker: NatsServer, server: ModelServer
) -> None:
    bus = ("--nats", broker.url)
    with shared_models(tmp_path, "--role", "api", *bus) as shared, ExitStack() as stack:
        laptop = shared.laptop(server.url, "tiny")
        clients = [stack.enter_context(data_client(shared, stack, bus)) for _ in range(2)]
        for client in clients:
            assert works(client)
        streams = [client.chat.completions.create(model="tiny", messages=ASKED, stream=True) for client in clients]
        for stream in streams:
            assert next(stream).choices[0].delta.content == "well"
        asked, closed = len(server.visits), server.closed
        broker.kill()
        for stream in streams:
            with pytest.raises(openai.APIError, match="response truncated: runner_offline"):
                next(stream)
        until(lambda: server.closed == closed + 2)
        assert [code(client) for client in clients] == ["runner_offline"] * 2
        broker.start()
        for client in clients:
            until(lambda: works(client))  # noqa: B023
        assert len(server.visits) == asked + 2
        laptop.away()
        assert [code(client) for client in clients] == ["runner_offline"] * 2


def data_client(shared: SharedModels, stack: ExitStack, bus: tuple[str, str]) -> openai.OpenAI:
    """Of a data listener of its own."""
    process = GatewayProcess(shared.gateway.directory, free_ports(3), "--role", "data", *bus)
    stack.callback(process.close)
    process.start()
    return openai.OpenAI(base_url=f"http://127.0.0.1:{process.ports['data']}/v1", api_key="unused", max_retries=0)


def code(client: openai.OpenAI) -> str | None:
    """Why there is no answer; None when there is one."""
    try:
        client.chat.completions.create(model="tiny", messages=ASKED)
    except openai.APIStatusError as error:
        return error.code
    return None


def works(client: openai.OpenAI) -> bool:
    return code(client) is None
