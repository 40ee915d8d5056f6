"""A real gateway whose stages have something to do: budgets, policies, prices, receipts, keys that differ."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.client_commands import run_client
from tests.support.raw_client import Answer
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.upstream import Upstream
from tests.support.waiting import wait_until

WORD = "forbidden-word"
POLICY = f"""
rules:
  - {{id: no-word, effect: block, pattern: {WORD}, keys: [free]}}
  - {{id: hide, effect: redact, pattern: 'mail-[0-9]+', keys: [free]}}
  - {{id: short, effect: block, most_tokens: 8000, keys: [bounded]}}
  - {{id: closed, effect: block, denies_route: true, keys: [shut]}}
  - {{id: answers, side: response, effect: block, pattern: {WORD}, keys: [free]}}
"""
DRY_RUN = """
rules:
  - {id: no-mail, effect: block, pattern: 'mail-[0-9]+', keys: [free]}
"""
KEYS = {
    "free": (),
    "bounded": (),
    "shut": (),
    "spent": (),
    "far": ("--from", "10.0.0.0/8"),
    "narrow": ("--route", "other"),
}
BUDGETS = (
    ("once", "--key", "spent", "--requests", "1", "--window", "total"),
    ("all-tokens", "--key", "free", "--tokens", "1000000", "--window", "month"),
    ("all-money", "--key", "free", "--money", "2.5", "--window", "total"),
    ("watched", "--key", "free", "--requests", "1", "--window", "day", "--soft"),
)


class Staged:
    """Who asks it what would become of a request, and sends the request."""

    def __init__(self, gateway: ServingGateway, upstream: Upstream) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.keys: dict[str, str] = {}

    def ask(self, *arguments: str, body: object = None, status: int | None = 0) -> dict[str, Any]:
        stdin = None if body is None else body if isinstance(body, str) else json.dumps(body)
        words = ("explain", *arguments, *(() if body is None else ("--body", "-")), "-o", "json")
        done = run_client(
            self.gateway.url, *words, environ={"POINTSMAN_DATA_DIR": str(self.gateway.directory)}, stdin=stdin
        )
        assert done.exit_code in ((0, 1) if status is None else (status,)), done.output
        made: dict[str, Any] = json.loads(done.stdout)
        return made

    def send(self, key: str, body: object) -> Answer:
        """Its whole answer; for what no upstream is asked for."""
        text = body if isinstance(body, str) else json.dumps(body)
        with self.gateway.connect() as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {self.keys[key]}\r\n"
            client.send(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            return client.answer()

    def stored(self) -> list[str]:
        """All rows of both databases."""
        rows: list[str] = []
        for name in ("pointsman.db", "quota.db"):
            path = f"file:{self.gateway.directory / name}?mode=ro"
            with contextlib.closing(sqlite3.connect(path, uri=True)) as database:
                rows += database.iterdump()
        return rows


def is_in_force(staged: Staged) -> bool:
    """Whether what was set last is."""
    made = staged.ask("fast", "--key-name", "free", status=None)
    return any(each["about"] == "policy 2" for stage in made["stages"] for each in stage["facts"])


@contextlib.contextmanager
def staged_gateway(directory: Path) -> Iterator[Staged]:
    """Started, and ended with its block."""
    config = directory / "pointsman.yaml"
    with Upstream() as upstream:
        work = {
            "name": "work",
            "type": "openai_compatible",
            "base_url": upstream.url,
            "model": "big",
            "api_key": "none",
        }
        routes = [
            {"name": "fast", "candidates": [{"provider": "canned"}], "context": "drop-duplicates,most-tokens=1000"},
            {"name": "slow", "candidates": [{"provider": "work"}]},
            {"name": "other", "candidates": [{"provider": "canned"}]},
        ]
        providers = [{"name": "canned", "type": "mock", "model": "small"}, work]
        config.write_text(json.dumps({"providers": providers, "routes": routes, "receipts": ["fast"]}))
        with serving_gateway(directory / "data", "--config", str(config), "--data-auth=keys") as gateway:
            staged = Staged(gateway, upstream)
            for name, options in KEYS.items():
                staged.keys[name] = gateway.run("key", "create", name, *options)
            for budget in BUDGETS:
                gateway.run("budget", "create", *budget)
            gateway.run("price", "set", "canned=small", "--input-price", "2", "--output-price", "4")
            gateway.run(
                "price", "set", "work", "--input-price", "10", "--output-price", "100", "--request-price", "0.001"
            )
            (directory / "policy.yaml").write_text(POLICY)
            gateway.run("policy", "set", str(directory / "policy.yaml"))
            gateway.run("policy", "enforce")
            (directory / "policy.yaml").write_text(DRY_RUN)
            gateway.run("policy", "set", str(directory / "policy.yaml"))
            wait_until(lambda: is_in_force(staged))
            yield staged
