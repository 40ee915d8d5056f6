"""Receipts at a real gateway process: runners' models, commands, REST, and a gateway that is killed."""

import contextlib
import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.canary import KEY
from tests.support.client_commands import run_client
from tests.support.played_runner import PlayedRunner
from tests.support.raw_client import Answer
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until


@contextlib.contextmanager
def receipting(directory: Path) -> Iterator[ServingGateway]:
    with serving_gateway(directory, "--receipts", "fast, llama") as gateway:
        gateway.provide("canned", "mock://answers")
        for route in ("fast", "quiet"):
            gateway.run("route", "create", route, "--provider", "canned", "--model", "m", "--no-verify")
            gateway.until_served(route)
        yield gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServingGateway]:
    with receipting(tmp_path / "data") as gateway:
        yield gateway


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingGateway]:
    """For tests to which it is no matter what else has a receipt."""
    with receipting(tmp_path_factory.mktemp("shared")) as gateway:
        yield gateway


def command(gateway: ServingGateway, *arguments: str) -> Result:
    environ = {"POINTSMAN_DATA_DIR": str(gateway.directory), "PROVIDER_KEY": KEY}
    return run_client(gateway.url, "receipt", *arguments, environ=environ)


def id_of(answer: Answer) -> str:
    found = answer.value(b"x-pointsman-request-id")
    assert found is not None
    return found.decode()


def receipt(gateway: ServingGateway, request_id: str) -> dict[str, Any]:
    """Once it is written."""
    wait_until(lambda: command(gateway, "get", request_id).exit_code == 0)
    made: dict[str, Any] = json.loads(gateway.run("receipt", "get", request_id, "-o", "json"))
    return made


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def test_a_runners_model_gives_receipts_as_any_other(shared: ServingGateway) -> None:
    runner = PlayedRunner(shared)
    runner.model("llama")
    shared.until_served("llama")
    with runner.dialled_in() as line, shared.connect() as client:
        shared.send(client, {"model": "llama", "stream": True})
        start = line.stream('data: {"a":1}', "data: [DONE]")
        answer = client.answer()
    made = receipt(shared, id_of(answer))
    assert made["received"] == digest(b'{"model": "llama", "stream": true}')
    assert start["body"] == {"model": "qwen:7b", "stream": True}
    assert made["sent"] == digest(b'{"model": "qwen:7b", "stream": true}')
    assert made["answered"] == made["delivered"] == digest(answer.body)


@pytest.mark.guarantee("V1")
def test_what_a_client_kept_is_compared_with_its_receipt(shared: ServingGateway, tmp_path: Path) -> None:
    quiet, answer = shared.call("quiet"), shared.call("fast")
    made = receipt(shared, id_of(answer))
    assert command(shared, "get", id_of(quiet)).exit_code == 1
    assert (made["route"], made["provider"], made["status"]) == ("fast", "canned", 200)
    sent, got = tmp_path / "sent.json", tmp_path / "answer.json"
    sent.write_bytes(b'{"model": "fast"}')
    got.write_bytes(answer.body)
    files = ("--request", str(sent), "--response", str(got))
    assert shared.run("receipt", "check", id_of(answer), *files).splitlines() == [
        "The request is the one of the receipt",
        "The response is the one of the receipt",
    ]
    got.write_bytes(answer.body + b"\n")
    found = command(shared, "check", id_of(answer), *files)
    assert found.exit_code == 1
    assert f"The response differs: the receipt's delivered is {made['delivered']}, the file's is " in found.output
    assert "the response of" in found.output
    assert command(shared, "check", id_of(answer)).exit_code == 2


def test_receipts_are_listed_exported_and_verified_by_command_and_over_http(
    gateway: ServingGateway, tmp_path: Path
) -> None:
    ids = [id_of(gateway.call("fast")) for _ in range(3)]
    receipt(gateway, ids[-1])
    shown = gateway.run("receipt", "list", "--limit", "2").splitlines()
    assert [line.split()[2] for line in shown[1:]] == [ids[2], ids[1]]
    assert [
        line["request_id"] for line in json.loads(gateway.run("receipt", "list", "--since", "1h", "-o", "json"))
    ] == ids[::-1]
    assert gateway.run("receipt", "list", "--since", "2999-01-01").startswith("No receipts of account default")
    export = tmp_path / "receipts.jsonl"
    gateway.run("receipt", "export", "--out", str(export))
    lines = [json.loads(line) for line in export.read_text().splitlines()]
    assert [line["request_id"] for line in lines] == ids
    whole, head, _ = gateway.run("receipt", "verify").splitlines()
    assert (whole, head) == ("The receipts of account default are whole: 3 receipts", f"Head: 3:{lines[2]['digest']}")
    kept = head.removeprefix("Head: ")
    by_file = ("verify", str(export), "--key-file", str(gateway.directory / "credentials.key"))
    assert gateway.run("receipt", *by_file, "--head", kept).splitlines()[1] == head
    for number, altered in enumerate((["status"], [])):
        copy = tmp_path / f"altered-{number}.jsonl"
        left = [json.dumps({**line, **dict.fromkeys(altered, 500)}) for line in (lines if altered else lines[:2])]
        copy.write_text("\n".join(left) + "\n")
        found = command(gateway, "verify", str(copy), *by_file[2:], "--head", kept)
        assert found.exit_code == 1, found.output
        assert ("receipt 1 was altered" if altered else "the end was cut off") in found.output
    export.write_text("{}\n")
    assert "line 1 is no receipt" in command(gateway, *by_file).output
    assert command(gateway, "verify", str(export)).exit_code == 2
    assert json.loads(gateway.run("receipt", "verify", "--head", kept, "-o", "json"))["whole"] is True
    runner = PlayedRunner(gateway)  # it speaks HTTP as the admin
    page = runner.rest("GET", "/receipts?limit=2&newest_first=true").json
    assert ([each["sequence"] for each in page["receipts"]], page["next"]) == ([3, 2], 2)
    one = runner.rest("GET", f"/receipts/{ids[0]}").json
    assert {**one, "account": "default"} == lines[0]
    assert runner.rest("GET", "/receipts/0-0").status == 404
    found = runner.rest("GET", f"/receipt-verification?head={kept}").json
    assert found == {"problems": [], "problem_count": 0, "checked": 3, "head": kept, "complete": True}


@pytest.mark.alone
@pytest.mark.guarantee("V3")
def test_a_gateway_that_is_killed_loses_at_most_the_last_second_and_its_chain_goes_on(gateway: ServingGateway) -> None:
    first = id_of(gateway.call("fast"))
    receipt(gateway, first)
    old, began = [], time.monotonic()
    while time.monotonic() < began + 1.5:
        old.append((time.monotonic(), id_of(gateway.call("fast"))))
    killed = time.monotonic()
    gateway.end(signal.SIGKILL)
    gateway.start()
    last = id_of(gateway.call("fast"))
    receipt(gateway, last)
    kept = {
        each["request_id"] for each in json.loads(gateway.run("receipt", "list", "--limit", "100000", "-o", "json"))
    }
    assert {first, last} <= kept
    assert {request for at, request in old if at < killed - 1.0} <= kept
    assert gateway.run("receipt", "verify").startswith("The receipts of account default are whole: ")


@pytest.mark.guarantee("V2")
def test_a_receipt_that_was_altered_in_the_database_is_told(gateway: ServingGateway) -> None:
    receipt(gateway, id_of(gateway.call("fast")))
    with contextlib.closing(sqlite3.connect(gateway.directory / "pointsman.db", timeout=20)) as database:
        database.execute("UPDATE receipts SET delivered = received")
        database.commit()
    found = command(gateway, "verify")
    assert found.exit_code == 1
    assert "receipt 1 was altered" in found.output
    assert "are not the ones that were written (findings: 1, in 1 receipt)" in found.output
    [problem] = json.loads(command(gateway, "verify", "-o", "json").stdout)["problems"]
    assert problem.startswith("receipt 1 was altered, or ")
