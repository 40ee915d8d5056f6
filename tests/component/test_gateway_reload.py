"""A gateway reads its file again, on SIGHUP and on change: what takes effect, and what a wrong file changes."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_commands import run_client
from tests.support.gateway_process import GatewayProcess, NotStarted
from tests.support.model_client import ModelClient
from tests.support.model_echo import ModelEcho

NOT_READ = "the configuration is not read again; what was in force stays"
READ = "read again: "


class Configured:
    """A gateway with a file, an upstream and a client."""

    def __init__(self, directory: Path, echo: ModelEcho) -> None:
        self.file = directory / "pointsman.yaml"
        self.echo = echo
        self.gateway = GatewayProcess(directory / "data", (0, 0, 0), f"--config={self.file}", "--default-route=fast")

    def write(
        self, model: str, *, more: str = "", limit: int = 0, chain: str = "fast", provider: str = "up", others: str = ""
    ) -> None:
        """A file with one chain of one provider, whole at once. `others`: providers, `more`: what comes last."""
        keys = f"type: openai_compatible, base_url: '{self.echo.url('up')}', model: {model}, api_key: none"
        text = (
            f"providers:\n  - {{name: {provider}, {keys}, daily_request_limit: {limit}}}\n{others}"
            f"routes:\n  - {{name: {chain}, candidates: [{provider}]}}\n{more}"
        )
        draft = self.file.with_suffix(".new")
        draft.write_text(text)
        draft.rename(self.file)

    def changed(self, *arguments: Any, until: str = READ, **more: Any) -> list[str]:
        """Write the file and send SIGHUP: what was said until then."""
        first = len(self.gateway.lines)
        self.write(*arguments, **more)
        self.hang_up()
        self.gateway.said(until, first)
        return [line.replace(f"pointsman: {self.file}", "FILE") for line in self.gateway.lines[first:]]

    def hang_up(self) -> None:
        assert self.gateway.process is not None
        self.gateway.process.send_signal(signal.SIGHUP)

    def model(self, name: str = "fast") -> str:
        """What the upstream was asked for."""
        with ModelClient(self.gateway.ports["data"]) as client:
            said = client.ask(name)
            assert said.status == 200, said
            return str(said.json["model"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    with ModelEcho() as echo:
        configured = Configured(tmp_path_factory.mktemp("reload"), echo)
        configured.write("m0")
        configured.gateway.start()
        try:
            yield configured
        finally:
            configured.gateway.close()


@pytest.fixture
def configured(running: Configured) -> Configured:
    running.changed("m1")
    return running


def test_a_changed_file_is_in_force_when_the_log_says_so(configured: Configured) -> None:
    gateway, first = configured.gateway, len(configured.gateway.lines)
    assert configured.model() == "m1"
    configured.write("m2")
    line = gateway.said(READ, first)
    assert line == f"pointsman: configuration {configured.file} read again: provider up changed\n"
    assert configured.model() == "m2"
    *_, line = configured.changed("m3", chain="other")
    assert line.endswith("read again: provider up changed; route other added; route fast removed\n")
    assert configured.model("other") == "m3"
    with ModelClient(gateway.ports["data"]) as client:
        said = client.ask("third")
        assert (said.status, said.json["error"]["code"]) == (404, "model_not_found")


@pytest.mark.guarantee("C2")
def test_a_wrong_file_changes_nothing_and_every_problem_is_told(configured: Configured) -> None:
    told = configured.changed("m2", more="auth: {data: x}\nunknown_key: 1\n", until=NOT_READ)
    about = [line for line in told if line.startswith("FILE:") or NOT_READ in line]  # a busy machine has other news
    assert [line.partition(" ")[0] for line in about] == ["FILE:5:", "FILE:6:", "pointsman:"]
    assert configured.model() == "m1"
    first = len(configured.gateway.lines)
    configured.file.unlink()
    configured.hang_up()
    configured.gateway.said(NOT_READ, first)
    assert configured.model() == "m1"
    configured.changed("m3")
    assert configured.model() == "m3"


def test_what_needs_a_restart_is_said_and_options_still_win(configured: Configured) -> None:
    told = configured.changed("m2", more="data_dir: /elsewhere\ndefault_route: none\nauth: {data: keys}\n")
    assert told[-1].endswith("read again: provider up changed\n")
    waiting = [line for line in told if "takes effect at the next start" in line]
    assert [line.split(" ")[:2] for line in waiting] == [["FILE:7:", "auth.data"]]
    assert configured.model("anything") == "m2"  # by --default-route


@pytest.mark.guarantee("C1")
def test_counters_and_connections_outlive_a_reload(configured: Configured) -> None:
    configured.changed("m1", limit=3, provider="counted")
    before = configured.echo.connections
    with ModelClient(configured.gateway.ports["data"]) as client:
        assert [client.ask("fast").status for _ in range(2)] == [200, 200]
        configured.changed("m2", limit=3, provider="counted")
        assert client.ask("fast").json["model"] == "m2"
        assert client.ask("fast").status == 503
    assert configured.echo.connections - before <= 1


@pytest.mark.guarantee("C2")
def test_a_final_fallback_that_does_not_answer_is_refused_when_it_is_new(configured: Configured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    down = f"  - {{name: down, type: openai_compatible, base_url: '{url}', model: m, api_key: none}}\n"
    more = "  - {name: last, candidates: [up], fallback: down}\n"
    told = configured.changed("m2", more=more, others=down, until=NOT_READ)
    assert f"FILE: provider down, the fallback of route last, does not answer at {url}: cannot connect" in told[-2]
    assert configured.model() == "m1"


@pytest.mark.guarantee("C2")
def test_a_name_that_is_stored_too_is_refused_while_running_and_at_the_start(configured: Configured) -> None:
    gateway = configured.gateway
    token = {"POINTSMAN_TOKEN_FILE": str(gateway.token_file)}
    stored = ("--type", "openai", "--credential", "OPENAI_API_KEY=sk-none", "--config", "OPENAI_BASE_URL=mock://x")
    assert run_client(gateway.url, "provider", "create", "--name", "stored", *stored, environ=token).exit_code == 0
    for name in ("late", "later"):
        options = ("--provider", "stored", "--model", "m", "--no-verify")
        assert run_client(gateway.url, "route", "create", name, *options, environ=token).exit_code == 0
    told = configured.changed("m2", chain="late", more="  - {name: later, candidates: [up]}\n", until=NOT_READ)
    both = [line.split(" ")[:3] for line in told if "is in the configuration file and in the store" in line]
    assert both == [["FILE:", "route", "late"], ["FILE:", "route", "later"]]
    assert configured.model() == "m1"
    gateway.end()
    with pytest.raises(NotStarted) as raised:
        gateway.start()
    lines = str(raised.value).splitlines()
    assert [line.partition("yaml: ")[2].split(" ")[:2] for line in lines][-2:] == [
        ["route", "late"],
        ["route", "later"],
    ]
    configured.write("m1")
    gateway.start()
    assert configured.model("late") != ""


@pytest.mark.guarantee("C4")
def test_sighup_without_a_file_says_that_there_is_nothing_to_read(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "data")
    gateway.start()
    try:
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGHUP)
        line = gateway.said("SIGHUP")
        assert line.endswith("there is no file to read again; name one with --config and restart the gateway\n")
        assert gateway.end() == 0
    finally:
        gateway.close()
