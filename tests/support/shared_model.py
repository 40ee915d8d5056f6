"""A model that is shared the way its users share it: a real gateway process, and beside the model's server, which the
test plays, a real `pointsman runner` process that was registered by its own command.
"""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support import canary, evidence
from tests.support.client_commands import run_client
from tests.support.gateway_process import GatewayProcess
from tests.support.model_server import Answer, ModelServer, Visit, model_server, whole
from tests.support.ports import free_ports
from tests.support.processes import POINTSMAN, run_to_end
from tests.support.waiting import wait_until


@contextlib.contextmanager
def served(answer: Answer, *models: str) -> Iterator[ModelServer]:
    """A model's server in a thread of its own. It lists `models` (`tiny`); all other requests are the test's."""
    listed = json.dumps({"object": "list", "data": [{"id": each} for each in models or ("tiny",)]}).encode()

    async def listing(visit: Visit) -> None:
        if visit.head.startswith(b"GET /v1/models "):
            made[0].visits.remove(visit)
            await visit.send(whole(listed))
        else:
            await answer(visit)

    async def serve() -> None:
        async with model_server(listing) as server:
            made.append(server)
            ready.set()
            await stopped.wait()

    made: list[ModelServer] = []
    ready, stopped = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield made[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(20)
        loop.close()


class Laptop:
    """A runner's machine: its configuration, and its process while it is started."""

    def __init__(self, directory: Path, gateway: GatewayProcess, key_file: Path) -> None:
        self.directory = directory
        self._gateway = gateway
        self._key_file = key_file
        self._process: subprocess.Popen[str] | None = None
        self.printed = ""

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return run_to_end([POINTSMAN, "runner", *words, "--config-dir", str(self.directory)], environ=self.environ())

    def environ(self) -> Mapping[str, str]:
        return {**os.environ, "POINTSMAN_KEY": str(self._key_file)}

    def register(self, url: str, *models: str) -> None:
        """This machine, and the models of one server there."""
        control = f"http://127.0.0.1:{self._gateway.ports['control']}"
        wanted = [word for model in models for word in ("--register", f"{model}@{url}")]
        done = self.command("register", self.directory.name, "--gateway", control, "--url", url, *wanted)
        assert done.returncode == 0, done.stderr

    @property
    def allowlist(self) -> Path:
        return self.directory / "allowlist.json"

    @property
    def runner_id(self) -> str:
        found: str = json.loads((self.directory / "runner.json").read_text())["runner_id"]
        return found

    def forbid(self, model: str) -> None:
        """Take an approval back, as the operator does: in an editor."""
        document = json.loads(self.allowlist.read_text())
        document["models"] = [each for each in document["models"] if each["model_identifier"] != model]
        self.allowlist.write_text(json.dumps(document))

    def start(self) -> None:
        """Until the gateway has its line."""
        told = len(self._gateway.lines)
        self._process = subprocess.Popen(
            [POINTSMAN, "runner", "start", "--config-dir", str(self.directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._gateway.said(f"runner {self.runner_id} of default is connected", told)

    def start_another(self) -> None:
        """As well as the one that runs: it takes the line over, and the one before ends by itself."""
        before, self._process = self._process, None
        self.start()
        assert before is not None
        said, _ = before.communicate(timeout=20)
        evidence.keep("cli", said)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Until it has ended. What it printed is searched."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGCONT)
        process.send_signal(how)
        said, _ = process.communicate(timeout=20)
        self.printed += said
        evidence.keep("cli", said)
        assert canary.PROMPT not in said
        assert "Traceback" not in said, said

    def away(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it, and wait until the gateway knows."""
        told = len(self._gateway.lines)
        self.stop(how)
        self._gateway.said(" has gone", told)


class SharedModels:
    """A gateway, and laptops that share models through it."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack, *options: str) -> None:
        self._directory = directory
        self._stack = stack
        self.gateway = GatewayProcess(directory / "data", free_ports(3), *options)
        stack.callback(self.gateway.close)
        self.gateway.start()
        permissions = [word for each in ("runners:manage", "models:create") for word in ("--permission", each)]
        self._key_file = directory / "user.key"
        self.operate("key", "create", "user", *permissions, "--out", str(self._key_file))

    @property
    def url(self) -> str:
        """Of the data listener, which a process of the role `api` has not."""
        return f"http://127.0.0.1:{self.gateway.ports['data']}"

    def operate(self, *command: str) -> str:
        """An operator's command; what it printed."""
        environ = {"POINTSMAN_DATA_DIR": str(self.gateway.directory)}
        done = run_client(self.gateway.url, *command, environ=environ)
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    def rest(
        self, method: str, path: str, body: object = None, key: str | None = None, runner_token: str = ""
    ) -> tuple[int, Any]:
        """Status and answer of the control API; without `key` as the admin, with an empty one as nobody."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.ports["control"], timeout=20)
        with contextlib.closing(connection):
            headers = {"authorization": f"Bearer {self.gateway.token_file.read_text().strip() if key is None else key}"}
            if runner_token:
                headers = {"x-runner-token": runner_token, "upgrade": "websocket", "connection": "Upgrade"}
                headers |= {"sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
            if body is not None:
                headers["content-type"] = "application/json"
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")

    def models(self) -> list[dict[str, Any]]:
        """What is registered."""
        found: list[dict[str, Any]] = self.rest("GET", "/ai-models")[1]["ai_models"]
        return found

    def model(self, alias: str) -> dict[str, Any]:
        """One of them."""
        return next(each for each in self.models() if each["alias"] == alias)

    def laptop(self, url: str, *models: str, name: str = "laptop") -> Laptop:
        """One that shares models of a server of its own, and is connected."""
        made = Laptop(self._directory / name, self.gateway, self._key_file)
        self._stack.callback(made.stop)
        made.register(url, *models)
        made.start()
        aliases = {each["alias"] for each in self.models() if each["runner_id"] == made.runner_id}
        wait_until(lambda: aliases <= self._served())  # on a busy machine a change takes a while to be in force
        return made

    def _served(self) -> set[str]:
        """What the data listener serves whoever shows no key; all of it where it tells nobody, or is another's."""
        if "data" not in self.gateway.ports:
            return {each["alias"] for each in self.models()}
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.ports["data"], timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/models")
            response = connection.getresponse()
            told = json.loads(response.read())
        if response.status != 200:
            return {each["alias"] for each in self.models()}
        return {each["id"] for each in told["data"]}


@contextlib.contextmanager
def shared_models(directory: Path, *options: str) -> Iterator[SharedModels]:
    """Start a gateway, and stop it with all that is beside it."""
    with contextlib.ExitStack() as stack:
        made = SharedModels(directory, stack, *options)
        yield made
    assert canary.PROMPT not in "".join(made.gateway.lines)
