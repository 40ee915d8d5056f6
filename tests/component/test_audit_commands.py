"""`pointsman audit` against a gateway process and against exported files; and what its configuration file leaves."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.canary import KEY
from tests.support.client_commands import run_client
from tests.support.gateway_process import GatewayProcess

FILE = "providers: [{{name: a, type: mock, model: {}}}]\nroutes: [{{name: r, candidates: [a]}}]\n"


class Operated:
    """A gateway with a file, and its operator's commands."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "pointsman.yaml"
        self.file.write_text(FILE.format("m"))
        self.data = directory / "data"
        self.gateway = GatewayProcess(self.data, (0, 0, 0), f"--config={self.file}")

    def run(self, *arguments: str) -> Result:
        return run_client(self.gateway.url, *arguments, environ={"POINTSMAN_DATA_DIR": str(self.data)})

    def done(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.done("audit", "list", "-o", "json", *arguments))
        return found

    def actions(self) -> list[str]:
        return [each["action"] for each in self.listed()]


@pytest.mark.timeout(180)
@pytest.mark.guarantee("W3")
def test_a_gateways_record_is_listed_verified_exported_and_shows_what_was_done_to_it(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    gateway = operated.gateway
    gateway.start()
    try:
        _changes_are_listed(operated)
        _a_reload_is_one_entry(operated)
        _exports_are_verified(operated, tmp_path)
        gateway.end()
        gateway.start()
        assert operated.actions().count("configuration.read") == 1  # the same file as before: nothing new to tell
        _a_tampered_database_is_found(operated)
    finally:
        gateway.close()


def _changes_are_listed(operated: Operated) -> None:
    credential = ("--type", "openai", "--credential", f"OPENAI_API_KEY={KEY}")
    operated.done("provider", "create", "--name", "work", *credential)
    operated.done("key", "create", "laptop")
    operated.done("key", "revoke", "laptop")
    found = operated.listed()
    assert [each["action"] for each in found] == ["key.revoke", "key.create", "provider.create", "configuration.read"]
    assert [each["actor"] for each in found] == ["admin", "admin", "admin", "file"]
    assert found[-1]["after"]["records"] == ["provider a", "route r"]
    assert [each["action"] for each in operated.listed("--action", "key", "--limit", "1")] == ["key.revoke"]
    assert operated.listed("--since", "1h") == found
    assert operated.listed("--since", "2999-01-01") == []
    assert operated.done("audit", "list", "--subject", "none").startswith("No entries; ")
    text = operated.done("audit", "list")
    assert "admin  key.revoke" in text
    assert '-> {"revoked_at":' in text
    lines = operated.done("audit", "list", "-o", "jsonl").splitlines()
    assert [json.loads(line)["digest"] for line in lines] == [each["digest"] for each in found]


def _a_reload_is_one_entry(operated: Operated) -> None:
    first = len(operated.gateway.lines)
    operated.file.write_text(FILE.format("other"))
    operated.gateway.said("provider a changed", first)
    newest, *rest = operated.listed()
    assert (newest["actor"], newest["action"], newest["subject"]) == (
        "file",
        "configuration.reload",
        str(operated.file),
    )
    assert newest["before"]["records"] == {"provider a": {"config": {"MODEL": "m"}}}
    assert newest["after"]["records"] == {"provider a": {"config": {"MODEL": "other"}}}
    assert len(rest) == 4


def _exports_are_verified(operated: Operated, directory: Path) -> None:
    key_file = str(operated.data / "credentials.key")
    whole = json.loads(operated.done("audit", "verify", "-o", "json"))
    assert (whole["whole"], whole["checked"], whole["problems"]) == (True, 5, [])
    assert (operated.data / "audit.head").read_text() == whole["head"] + "\n"
    export, rest = directory / "all.jsonl", directory / "rest.jsonl"
    result = operated.run("audit", "export", "--out", str(export))
    assert f"exported 5 entries to {export}; head {whole['head']}" in result.stderr
    assert operated.done("audit", "export") == export.read_text()
    entries = export.read_text().splitlines(keepends=True)
    second = json.loads(entries[1])
    middle = f"2:{second['digest']}"
    operated.done("audit", "export", "--after", middle, "--out", str(rest))
    assert rest.read_text().splitlines(keepends=True) == entries[2:]
    offline = ("--key-file", key_file, "--head", whole["head"])
    operated.done("audit", "verify", str(export), *offline)
    operated.done("audit", "verify", str(rest), "--after", middle, *offline)
    tampered = directory / "tampered.jsonl"
    for lines, told in (
        ([entries[0].replace("file", "admin", 1), *entries[1:]], "entry 1 was altered"),
        ([*entries[:2], *entries[3:]], "entry 3 is missing"),
        ([entries[0], entries[2], entries[1], *entries[3:]], "entry 2 stands behind entry 3"),
        ([*entries[:2], entries[1], *entries[2:]], "entry 2 stands behind entry 2"),
        (entries[:3], "the end was cut off"),
        ([*entries, "{}\n"], "line 6 is no entry of an audit record"),
        ([*entries, entries[4][:100]], "line 6 is no entry of an audit record"),
    ):
        tampered.write_text("".join(lines))
        result = operated.run("audit", "verify", str(tampered), *offline)
        assert result.exit_code == 1
        assert told in result.output
    assert operated.run("audit", "verify", str(export)).exit_code == 2
    assert operated.run("audit", "verify", "--key-file", key_file).exit_code == 2
    assert operated.run("audit", "verify", "--head", "5:xy").exit_code == 2


def _a_tampered_database_is_found(operated: Operated) -> None:
    head = json.loads(operated.done("audit", "verify", "-o", "json"))["head"]
    with closing(sqlite3.connect(operated.data / "pointsman.db")) as database, database:
        database.execute("UPDATE audit SET actor = 'gateway' WHERE sequence = 2")
        database.execute("DELETE FROM audit WHERE sequence = 5")
        database.execute("UPDATE audit_head SET sequence = 4, digest = (SELECT digest FROM audit WHERE sequence = 4)")
    result = operated.run("audit", "verify", "--head", head)
    assert result.exit_code == 1
    assert "entry 2 was altered" in result.stdout
    assert "the head that was given has entry 5" in result.stdout
    assert f"{operated.data / 'audit.head'} has entry 5" in result.stdout
    first = len(operated.gateway.lines)
    operated.done("key", "create", "another")
    operated.gateway.said("the record has got shorter than entry 5", first)
    assert (operated.data / "audit.head").read_text() == head + "\n"
