"""Real processes, ended by whoever starts them."""

import contextlib
import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import evidence

POINTSMAN = str(Path(sys.executable).with_name("pointsman"))
_READY = re.compile(r"pointsman: ready proxy=(\S+):(\d+)")


def kept(done: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    """Keep what a process printed as evidence."""
    evidence.keep("cli", f"{done.stdout}\n{done.stderr}")
    return done


def run_to_end(
    command: Sequence[str], *, environ: Mapping[str, str] | None = None, seconds: float = 40, **keywords: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and keep what it printed as evidence. `environ` is added to the environment."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, **(environ or {})},
        check=False,
        **keywords,
    )
    return kept(done)


class ProxyProcess:
    """`pointsman sandbox proxy`, listening."""

    def __init__(self, process: "subprocess.Popen[str]", ca_directory: Path) -> None:
        self.process = process
        self.ca_directory = ca_directory
        self.lines: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.append(line)
            match = _READY.search(line)
            if match:
                self.port = int(match[2])
                break
        else:
            raise AssertionError(f"the proxy did not start: {self.lines}")
        self._drain = threading.Thread(target=self._read, args=(process.stderr,))
        self._drain.start()

    def _read(self, stderr: "Iterator[str]") -> None:
        self.lines.extend(stderr)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bundle(self) -> Path:
        return self.ca_directory / "ca-bundle.pem"

    def client_context(self) -> ssl.SSLContext:
        """Trusts this proxy's authority and nothing else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.ca_directory / "pointsman-ca.pem")
        return context

    def stop(self) -> int:
        self.process.terminate()
        status = self.process.wait(10)
        self._drain.join(10)
        evidence.keep("cli", "".join(self.lines))
        return status


@contextlib.contextmanager
def proxy_process(
    routes: str,
    directory: Path,
    *options: str,
    environ: Mapping[str, str] | None = None,
    stdout: int = subprocess.DEVNULL,
) -> Iterator[ProxyProcess]:
    """Start the proxy on a route file's text."""
    file = directory / "routes.yaml"
    file.write_text(routes)
    file.chmod(0o600)
    with _started(directory, "--inference-routes", str(file), *options, environ=environ, stdout=stdout) as running:
        yield running


@contextlib.contextmanager
def following_process(
    url: str,
    token: str,
    directory: Path,
    *options: str,
    environ: Mapping[str, str] | None = None,
    program: Sequence[str] = (POINTSMAN,),
) -> Iterator[ProxyProcess]:
    """Start the proxy on a gateway."""
    file = directory / "sandbox.token"
    file.write_text(token)
    file.chmod(0o600)
    gateway = ("--gateway", url, "--token-file", str(file))
    with _started(directory, *gateway, *options, environ=environ, program=program) as running:
        yield running


@contextlib.contextmanager
def _started(
    directory: Path,
    *options: str,
    environ: Mapping[str, str] | None = None,
    stdout: int = subprocess.DEVNULL,
    program: Sequence[str] = (POINTSMAN,),
) -> Iterator[ProxyProcess]:
    command = [*program, "sandbox", "proxy", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--ca-dir", str(directory / "ca"), *options],
        stderr=subprocess.PIPE,
        stdout=stdout,
        text=True,
        env=dict(environ) if environ is not None else None,
    )
    try:
        running = ProxyProcess(process, directory / "ca")
        yield running
    finally:
        if process.poll() is None:
            running.stop()
        if process.stderr is not None:
            process.stderr.close()


@contextlib.contextmanager
def llama_server() -> Iterator[int]:
    """A real llama.cpp server; its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.llama_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait(10)
        process.stdin.close()
        process.stdout.close()
