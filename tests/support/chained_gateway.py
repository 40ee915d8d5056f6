"""A real gateway process with a chain of scripted models, a real model as its last resort, and a key file for each."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.canary import KEY
from tests.support.dialects import Reply, Say
from tests.support.gateway_process import GatewayProcess
from tests.support.llama_server import model_path
from tests.support.ports import free_ports
from tests.support.scripted_model import Asked, Decide, Failure, ScriptedModel

CONFIGURATION = """
secrets_dir: {secrets}
providers:
  - {{name: first, type: openai_compatible, base_url: {first}, model: model-1}}
  - {{name: second, type: openai_compatible, base_url: {second}, model: model-2}}
  - {{name: claude, type: anthropic, base_url: {claude}, model: model-3}}
  - {{name: local, type: local_gguf, model_path: {model}}}
routes:
  - {{name: fast, candidates: [first, second]}}
  - {{name: mixed, candidates: [first, claude]}}
  - {{name: safe, candidates: [first, second], fallback: local}}
"""


class ChainedGateway:
    """Listening. Say in `plays` what a provider answers instead of its own name."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self.plays: dict[str, Reply | Failure | Decide] = {}
        names = ("first", "second", "claude")
        self.models = {name: stack.enter_context(ScriptedModel(self._decide(name))) for name in names}
        secrets = directory / "secrets"
        secrets.mkdir()
        for name in names:
            (secrets / f"{name}_api_key").write_text(f"{KEY}-{name}\n")
        urls = {name: model.url for name, model in self.models.items()}
        urls["claude"] = urls["claude"].removesuffix("/v1")
        text = CONFIGURATION.format(**urls, secrets=secrets, model=model_path())
        (directory / "pointsman.yaml").write_text(text)
        self.process = GatewayProcess(directory / "data", free_ports(3), "--config", str(directory / "pointsman.yaml"))
        stack.callback(self.process.close)
        self.process.start()
        self.url = f"http://127.0.0.1:{self.process.ports['data']}"

    def _decide(self, name: str) -> Decide:
        def decide(asked: Asked) -> Reply | Failure:
            play = self.plays.get(name, Say(f"{name} says so"))
            return play(asked) if callable(play) else play

        return decide

    def calls(self) -> list[int]:
        """How often each was called, in the order of their names here."""
        return [len(model.calls) for model in self.models.values()]


@contextlib.contextmanager
def chained_gateway(directory: Path) -> Iterator[ChainedGateway]:
    """Start one, and stop it."""
    with contextlib.ExitStack() as stack:
        yield ChainedGateway(directory, stack)
