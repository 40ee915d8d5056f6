"""The files of examples/ that configure a gateway, as they stand but for the addresses of their providers.

A real gateway runs each, the local model is real, and the client is an example too; the providers are scripted.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.canary import KEY
from tests.support.dialects import Reply, Say
from tests.support.gateway_process import GatewayProcess
from tests.support.llama_server import model_path
from tests.support.ports import free_ports
from tests.support.processes import run_to_end
from tests.support.scripted_model import Asked, Decide, Failure, ScriptedModel

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTS = {
    "groq": "https://api.groq.com/openai/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "ollama": "http://localhost:11434/v1",
}


OLDER = """{
  // version 1.0: no section, the local model among the providers, the client's model name is sent
  "RoutingStrategy": "ChainOfResponsibility", "HideModels": false,
  "Providers": [
    { "Name": "groq", "Type": "openai_compatible", "BaseUrl": "https://api.groq.com/openai/v1" },
    { "Name": "Local", "Type": "LocalGguf", "ModelPath": "models/small.gguf" },
  ]
}"""
TOO_MANY = Failure(429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, {"Retry-After": "600"})


class Running:
    """A gateway on a copy of an example, and its scripted providers. Say in `failing` who fails, and how."""

    def __init__(self, example: str, directory: Path, stack: contextlib.ExitStack, text: str = "") -> None:
        """`text` is what the file says; the example's own unless given."""
        self.failing: dict[str, Failure] = {}
        self.scripted = {name: stack.enter_context(ScriptedModel(self._decide(name))) for name in HOSTS}
        text = text or (EXAMPLES / example).read_text()
        for name, url in HOSTS.items():
            text = text.replace(url, self.scripted[name].url)
        text = text.replace("/var/log/inferrouter", str(directory / "log"))
        (directory / example).write_text(text)
        (directory / "models").mkdir()
        (directory / "models" / "small.gguf").symlink_to(model_path())
        (directory / "secrets").mkdir()
        for name in ("groq", "gemini"):
            (directory / "secrets" / f"{name}_api_key").write_text(f"{KEY}-{name}\n")
        options = ("--config", str(directory / example), "--secrets-dir", str(directory / "secrets"))
        self.gateway = GatewayProcess(directory / "data", free_ports(3), *options)
        stack.callback(self.gateway.close)
        self.gateway.start()

    def _decide(self, name: str) -> Decide:
        def decide(asked: Asked) -> Reply | Failure:
            return self.failing.get(name) or Say(f"{name} says so")

        return decide

    def ask(self, *argv: str) -> "CompletedProcess[str]":
        base = f"http://127.0.0.1:{self.gateway.ports['data']}/v1"
        command = [sys.executable, str(EXAMPLES / "chat_through_chain.py"), *argv]
        return run_to_end(command, environ={"OPENAI_BASE_URL": base, "OPENAI_API_KEY": "none"}, seconds=90)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    with contextlib.ExitStack() as stack:
        yield lambda example, text="": Running(example, tmp_path, stack, text)


@pytest.mark.timeout(180)
def test_the_example_chain_goes_from_its_first_provider_to_the_local_model(run: Callable[..., Running]) -> None:
    running = run("chain.yaml")
    done = running.ask()
    assert done.stdout.splitlines() == ["groq says so", "route=fast model=llama-3.3-70b-versatile attempts=1"]
    assert running.scripted["groq"].calls[0].fields["authorization"] == f"Bearer {KEY}-groq"
    running.failing["groq"] = TOO_MANY
    done = running.ask("any-name-goes-to-the-default-route")
    assert done.stdout.splitlines() == ["gemini says so", "route=fast model=gemini-2.5-flash attempts=2"]
    running.failing["gemini"] = Failure(401, {"error": {"message": "bad key"}})
    done = running.ask("spread", "Say hello.")
    assert done.stdout.endswith(" attempts=2 fallback=local\n"), (done.stdout, done.stderr)
    assert len(running.scripted["groq"].calls) == 2  # exhausted since its 429, on every route


def test_inferrouters_configuration_runs_as_it_is(run: Callable[..., Running]) -> None:
    running = run("appsettings.json")
    said, told = running.ask("gpt-4o").stdout.splitlines()
    assert (said, told) in {
        ("groq says so", "route=default model=llama-3.3-70b-versatile attempts=1"),
        ("gemini says so", "route=default model=gemini-2.5-flash attempts=1"),
    }
    running.failing = {"groq": TOO_MANY, "gemini": Failure(401, {"error": {"message": "bad key"}})}
    said, told = running.ask("gpt-4o").stdout.splitlines()
    assert (said, told) == ("ollama says so", "route=default model=qwen2.5:3b attempts=3")
    asked = running.scripted["ollama"].calls[0]
    assert (asked.body["model"], asked.fields["authorization"]) == ("qwen2.5:3b", "Bearer none")
    running.failing["ollama"] = TOO_MANY
    done = running.ask()
    assert done.returncode == 1
    assert "try again in " in done.stderr
    assert "Traceback" not in done.stderr


def test_inferrouters_older_shape_falls_back_to_the_model_among_its_providers(
    run: Callable[..., Running],
) -> None:
    running = run("appsettings.json", OLDER)
    assert running.ask("gpt-4o").stdout.splitlines() == ["groq says so", "route=default model=gpt-4o attempts=1"]
    assert running.scripted["groq"].calls[0].body["model"] == "gpt-4o"
    running.failing["groq"] = TOO_MANY
    assert running.ask("gpt-4o", "Say hello.").stdout.endswith(" attempts=2 fallback=local\n")
