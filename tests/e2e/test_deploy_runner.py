"""A gateway of several processes and a runner, as compose.apw-runner.yaml tells: register, stream, stop, on real parts.

In namespaces that bubblewrap makes, as tests/e2e/test_deploy.py; the file is used as it stands but for its ports and
the addresses of PostgreSQL and of the broker. What breaks is tried by `make acceptance-runner`.
"""

import json
import re
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import openai
import pytest
import yaml

from tests.acceptance.runner.program import Program
from tests.docs.test_deploy import RUNNERS
from tests.e2e.test_deploy import Container, make_certificate
from tests.support import canary, evidence
from tests.support.databases import postgres_server
from tests.support.nats_server import nats_server
from tests.support.ports import free_ports
from tests.support.processes import POINTSMAN, llama_server, run_to_end

SERVICES = yaml.safe_load(RUNNERS.read_text())["services"]
HEALTHY = "health: 200\n"
AT_ONCE = 1.0
"""Seconds, on a busy machine; the acceptance demands a tenth."""


class Process(Container):
    """One of the gateway's services."""

    def __init__(self, name: str, directory: Path, database_url: str, nats_url: str) -> None:
        self.service = SERVICES[name]
        self.directory = directory
        self.data, self.control, self.grpc = free_ports(3)
        self.lines: list[str] = []
        self._urls = {"POINTSMAN_DATABASE_URL": database_url, "POINTSMAN_NATS_URL": nats_url}

    def environment(self) -> dict[str, str]:
        """The compose file's, with ports that are free here."""
        given = {
            "POINTSMAN_LISTEN__CONTROL": "127.0.0.1:8781",
            "POINTSMAN_LISTEN__GRPC": "127.0.0.1:8782",
            **self.service["environment"],
        }
        assert set(self._urls) < set(given)
        given |= self._urls
        for theirs, ours in ((54001, self.data), (54000, self.control), (8781, self.control), (8782, self.grpc)):
            given = {name: re.sub(rf":{theirs}\b", f":{ours}", value) for name, value in given.items()}
        return given

    def health(self) -> str:
        """What the health check says."""
        _, *command, _ = self.service["healthcheck"]["test"]
        port = self.control if self.service["environment"]["POINTSMAN_ROLE"] == "api" else self.data
        done = self.run(*command, str(port))
        return done.stdout + done.stderr


@contextmanager
def running_runner(api: Process, directory: Path, model_url: str, key: str) -> Iterator[tuple[Program, str]]:
    """It has registered a model, and is connected; the model's alias."""
    user_key, config = directory / "user.key", directory / "runner"
    user_key.touch(0o600)
    user_key.write_text(key)
    register = [POINTSMAN, "runner", "register", "desk", f"--gateway=https://localhost:{api.control}"]
    register += [f"--gateway-ca={directory / 'secrets' / 'tls_cert'}", f"--key-file={user_key}"]
    register += [f"--config-dir={config}", f"--url={model_url}", "--register-all"]
    deadline = time.monotonic() + 60
    while "clients call it" not in (done := run_to_end(register, seconds=60)).stdout:
        assert time.monotonic() < deadline, done.stdout + done.stderr  # the model may not be read yet
    (approved,) = json.loads((config / "allowlist.json").read_text())["models"]
    assert approved["base_url"] == model_url
    runner = Program("runner", [POINTSMAN, "runner", "start", f"--config-dir={config}"])
    try:
        runner.start("pointsman: ready ")
        yield runner, re.findall(r"clients call it (\S+)", done.stdout)[-1]
    finally:
        runner.close()
        evidence.keep("cli", "".join(runner.lines))


def _stream(client: openai.OpenAI, alias: str) -> str:
    """Each worker learns of a new model a moment after it was registered."""
    messages: list[openai.types.chat.ChatCompletionUserMessageParam] = [{"role": "user", "content": canary.PROMPT}]
    for _ in range(40):
        try:
            chunks = client.chat.completions.create(model=alias, messages=messages, max_tokens=4, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        except (openai.NotFoundError, openai.AuthenticationError):
            time.sleep(0.25)
    raise AssertionError(f"{alias} is not served")


@pytest.mark.timeout(180)
def test_a_model_beside_a_runner_is_served_by_every_worker_until_the_runner_stops(tmp_path: Path) -> None:
    with ExitStack() as stack:
        model_port = stack.enter_context(llama_server())
        server = stack.enter_context(postgres_server())
        broker = stack.enter_context(nats_server(tmp_path))
        for name in ("data", "secrets"):
            (tmp_path / name).mkdir()
        (tmp_path / "data").chmod(0o700)
        make_certificate(tmp_path)
        url = server.url(server.new_database())
        api, *workers = (Process(name, tmp_path, url, broker.url) for name in ("api", "data-1", "data-2"))
        stack.enter_context(api.up())
        assert api.health() == HEALTHY
        pool = stack.enter_context(ThreadPoolExecutor())  # processes end with the thread that started them
        list(pool.map(lambda worker: stack.enter_context(worker.up()), workers))
        permissions = [f"--permission={each}" for each in ("inference", "runners:manage", "models:create")]
        made = api.run(POINTSMAN, "key", "create", "user", *permissions)
        assert made.returncode == 0, made.stderr
        key, model_url = made.stdout.strip(), f"http://localhost:{model_port}/v1"
        runner, alias = stack.enter_context(running_runner(api, tmp_path, model_url, key))
        context = ssl.create_default_context(cafile=tmp_path / "secrets" / "tls_cert")
        clients = [
            openai.OpenAI(
                base_url=f"https://localhost:{worker.data}/v1",
                api_key=key,
                max_retries=0,
                http_client=stack.enter_context(openai.DefaultHttpx2Client(verify=context, timeout=60)),
            )
            for worker in workers
        ]
        assert [worker.health() for worker in workers] == [HEALTHY] * 2
        told = [_stream(client, alias) for client in clients]
        assert all(told), told
        assert runner.end() == 0
        for client in clients:
            began = time.monotonic()
            with pytest.raises(openai.InternalServerError) as refused:
                client.chat.completions.create(model=alias, messages=[{"role": "user", "content": "Hello"}])
            assert time.monotonic() - began < AT_ONCE
            assert (refused.value.status_code, refused.value.code) == (503, "runner_offline")
    for process in (api, *workers):
        assert canary.PROMPT not in "".join(process.lines)
