"""Schemathesis over the REST API of a real gateway that has records of every kind (`make api-fuzz`).

Twice: as the admin, and with a key of every permission. All of Schemathesis' checks apply: no error of ours, only
documented statuses, media types, headers and shapes, wrong data refused and right data taken, methods that are not
there refused, no operation open to those without a token.

It is not among the default tests, since it brings a dozen packages of its own. What those have is
`tests/component/test_rest_document.py`, which asks less by the same document.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pointsman.core.data_key import PERMISSIONS
from tests.support.played_runner import PlayedRunner
from tests.support.rest import asked_over_http
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until

_HOOKS = "tests.fuzz.api_hooks"
_CONFIGURATION = Path(__file__).with_name("api.toml")
_MODEL = {"name": "local", "model_identifier": "qwen:7b", "api_endpoint": "http://localhost:11434/v1"}


def provide(gateway: ServingGateway) -> str:
    """Make a record of every kind, and some use of them; a key of every permission."""
    runner = PlayedRunner(gateway)
    runner.model("local")
    gateway.provide("mocked", "mock://answers")
    for method, path, body in (
        ("POST", "/accounts", {"name": "team"}),
        ("POST", "/sandbox-tokens", {"name": "box"}),
        ("POST", "/budgets", {"name": "all", "scope": "account", "unit": "money", "amount": "50", "window": "month"}),
        ("POST", "/policies", {"rules": [{"id": "no-shell", "effect": "block", "denied_tools": ["shell*"]}]}),
        ("PUT", "/routes/inference.local", {"provider_name": "mocked", "model": "m", "verify": False}),
        ("PUT", "/routes/fast", {"candidates": [{"provider_name": "mocked", "model": "m"}], "verify": False}),
        ("PUT", "/prices", {"provider": "mocked", "input": "0.15", "output": "0.6"}),
    ):
        _made(runner, method, path, body)
    key: str = _made(runner, "POST", "/keys", {"name": "laptop", "permissions": list(PERMISSIONS)})["key"]
    wait_until(lambda: gateway.call("fast", key).status == 200)
    return key


def _made(runner: PlayedRunner, method: str, path: str, body: object) -> Any:
    answer = runner.rest(method, path, body)
    assert answer.status in (200, 201), (path, answer.body)
    return answer.json


def schemathesis(command: Path, gateway: ServingGateway, token: str, seconds: int, seed: int | None) -> bool:
    """Whether it found nothing with this token."""
    bearer = {"authorization": f"Bearer {gateway.token_file.read_text().strip()}"}
    with tempfile.TemporaryDirectory() as directory:
        document = Path(directory) / "openapi.json"
        document.write_bytes(
            asked_over_http(gateway.ports["control"], "GET", "/api/v1/openapi.json", None, bearer).body
        )
        options = [f"--url=http://127.0.0.1:{gateway.ports['control']}", f"--header=Authorization: Bearer {token}"]
        options += [f"--max-time={seconds}", "--checks=all", "--mode=all", "--continue-on-failure", "--no-color"]
        options += ["--generation-database=none", "--request-timeout=20", "--suppress-health-check=all"]
        options += ["--warnings=off", *([] if seed is None else [f"--seed={seed}"])]
        environ = {**os.environ, "SCHEMATHESIS_HOOKS": _HOOKS, "PYTHONPATH": os.getcwd()}
        # It leaves files where it runs.
        whole: list[str | Path] = [command.absolute(), f"--config-file={_CONFIGURATION}", "run", *options, document]
        return subprocess.run(whole, env=environ, cwd=directory).returncode == 0


def main() -> int:
    """Both runs; 1 when there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schemathesis", type=Path, required=True, help="its command")
    parser.add_argument("--seconds", type=int, default=60, help="of each run")
    parser.add_argument("--seed", type=int, help="that a run told, to see it again")
    given = parser.parse_args()
    held = True
    for who in ("the admin", "a key"):
        with tempfile.TemporaryDirectory() as directory, serving_gateway(Path(directory), "--receipts=all") as gateway:
            key = provide(gateway)
            token = gateway.token_file.read_text().strip() if who == "the admin" else key
            found_nothing = schemathesis(given.schemathesis, gateway, token, given.seconds, given.seed)
            internal = [line for line in gateway.lines if "internal error" in line]
        print(f"api-fuzz: as {who}: {'no finding' if found_nothing and not internal else 'BROKEN'}", flush=True)
        print("".join(internal), end="", flush=True)
        held = held and found_nothing and not internal
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
