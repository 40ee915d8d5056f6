"""Agents in sandboxes on runners' models: a real gateway, real runners, real sandboxes. Needs root, as CI has."""

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.rpc.gen import inference_pb2, inference_pb2_grpc
from tests.support import evidence
from tests.support.clients import PROGRAMS
from tests.support.dialects import Reply, Say, ToolCall, chat_answer, chat_events
from tests.support.model_server import EVENT_STREAM, ModelServer, Visit, whole
from tests.support.processes import POINTSMAN
from tests.support.shared_model import Laptop, SharedModels, served, shared_models


async def answer(visit: Visit) -> None:
    asked = json.loads(visit.body)
    text = asked["messages"][-1]["content"]
    reply: Reply = ToolCall("weather", {"city": "Oslo"}) if text == "Use a tool." else Say("all is well")
    if not asked["stream"]:
        await visit.send(whole(json.dumps(chat_answer(reply)).encode()))
        return
    lines = [b"data: %b\n\n" % json.dumps(data).encode() for _, data in chat_events(reply)] + [b"data: [DONE]\n\n"]
    await visit.send(EVENT_STREAM)
    for line in lines[:2] if text == "Stay." else lines:
        await visit.send(line)
    if text == "Stay.":
        await visit.gone()


class Agent:
    """The program in its sandbox."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, text: str, *, stream: bool = True) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"text": text, "stream": stream}) + "\n")
        self._process.stdin.flush()

    def told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self._process.wait(20), self._process.stderr and self._process.stderr.read())
        found: dict[str, Any] = json.loads(line)
        return found

    def all(self, text: str, *, stream: bool = True) -> tuple[str, Any]:
        """An answer's text, and the model that was used or what was raised."""
        self.ask(text, stream=stream)
        pieces = ""
        while "text" in (line := self.told()):
            pieces += line["text"]
        return pieces, line.get("end", line.get("error"))


@contextlib.contextmanager
def agent(shared: SharedModels, directory: Path, token: Path) -> Iterator[Agent]:
    """Started by `sandbox run`; what else it printed is evidence."""
    assert os.geteuid() == 0, "this test makes a network namespace: run it as root, as CI does"
    directory.mkdir()
    nobody = pwd.getpwnam("nobody")
    os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    gateway = ["--gateway", shared.gateway.url, "--token-file", str(token), "--expose", str(PROGRAMS)]
    process = subprocess.Popen(
        [POINTSMAN, "sandbox", "run", *gateway, "--", sys.executable, str(PROGRAMS / "runner_agent.py")],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Agent(process)
    finally:
        said, complaints = process.communicate(timeout=20)
        evidence.keep("cli", said + complaints)
    assert process.returncode == 0, complaints


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with served(answer, "tiny", "spare", "barred") as server:
        yield server


@pytest.fixture(scope="module")
def shared(server: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedModels]:
    with shared_models(tmp_path_factory.mktemp("shared")) as shared:
        yield shared


@pytest.fixture(scope="module")
def laptop(shared: SharedModels, server: ModelServer) -> Laptop:
    laptop = shared.laptop(server.url, "tiny", "spare", "barred")
    laptop.forbid("barred")
    return laptop


def token(shared: SharedModels, directory: Path, *options: str) -> Path:
    path = directory / "sandbox.token"
    shared.operate("sandbox", "token", "create", directory.name, "--out", str(path), *options)
    return path


OFFLINE = "the runner of this model is not connected; start it with: pointsman runner start"


@pytest.mark.guarantee("N11", "S4")
def test_an_agent_streams_calls_tools_and_is_told_when_the_runner_goes_and_comes_back(
    shared: SharedModels, laptop: Laptop, server: ModelServer, tmp_path: Path
) -> None:
    shared.operate("inference", "set", "--route", "tiny", "--no-verify")
    with agent(shared, tmp_path / "work", token(shared, tmp_path)) as program:
        for stream in (True, False):
            assert program.all("Hello?", stream=stream) == ("all is well", "tiny")
            assert program.all("Use a tool.", stream=stream) == ('weather{"city": "Oslo"}', "tiny")
        asked = len(server.visits)
        program.ask("Stay.")
        assert program.told() == {"text": "all "}
        laptop.away(signal.SIGKILL)
        raised = ["APIError", None, "runner_offline", "response truncated: runner_offline"]
        assert program.told()["error"] == raised
        for stream in (True, False):
            _, raised = program.all("Hello?", stream=stream)
            assert raised[:3] == ["InternalServerError", 503, "runner_offline"]
            assert OFFLINE in raised[3]
        assert len(server.visits) == asked + 1
        laptop.start()
        assert program.all("Hello?") == ("all is well", "tiny")
        assert len(server.visits) == asked + 2


def test_a_tokens_own_route_may_be_a_runners_model_and_a_refusal_there_keeps_its_words(
    shared: SharedModels, laptop: Laptop, server: ModelServer, tmp_path: Path
) -> None:
    own, barred = tmp_path / "own", tmp_path / "barred"
    own.mkdir()
    barred.mkdir()
    with agent(shared, own / "work", token(shared, own, "--route", "spare")) as program:
        assert program.all("models") == ("", ["spare"])
        assert program.all("Hello?") == ("all is well", "spare")
        assert json.loads(server.visits[-1].body)["model"] == "spare"
        assert b"pointsman" not in server.visits[-1].head
    asked = len(server.visits)
    with agent(shared, barred / "work", token(shared, barred, "--route", "barred")) as program:
        _, raised = program.all("Hello?")
        assert raised[:3] == ["PermissionDeniedError", 403, "runner_model_not_allowed"]
    assert len(server.visits) == asked
    assert laptop.pid


def test_a_runners_model_is_a_candidate_that_waits_as_long_as_a_runner_may_take(
    shared: SharedModels, laptop: Laptop, tmp_path: Path
) -> None:
    key = token(shared, tmp_path, "--route", "spare").read_text().strip()
    with grpc.insecure_channel(shared.gateway.url.removeprefix("http://")) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        asked = inference_pb2.GetInferenceBundleRequest()
        bundle = stub.GetInferenceBundle(asked, metadata=(("authorization", f"Bearer {key}"),), timeout=20)
    (route,) = [each for each in bundle.routes if each.name == "inference.local"]
    assert (route.model_id, route.provider_type, route.api_key, route.timeout_secs) == ("spare", "pointsman", "", 620)
    assert route.base_url == f"{shared.url}/v1"
    assert list(route.protocols) == ["openai_chat_completions", "model_discovery"]
    assert laptop.pid
