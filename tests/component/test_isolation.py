"""An isolated command, from the supervisor's side: real namespaces, both event loops. Needs root, as CI has."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from pointsman.sandbox.child import NOBODY, CannotStart, User
from pointsman.sandbox.choice import Isolation
from pointsman.sandbox.isolation import SandboxProcess, start
from pointsman.sandbox.orders import Command

PYTHON = sys.executable
ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
REPORT = """
import json, socket
def report(value):
    with socket.create_connection(("127.0.0.1", 3128), 5) as door:
        door.sendall(json.dumps(value).encode())
"""
"""How a command inside tells what it found: through the only thing that it can reach."""


@pytest.fixture(autouse=True)
def _as_root() -> None:
    if os.geteuid() != 0:
        pytest.fail("these tests make network namespaces: run them as root, as CI does")


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Awaitable[Any]], Any]]:
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run  # type: ignore[misc]  # it takes coroutines, which is what every test gives it


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where commands run. pytest's directories are closed to others, so it has to be shown inside a cover."""
    directory = tmp_path / "work"
    directory.mkdir(mode=0o755)
    return directory


def program(work: Path, *argv: str, user: User | None = NOBODY) -> Command:
    return Command(argv, user, str(work), ENVIRONMENT["PATH"])


@contextlib.asynccontextmanager
async def prepared(command: Command, isolation: Isolation = Isolation.NETNS, port: int = 3128) -> Any:
    process = await start(command, isolation, port)
    try:
        yield process
    finally:
        await process.close()


async def reported(command: Command, environment: dict[str, str] | None = None) -> Any:
    """What the command tells the listener."""
    process: SandboxProcess
    async with asyncio.timeout(20), prepared(command) as process:
        await process.release(environment or ENVIRONMENT)
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(process.listener)
        with connection:
            connection.setblocking(False)
            received = b""
            while data := await loop.sock_recv(connection, 65536):
                received += data
        assert await process.wait() == 0
    return json.loads(received)


async def status_of(command: Command, isolation: Isolation = Isolation.NETNS, port: int = 3128) -> int:
    async with asyncio.timeout(20), prepared(command, isolation, port) as process:
        await process.release(ENVIRONMENT)
        status: int = await process.wait()
        return status


def test_the_listener_handed_out_is_the_one_that_answers_inside(run: Any, work: Path) -> None:
    code = REPORT + "report([name for _, name in socket.if_nameindex()])"
    assert run(reported(program(work, PYTHON, "-c", code))) == ["lo"]


def test_only_what_is_needed_is_visible_in_a_closed_directory(run: Any, work: Path) -> None:
    closed = work.parent / "closed"
    for name in ("tools/bin", "tools/lib", "tools/share", "shown"):
        (closed / name).mkdir(parents=True)
    (closed / "secret").write_text("secret")
    tool = closed / "tools/bin/tool"
    tool.write_text(
        f"#!{PYTHON}\n"
        + REPORT
        + """
import os, sys
closed = sys.argv[1]
found = {path[len(closed):]: sorted(dirs + files) for path, dirs, files in os.walk(closed)}
for place in ("", "/tools/bin"):
    try:
        open(closed + place + "/new", "w")
    except OSError as error:
        found["write" + place] = error.errno
report(found)
"""
    )
    tool.chmod(0o755)
    closed.chmod(0o700)
    command = replace(program(work, str(tool), str(closed)), expose=(str(closed / "shown"),))
    found = run(reported(command))
    assert found[""] == ["shown", "tools"]
    assert found["/tools"] == ["bin", "lib"]
    assert found["/tools/bin"] == ["tool"]
    assert (found["write"], found["write/tools/bin"]) == (13, 30)  # not its owner; a read-only file system


def test_home_is_private_while_the_command_runs_and_gone_afterwards(run: Any, work: Path) -> None:
    code = (
        REPORT
        + """
import os
home = os.environ["HOME"]
open(home + "/file", "w").close()
os.makedirs(home + "/deep/er", 0)
status = os.stat(home)
report([home, status.st_uid, oct(status.st_mode), os.environ["USER"], os.environ["PWD"], os.getcwd()])
"""
    )
    environment = {**ENVIRONMENT, "HOME": "/root", "USER": "root", "PWD": "/elsewhere"}
    home, *rest = run(reported(program(work, PYTHON, "-c", code), environment))
    assert rest == [65534, "0o40700", "nobody", str(work), str(work)]
    assert not Path(home).exists()


@pytest.mark.parametrize("isolation", [Isolation.NETNS, Isolation.NONE])
@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 125", 125), ("exit 255", 255), ("kill -INT $$", 130), ("kill -KILL $$", 137)],
)
def test_the_status_is_the_commands(run: Any, work: Path, isolation: Isolation, script: str, status: int) -> None:
    user = NOBODY if isolation is Isolation.NETNS else None
    port = 3128 if isolation is Isolation.NETNS else 0
    assert run(status_of(program(work, "sh", "-c", script, user=user), isolation, port)) == status


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("#!/no/such/interpreter\n", 0o755, "its interpreter does not exist"),
        ("no first line\n", 0o755, "neither a program nor a script"),
        ("#!/bin/sh\n", 0o700, "nobody may not execute it"),
    ],
)
def test_what_cannot_be_executed_is_told_when_it_is_released(
    run: Any, work: Path, text: str, mode: int, words: str
) -> None:
    (work / "agent").write_text(text)
    (work / "agent").chmod(mode)
    with pytest.raises(CannotStart, match=words):
        run(status_of(program(work, "./agent")))


@pytest.mark.parametrize("expose", [False, True])
def test_a_directory_the_user_may_not_enter_is_told_before_anything_starts(run: Any, work: Path, expose: bool) -> None:
    closed = work / "closed"
    closed.mkdir(mode=0o700)
    command = program(work, "true")
    command = replace(command, expose=(str(closed),)) if expose else replace(command, cwd=str(closed))
    with pytest.raises(CannotStart, match="nobody may not enter"):
        run(status_of(command))


def test_a_port_in_use_is_told_without_isolation(run: Any, work: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"cannot listen on 127.0.0.1:{port}"):
            run(status_of(program(work, "true", user=None), Isolation.NONE, port))


def test_a_command_that_was_never_released_leaves_nothing(run: Any, work: Path) -> None:
    async def give_up(isolation: Isolation, user: User | None) -> int:
        async with prepared(program(work, "true", user=user), isolation, 3128 if user else 0) as process:
            pid: int = process.pid
        return pid

    for isolation, user in ((Isolation.NETNS, NOBODY), (Isolation.NONE, None)):
        assert not Path(f"/proc/{run(give_up(isolation, user))}").exists()


def test_closing_ends_a_command_that_ignores_every_signal(run: Any, work: Path) -> None:
    code = (
        REPORT
        + """
import signal
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
report("deaf")
signal.pause()
"""
    )

    async def close_it() -> int:
        async with asyncio.timeout(20), prepared(program(work, PYTHON, "-c", code)) as process:
            await process.release(ENVIRONMENT)
            connection, _ = await asyncio.get_running_loop().sock_accept(process.listener)
            connection.close()
            await process.close()
            status: int = await process.wait()
            return status

    assert run(close_it()) == 137


@pytest.mark.parametrize("number", [0, 31])
def test_a_signal_that_cannot_be_passed_on_is_refused(run: Any, work: Path, number: int) -> None:
    async def send() -> None:
        async with prepared(program(work, "true")) as process:
            process.send_signal(number)

    with pytest.raises(ValueError, match="cannot be passed on"):
        run(send())


@pytest.mark.parametrize("isolation", [Isolation.NETNS, Isolation.NONE])
@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH"])
def test_each_signal_reaches_the_command_once(work: Path, isolation: Isolation, name: str) -> None:
    code = f"""
import signal
got = []
signal.signal(signal.{name}, lambda number, _: got.append(number))
print("ready", flush=True)
while not got:
    signal.pause()
print(len(got), flush=True)
"""
    number = signal.Signals[name]
    with subprocess.Popen(
        [PYTHON, "-m", "tests.support.supervisor", isolation, str(work), PYTHON, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "ready\n"
        supervisor.send_signal(number)
        assert supervisor.stdout.readline() == "1\n"
        assert supervisor.wait(10) == 0
