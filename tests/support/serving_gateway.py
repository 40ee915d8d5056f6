"""A real `pointsman gateway` process as clients of its data listener and its operator see it."""

import contextlib
import json
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.canary import KEY
from tests.support.client_commands import run_client
from tests.support.gateway_process import LISTENERS, GatewayProcess
from tests.support.ports import free_ports
from tests.support.raw_client import Answer, RawClient
from tests.support.waiting import wait_until

CHAT = "/v1/chat/completions"
COLUMNS = "account, route, provider, model, status, prompt_tokens, completion_tokens, attempts, key_name"


class ServingGateway(GatewayProcess):
    """Its data lies in `directory`."""

    @property
    def data_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['data']}/v1"

    def run(self, *arguments: str) -> str:
        """What a command of its operator prints; it must succeed."""
        environ = {"POINTSMAN_DATA_DIR": str(self.directory), "PROVIDER_KEY": KEY}
        result = run_client(self.url, *arguments, environ=environ)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    def provide(self, name: str, url: str) -> None:
        """A provider at a URL that speaks OpenAI's dialects."""
        more = ("--credential", "PROVIDER_KEY", "--config", f"OPENAI_BASE_URL={url}")
        self.run("provider", "create", "--name", name, "--type", "openai_compatible", *more)

    def connect(self) -> RawClient:
        return RawClient(socket.create_connection(("127.0.0.1", self.ports["data"]), 20))

    def send(
        self, client: RawClient, body: Mapping[str, Any], key: str = "", path: str = "/v1/chat/completions"
    ) -> None:
        fields = f"Authorization: Bearer {key}\r\n" if key else ""
        text = json.dumps(body)
        client.send(f"POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {len(text)}\r\n\r\n{text}".encode())

    def call(self, model: str, key: str = "", path: str = CHAT) -> Answer:
        with self.connect() as client:
            self.send(client, {"model": model}, key, path)
            return client.answer()

    def models(self, key: str) -> list[str]:
        with self.connect() as client:
            client.send(f"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
            return [each["id"] for each in json.loads(client.answer().body)["data"]]

    def until_served(self, name: str, key: str = "", *, is_there: bool = True) -> None:
        """Until a model of that name is in force, or is not any more. A key must be in force already."""
        wait_until(lambda: (name in self.models(key)) == is_there)

    def usage(self) -> list[tuple[Any, ...]]:
        """The rows of requests, oldest first: `COLUMNS`."""
        with contextlib.closing(sqlite3.connect(f"file:{self.directory}/pointsman.db?mode=ro", uri=True)) as database:
            return database.execute(f"SELECT {COLUMNS} FROM usage ORDER BY id").fetchall()


@contextlib.contextmanager
def serving_gateway(directory: Path, *options: str, ports: list[int] | None = None) -> Iterator[ServingGateway]:
    """Started, and ended with its block."""
    gateway = ServingGateway(directory, ports or free_ports(len(LISTENERS)), *options)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.close()
