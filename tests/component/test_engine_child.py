"""The engine's child by itself: how it ends, and what it gives up."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pointsman.engine import child as engine_child
from tests.support.llama_server import model_path

CHILD = [sys.executable, "-P", "-m", "pointsman.engine.child"]


@contextmanager
def child(directory: Path, **orders: object) -> Iterator["subprocess.Popen[str]"]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(CHILD, text=True, **pipes) as process:  # type: ignore[call-overload]  # the same for all three
        given: dict[str, object] = {"model_path": str(model_path()), "model_name": "m", "directory": str(directory)}
        given |= {"socket_name": "engine.sock", "key": "k", "threads": 1, "context_tokens": 2048, **orders}
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


def test_a_child_whose_orders_end_while_it_generates_ends_at_once_and_without_a_word(tmp_path: Path) -> None:
    with child(tmp_path) as process, socket.socket(socket.AF_UNIX) as client:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdin is not None
        assert json.loads(process.stdout.readline()) == {"ready": True}
        client.connect(str(tmp_path / "engine.sock"))
        body = json.dumps({"prompt": "The sky", "stream": True, "max_tokens": 1500, "ignore_eos": True}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n"
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        received = b""
        while b'"text":' not in received:
            received += client.recv(65536)
        process.stdin.close()
        assert process.wait(5) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_a_child_that_cannot_load_says_so_in_one_line_and_keeps_the_log_for_standard_error(tmp_path: Path) -> None:
    with child(tmp_path, model_path=str(tmp_path / "missing.gguf")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        answer = process.stdout.read()
        assert answer.count("\n") == 1
        assert list(json.loads(answer)) == ["error"]
        assert "missing.gguf" in process.stderr.read()
        assert process.wait(5) == 1


@pytest.mark.parametrize("orders", ["", "\n", "no json\n", "{}\n"])
def test_a_child_without_sensible_orders_ends_with_an_error(orders: str) -> None:
    done = subprocess.run(CHILD, input=orders, capture_output=True, text=True, timeout=30)
    assert list(json.loads(done.stdout)) == ["error"]
    assert done.returncode == 1


@pytest.mark.parametrize("user", ["this", "nobody"])
def test_a_confined_process_cannot_read_the_keys_of_its_parent(user: str) -> None:
    # The module alone, by the interpreter that everybody may run: this checkout may lie in somebody's closed home.
    interpreter = os.path.realpath(sys.executable)
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        copy = shutil.copy(engine_child.__file__, directory)
        os.chmod(copy, 0o644)
        try_to_read_the_keys(user, interpreter, directory)


def try_to_read_the_keys(user: str, interpreter: str, directory: str) -> None:
    program = (
        "import os, sys\n"
        f"sys.path.insert(0, {directory!r})\n"
        "from child import confine\n"
        "keys = f'/proc/{os.getppid()}/environ'\n"
        "network = os.stat('/proc/thread-self/ns/net').st_ino\n"
        "open(keys).close()\n"
        "confine()\n"
        "print('no namespaces' if os.stat('/proc/thread-self/ns/net').st_ino == network else 'confined')\n"
        "try:\n"
        "    open(keys).close()\n"
        "except PermissionError:\n"
        "    print('refused')\n"
    )
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if user == "nobody" and os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    # The shell stands for the supervisor: the same user, with all its privileges, and the parent.
    shell = ["sh", "-c", '"$0" -P -c "$1"; exit $?', interpreter, program]
    done = subprocess.run(
        [*(as_nobody if user == "nobody" else []), *shell], capture_output=True, text=True, timeout=30
    )
    if (os.getuid() != 0 or user == "nobody") and done.stdout.startswith("no namespaces"):
        pytest.skip("this system gives no namespaces to users")
    assert (done.stdout, done.stderr) == ("confined\nrefused\n", "")
