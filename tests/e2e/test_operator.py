"""An operator's commands against a real gateway on SQLite: what each does is seen by the next."""

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.canary import KEY
from tests.support.operated_gateway import OperatedGateway, operated_gateway

SHELLS_KEY = "sk-of-the-operators-own-shell"
"""Not the canary, which is looked for in every environment: here one is the key's proper place."""
MOCK = ("--config", "OPENAI_BASE_URL=mock://answers")
VALIDATED = "Validated Endpoints:\n    - mock://answers/v1/chat/completions (openai_chat_completions)\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedGateway]:
    with operated_gateway(tmp_path_factory.mktemp("gateway") / "data") as gateway:
        yield gateway


class Operator:
    """Works on an account of its own, so that tests share a gateway and nothing else."""

    def __init__(self, gateway: OperatedGateway, account: str) -> None:
        self.gateway = gateway
        self.account = account
        assert gateway.run("account", "create", account).exit_code == 0

    def does(self, command: str, *more: str, stdin: str | None = None, key: str = KEY) -> str:
        """Standard output of a command that succeeds."""
        environ = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": None}
        result = self.gateway.run(*command.split(), *more, "--account", self.account, environ=environ, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def fails(self, command: str, *more: str, status: int = 1) -> str:
        """Standard error of a command that does not."""
        result = self.gateway.run(*command.split(), *more, "--account", self.account)
        assert (result.exit_code, result.stdout) == (status, ""), result.output
        return result.stderr

    def makes_provider(self, name: str = "work", base_url: str = "mock://answers") -> None:
        self.does(f"provider create --name {name} --type openai --from-existing --config OPENAI_BASE_URL={base_url}")


@pytest.fixture
def operator(shared: OperatedGateway, request: pytest.FixtureRequest) -> Operator:
    return Operator(shared, request.node.name)


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """A port where nobody listens, and nobody will while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_the_whole_life_of_a_provider_by_processes_of_the_command(shared: OperatedGateway) -> None:
    environ = {"OPENAI_API_KEY": SHELLS_KEY, "OPENAI_BASE_URL": ""}

    def run(*arguments: str) -> tuple[int, str, str]:
        done = shared.process_of(*arguments, environ=environ)
        assert SHELLS_KEY not in done.stdout + done.stderr
        return done.returncode, done.stdout, done.stderr

    create = ("provider", "create", "--name", "life", "--type", "openai", "--credential", "OPENAI_API_KEY", *MOCK)
    assert run(*create) == (0, "Created provider life\n", "")
    assert run(*create) == (1, "", "pointsman: provider life exists; choose another name, or update it\n")
    status, shown, _ = run("provider", "get", "life", "-o", "json")
    assert (status, json.loads(shown)["credentials"]) == (0, {"OPENAI_API_KEY": "REDACTED"})
    assert run("provider", "list", "--names") == (0, "life\n", "")
    assert run("provider", "update", "life", "--config", "NOTE=1") == (0, "Updated provider life\n", "")
    assert run("provider", "delete", "life") == (0, "Deleted provider life\n", "")
    status, _, said = run("provider", "get", "life")
    assert (status, "provider 'life' not found" in said) == (1, True)


def test_an_update_merges_and_an_empty_value_deletes(operator: Operator) -> None:
    operator.makes_provider()
    operator.does("provider update work --credential SECOND_KEY=-", "--config", "NOTE=a b", stdin="x" * 20)
    document = json.loads(operator.does("provider get work -o json"))
    assert document["credentials"] == {"OPENAI_API_KEY": "REDACTED", "SECOND_KEY": "REDACTED"}
    assert document["config"] == {"NOTE": "a b", "OPENAI_BASE_URL": "mock://answers"}
    operator.does("provider update work --credential OPENAI_API_KEY= --config NOTE=")
    document = json.loads(operator.does("provider get work -o json"))
    assert document["credentials"] == {"SECOND_KEY": "REDACTED"}
    assert document["config"] == {"OPENAI_BASE_URL": "mock://answers"}
    assert "must hold at least one value" in operator.fails("provider update work --credential SECOND_KEY=")


def test_providers_are_listed_page_by_page(operator: Operator) -> None:
    for name in ("c", "a", "b"):
        operator.makes_provider(name)
    assert operator.does("provider list --names") == "a\nb\nc\n"
    assert operator.does("provider list --names --limit 2") == "a\nb\n"
    assert operator.does("provider list --names --limit 2 --offset 2") == "c\n"
    assert operator.does("provider list --offset 3") == "No more providers\n"


def test_inference_is_set_when_the_provider_answered(operator: Operator) -> None:
    operator.makes_provider()
    shown = operator.does("inference set --provider work --model gpt")
    assert shown.startswith(
        "Gateway inference configured:\n\n  Route: inference.local\n  Provider: work\n  Model: gpt\n"
    )
    assert shown.endswith(VALIDATED)
    assert operator.does("inference set --system --provider work --model sys --timeout 90") == (
        "System inference configured:\n\n  Route: sandbox-system\n  Provider: work\n  Model: sys\n  Version: 1\n"
        f"  Timeout: 90s\n  {VALIDATED}"
    )
    assert operator.does("inference get") == (
        "Gateway inference:\n\n  Provider: work\n  Model: gpt\n  Version: 1\n  Timeout: 60s (default)\n\n"
        "System inference:\n\n  Provider: work\n  Model: sys\n  Version: 1\n  Timeout: 90s\n"
    )
    assert operator.does("inference get --system").startswith("System inference:\n\n  Provider: work\n")


def test_a_provider_that_cannot_be_reached_stops_a_route_unless_it_is_not_to_be_verified(
    operator: Operator, refusing_port: int
) -> None:
    operator.makes_provider(base_url=f"http://127.0.0.1:{refusing_port}")
    said = operator.fails("inference set --provider work --model gpt")
    assert f"cannot verify model gpt of provider work at http://127.0.0.1:{refusing_port}" in said
    assert "--no-verify" in said
    assert json.loads(operator.does("inference get -o json")) == {"inference.local": None, "sandbox-system": None}
    shown = operator.does("inference set --provider work --model gpt --no-verify")
    assert "Validated Endpoints" not in shown
    assert "--no-verify" in operator.fails("inference update --model other")
    assert "  Model: gpt\n  Version: 1\n" in operator.does("inference get")
    assert "  Model: other\n  Version: 2\n" in operator.does("inference update --model other --no-verify")


def test_an_update_changes_only_what_was_named(operator: Operator) -> None:
    operator.makes_provider()
    assert "is not configured" in operator.fails("inference update --timeout 5")
    operator.does("inference set --provider work --model gpt --timeout 30")
    shown = operator.does("inference update --model big")
    assert "  Provider: work\n  Model: big\n  Version: 2\n  Timeout: 30s\n" in shown
    shown = operator.does("inference update --timeout 0")
    assert "  Model: big\n  Version: 3\n  Timeout: 60s (default)\n" in shown


def test_a_deleted_route_is_not_configured_and_its_version_is_not_used_again(operator: Operator) -> None:
    operator.makes_provider()
    operator.does("inference set --provider work --model gpt")
    assert operator.does("inference delete") == "Gateway inference deleted\n"
    assert "gateway inference is not configured, so nothing was deleted" in operator.fails("inference delete")
    assert operator.does("inference get").count("Not configured") == 2
    assert "  Version: 2\n" in operator.does("inference set --provider work --model gpt")


def test_a_provider_that_routes_use_is_deleted_by_force_only_and_the_routes_say_so(operator: Operator) -> None:
    operator.makes_provider()
    operator.does("inference set --provider work --model gpt")
    operator.does("route create fast --provider work --model tiny")
    said = operator.fails("provider delete work")
    assert "inference.local" in said
    assert "fast" in said
    assert "--force" in said
    assert operator.does("provider delete work --force") == "Deleted provider work\n"
    assert "  Problem: provider 'work' not found" in operator.does("inference get")
    status = json.loads(operator.does("status -o json"))
    assert (status["providers"], status["store"], status["health"]) == (0, "sqlite", "healthy")
    assert [each["name"] for each in status["routes"] if each["problem"]] == ["fast", "inference.local"]
    operator.makes_provider()
    assert "Problem" not in operator.does("inference get")  # nothing had to be set again


def test_named_routes_have_a_life_of_their_own(operator: Operator) -> None:
    operator.makes_provider()
    operator.does("route create fast --provider work --model tiny --timeout 5")
    assert "route fast exists" in operator.fails("route create fast --provider work --model other")
    assert "  Model: tiny\n" in operator.does("route get fast")
    assert "  Model: mini\n  Version: 2\n  Timeout: 5s\n" in operator.does("route update fast --model mini")
    assert [each["name"] for each in json.loads(operator.does("route list -o json"))] == ["fast"]
    assert operator.does("route delete fast") == "Deleted route fast\n"
    assert "there is no route fast" in operator.fails("route delete fast")
    assert "route" in operator.fails("route get fast")


def test_accounts_do_not_see_each_other(operator: Operator, shared: OperatedGateway) -> None:
    operator.makes_provider("mine")
    operator.does("inference set --provider mine --model gpt")
    assert "mine" not in shared.run("provider", "list").stdout
    assert "mine" not in shared.run("status").stdout
    nobodys = shared.run("provider", "list", "--account", "nobody")
    assert (nobodys.exit_code, "there is no account 'nobody'" in nobodys.stderr) == (1, True)


def test_a_token_is_shown_once_or_written_for_its_owner_alone(operator: Operator, tmp_path: Path) -> None:
    token = operator.does("sandbox token create ci").strip()
    assert token
    assert "sandbox token ci exists" in operator.fails("sandbox token create ci")
    path = tmp_path / "trial.token"
    operator.does("sandbox token create trial --expires 12h --out", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listed = operator.does("sandbox token list -o json")
    assert [(each["name"], each["state"]) for each in json.loads(listed)] == [("ci", "valid"), ("trial", "valid")]
    assert token not in listed
    assert path.read_text().strip() not in listed
    assert "file exists" in operator.fails("sandbox token create other --out", str(path))
    operator.does("sandbox token revoke ci")
    assert "no token ci that could be revoked" in operator.fails("sandbox token revoke ci")
    assert [each["state"] for each in json.loads(operator.does("sandbox token list -o json"))] == ["revoked", "valid"]


def test_a_token_that_is_not_made_leaves_no_file(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "x.token"
    assert "'nope'" in operator.fails("sandbox token create x --route nope --out", str(path))
    assert not path.exists()


def test_a_sandboxes_token_may_not_operate_the_gateway(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "trial.token"
    operator.does("sandbox token create trial --out", str(path))
    for command in ("provider list", "inference get", "status", "sandbox token list", "account list"):
        said = operator.fails(command, "--token-file", str(path))
        assert f"does not let the token in {path} do this: " in said
    path.write_text("wrong\n")
    assert f"does not accept the token in {path}" in operator.fails("provider list", "--token-file", str(path))


def test_no_token_at_all_is_told_with_where_it_would_have_been(shared: OperatedGateway, tmp_path: Path) -> None:
    result = shared.run("status", environ={"POINTSMAN_DATA_DIR": str(tmp_path)})
    assert result.exit_code == 1
    assert f"wants a token, and {tmp_path / 'admin.token'} gave none: no such file or directory" in result.stderr


def test_the_admins_token_is_its_owners_alone(shared: OperatedGateway) -> None:
    status = (shared.data_directory / "admin.token").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, os.geteuid())


def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    with operated_gateway(tmp_path / "data") as gateway:
        first = Operator(gateway, "team")
        first.makes_provider()
        first.does("inference set --provider work --model gpt")
        assert gateway.stop() == 0
    with operated_gateway(tmp_path / "data") as gateway:
        shown = gateway.run("inference", "get", "--account", "team").stdout
        assert "  Provider: work\n  Model: gpt\n  Version: 1\n" in shown
        assert "Problem" not in shown  # its key can be decrypted
