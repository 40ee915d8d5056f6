"""The file rewritten again and again under load: no request fails, each is answered by one file's chain alone."""

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.model_client import ModelClient
from tests.support.model_echo import ModelEcho

REWRITES = 100
BUFFERED, STREAMED = 3, 3
"""Clients, each with a connection of its own."""
EVENTS = 4


class Rewritten:
    """A file whose every version has a number, which decides the models and the paths of its two providers."""

    def __init__(self, file: Path, echo: ModelEcho) -> None:
        self._file = file
        self._echo = echo
        self.newest = 0
        """Written."""
        self.in_force = 0
        """At least; the log has said so."""

    def write(self, number: int) -> None:
        """In place or by renaming, in turns. The first provider of the chain never has room."""
        self.newest = number
        kind = "type: openai_compatible, api_key: none"
        text = (
            f"default_route: chain-{number % 2}\n"
            "providers:\n"
            f"  - {{name: full, {kind}, base_url: '{self._echo.url('busy')}', model: m{number}}}\n"
            f"  - {{name: roomy, {kind}, base_url: '{self._echo.url(f'p{number}')}', model: m{number}}}\n"
            "routes:\n"
            f"  - {{name: chain-{number % 2}, candidates: [full], fallback: roomy}}\n"
        )
        draft = self._file if number % 2 else self._file.with_suffix(".new")
        draft.write_text(text)
        draft.replace(self._file)


@pytest.fixture
def echo() -> Iterator[ModelEcho]:
    with ModelEcho() as echo:
        yield echo


@pytest.mark.guarantee("C1")
def test_a_hundred_rewrites_under_load_fail_no_request_and_mix_no_answer(echo: ModelEcho, tmp_path: Path) -> None:
    rewritten = Rewritten(tmp_path / "pointsman.yaml", echo)
    rewritten.write(0)
    gateway = GatewayProcess(tmp_path / "data", (0, 0, 0), f"--config={tmp_path / 'pointsman.yaml'}")
    gateway.start()
    done = threading.Event()
    try:
        with ThreadPoolExecutor(BUFFERED + STREAMED) as pool:
            port = gateway.ports["data"]
            clients = [pool.submit(_ask_until, done, port, rewritten, stream=False) for _ in range(BUFFERED)]
            clients += [pool.submit(_ask_until, done, port, rewritten, stream=True) for _ in range(STREAMED)]
            try:
                _rewrite(gateway, rewritten)
            finally:
                done.set()
            counts = [each.result(30) for each in clients]
        assert gateway.process is not None
        assert gateway.process.poll() is None
    finally:
        gateway.close()
    assert min(counts) > 10, counts
    assert not [line for line in gateway.lines if "error" in line or "not read again" in line]


def _rewrite(gateway: GatewayProcess, rewritten: Rewritten) -> None:
    assert gateway.process is not None
    for number in range(1, REWRITES + 1):
        first = len(gateway.lines)
        rewritten.write(number)
        gateway.process.send_signal(signal.SIGHUP)
        gateway.said(f"default_route is chain-{number % 2}", first)
        rewritten.in_force = number


def _ask_until(done: threading.Event, port: int, rewritten: Rewritten, *, stream: bool) -> int:
    """How many answers there were, all of them good."""
    count = 0
    with ModelClient(port) as client:
        while not done.is_set():
            oldest = rewritten.in_force
            said = client.ask("any-name", stream=stream)
            newest = rewritten.newest
            assert said.status == 200, said
            answers = said.events if stream else [said.body.decode()]
            if stream:
                assert answers.pop() == "[DONE]"
                assert len(answers) == EVENTS
            [answer] = {(each["model"], each["path"]) for each in map(json.loads, answers)}
            number = int(answer[0].removeprefix("m"))
            assert answer[1] == f"/p{number}/v1/chat/completions"
            assert said.fields["x-pointsman-model"] == f"m{number}"
            assert said.fields["x-pointsman-route"] == f"chain-{number % 2}"
            assert oldest <= number <= newest
            count += 1
    return count
