"""The gateway as its container starts it: the recipe's command, user and health check, the compose file's mounts,
secrets and environment, in namespaces that bubblewrap makes, since there may be no container engine here.

The files of deploy/ are used as they stand but for the addresses of the providers. Not here: the build of the image.
"""

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_deploy import DEPLOY, last_stage
from tests.support import evidence
from tests.support.canary import KEY
from tests.support.dialects import Say
from tests.support.llama_server import model_path
from tests.support.ports import free_ports
from tests.support.processes import POINTSMAN, run_to_end
from tests.support.scripted_model import ScriptedModel

USER = last_stage()["USER"][0].split(":")[0]
HOWTO = (DEPLOY.parent / "docs" / "howto" / "run-in-a-container.md").read_text()
COMMAND = json.loads(last_stage()["CMD"][0])


def make_certificate(directory: Path) -> None:
    """As the how-to tells: its files are in `secrets`."""
    [command] = re.findall(r"^openssl req (?:.*\\\n)+.*$", HOWTO, re.MULTILINE)
    subprocess.run(command, shell=True, cwd=directory, capture_output=True, timeout=30, check=True)


class Container:
    """One start of a compose file's service, with a scripted provider in the place of both."""

    def __init__(self, compose: str, directory: Path, provider: str) -> None:
        self.service: dict[str, Any] = yaml.safe_load((DEPLOY / compose).read_text())["services"]["gateway"]
        self.directory = directory
        self.data, self.control, self.grpc = free_ports(3)
        config = yaml.safe_load((DEPLOY / "pointsman.yaml").read_text())
        for each in config["providers"]:
            if "base_url" in each:
                each["base_url"] = provider
        (directory / "pointsman.yaml").write_text(yaml.safe_dump(config))
        for name in ("models", "data", "secrets"):
            (directory / name).mkdir()
        (directory / "data").chmod(0o700)
        (directory / "models" / "small.gguf").symlink_to(model_path())
        make_certificate(directory)
        for name in self.service["secrets"]:
            if name.endswith("_api_key"):
                (directory / "secrets" / name).write_text(f"{KEY}-{name}\n")
        self.lines: list[str] = []

    def environment(self) -> dict[str, str]:
        """The compose file's, with ports that are free here."""
        given = {**self.service.get("environment", {}), "POINTSMAN_DATA_DIR": "/var/lib/pointsman"}
        given["POINTSMAN_LISTEN__DATA"] = given.get("POINTSMAN_LISTEN__DATA", "127.0.0.1:8780")
        given |= {"POINTSMAN_LISTEN__CONTROL": "127.0.0.1:8781", "POINTSMAN_LISTEN__GRPC": "127.0.0.1:8782"}
        given.setdefault("POINTSMAN_GATEWAY", "http://127.0.0.1:8782")
        for theirs, ours in ((8780, self.data), (8781, self.control), (8782, self.grpc)):
            given = {name: value.replace(f":{theirs}", f":{ours}") for name, value in given.items()}
        return given

    def argv(self, *command: str) -> list[str]:
        """What runs a command in the container: its mounts, its user, its read-only root, no rights."""
        words = ["bwrap", "--unshare-user", "--uid", USER, "--gid", USER, "--unshare-pid", "--as-pid-1"]
        words += ["--die-with-parent", "--clearenv", "--tmpfs", "/", "--tmpfs", "/tmp", "--dev", "/dev"]
        words += ["--proc", "/proc"]
        for path in ("/usr", "/etc/ssl", "/etc/hosts", sys.base_prefix, str(DEPLOY.parent), str(model_path().parent)):
            words += ["--ro-bind-try", path, path]
        for name in ("bin", "lib", "lib64", "sbin"):
            words += ["--symlink", f"usr/{name}", f"/{name}"]
        words += ["--ro-bind", str(DEPLOY / "health.py"), "/opt/pointsman/health.py"]
        for mount in self.service["volumes"]:
            bind = "--ro-bind" if mount.get("read_only") else "--bind"
            words += [bind, str(self.directory / mount["source"]), mount["target"]]
        for name in self.service["secrets"]:
            words += ["--ro-bind", str(self.directory / "secrets" / name), f"/run/secrets/{name}"]
        words += ["--remount-ro", "/", "--chdir", "/var/lib/pointsman"]
        for name, value in self.environment().items():
            words += ["--setenv", name, value]
        return [*words, *command]

    @contextlib.contextmanager
    def up(self) -> Iterator[int]:
        """Started; the number of its first process, outside."""
        told, tell = os.pipe()
        argv = self.argv(POINTSMAN, *self.service.get("command", COMMAND))
        argv[1:1] = ["--info-fd", str(tell)]
        process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, pass_fds=[tell])
        os.close(tell)
        with os.fdopen(told) as information:
            first = int(json.load(information)["child-pid"])
        assert process.stderr is not None
        try:
            for line in process.stderr:
                self.lines.append(line)
                if "pointsman: ready " in line:
                    break
            else:
                raise AssertionError(self.lines)
            reader = threading.Thread(target=lambda: self.lines.extend(process.stderr or ()))
            reader.start()
            yield first
            os.kill(first, signal.SIGTERM)
            assert process.wait(30) == 0, self.lines
            reader.join(30)
        finally:
            process.kill()
            process.wait(30)
            process.stderr.close()
            evidence.keep("cli", "".join(self.lines))

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """`docker compose exec gateway COMMAND`."""
        return run_to_end(self.argv(*command), seconds=60)

    def healthy(self) -> int:
        """The exit status of the health check."""
        recipe = json.loads(last_stage()["HEALTHCHECK"][0].partition("CMD ")[2])
        _, *command = self.service.get("healthcheck", {"test": ["CMD", *recipe]})["test"]
        scheme = [] if "https" in command else ["http"]
        return self.run(*command, *scheme, str(self.data)).returncode

    def ask_until_known(self, key: str | None) -> tuple[int, str, Any]:
        """The same: the data listener learns of a new key a moment after the command has ended."""
        for _ in range(20):
            with contextlib.suppress(urllib.error.HTTPError):
                return self.ask(key)
            time.sleep(0.25)
        return self.ask(key)

    def ask(self, key: str | None) -> tuple[int, str, Any]:
        """Status, the model that answered, and the body."""
        scheme = "https" if key else "http"
        body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "Hello"}]}).encode()
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{self.data}/v1/chat/completions", body)
        request.add_header("Authorization", f"Bearer {key}")
        context = ssl.create_default_context(cafile=self.directory / "secrets" / "tls_cert")
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.headers["x-pointsman-model"], json.load(answer)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("compose", ["compose.yaml", "compose.host-network.yaml"])
def test_the_service_starts_is_healthy_serves_and_ends(compose: str, tmp_path: Path) -> None:
    with ScriptedModel(lambda _: Say("hello")) as provider:
        container = Container(compose, tmp_path, provider.url)
        assert container.healthy() == 1
        with container.up():
            assert container.healthy() == 0
            made = container.run(POINTSMAN, "key", "create", "laptop")
            assert made.returncode == 0, made.stderr
            key = made.stdout.strip() if "ports" in container.service else None
            status, model, body = container.ask_until_known(key)
            assert (status, model) == (200, "llama-3.3-70b-versatile")
            assert body["choices"][0]["message"]["content"] == "hello"
        assert provider.calls[0].fields["authorization"] == f"Bearer {KEY}-groq_api_key"
    assert KEY not in "".join(container.lines)
