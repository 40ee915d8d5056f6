"""The agent's route leads to a chain of a real gateway: its first provider is broken, its second is the scripted model.

The sandbox follows the gateway with a token of its own, as docs/howto/chain-providers.md tells users.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.operated_gateway import operated_gateway
from tests.support.scripted_model import Failure, ScriptedModel

_CONFIGURATION = """
secrets_dir: {directory}
providers:
  - {{name: broken, type: openai_compatible, base_url: {broken}, model: broken-model}}
  - {{name: scripted, type: openai_compatible, base_url: {scripted}, model: scripted-model}}
  - {{name: broken-claude, type: anthropic, base_url: {broken_root}, model: broken-model}}
  - {{name: scripted-claude, type: anthropic, base_url: {scripted_root}, model: scripted-model}}
routes:
  - {{name: fast, candidates: [broken, broken-claude, scripted, scripted-claude]}}
"""
PROVIDERS = ("broken", "scripted", "broken-claude", "scripted-claude")
BROKEN = Failure(500, {"error": {"message": "out of order"}})


class Chain:
    """What `pointsman sandbox run` is told, and what became of the requests."""

    def __init__(self, options: list[str], broken: ScriptedModel, lines: list[str]) -> None:
        self.options = options
        self._broken = broken
        self._lines = lines

    def complaints(self, answered: int) -> Iterator[str]:
        """Unless the broken provider was asked twice before each answer of the other."""
        asked = len(self._broken.calls)
        if not answered or asked != 2 * answered:
            yield f"the broken provider was asked {asked} times before {answered} answers"
        if any("internal error" in line for line in self._lines):
            yield "the gateway told of an internal error"


@contextlib.contextmanager
def chain(model: ScriptedModel, key: str) -> Iterator[Chain]:
    """A gateway whose `inference.local` leads to such a chain, and a token for one sandbox."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-chain-")))
        broken = stack.enter_context(ScriptedModel(lambda _: BROKEN))
        for name in PROVIDERS:
            (directory / f"{name}_api_key").write_text(f"{key}\n")
        urls = {"broken": broken.url, "scripted": model.url}
        urls |= {f"{name}_root": url.removesuffix("/v1") for name, url in urls.items()}
        file = directory / "pointsman.yaml"
        file.write_text(_CONFIGURATION.format(directory=directory, **urls))
        gateway = stack.enter_context(operated_gateway(directory / "data", "--config", str(file)))
        for command in (
            ("inference", "set", "--route", "fast", "--no-verify"),
            ("sandbox", "token", "create", "agent"),
        ):
            done = gateway.run(*command)
            assert done.exit_code == 0, done.output
        token = directory / "agent.token"
        token.write_text(done.stdout)
        token.chmod(0o600)
        yield Chain(["--gateway", gateway.url, "--token-file", str(token)], broken, gateway.lines)
