"""The engine: a real model file, a real child, the whole router in front of it."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from pointsman.core.candidate import Candidate, make_bundle
from pointsman.core.endpoint import Endpoint
from pointsman.data_plane import open_router
from pointsman.engine.fleet import EngineFleet
from pointsman.engine.supervisor import Engine, EngineOptions, EngineState, EngineUnavailable
from tests.support.llama_server import model_path
from tests.support.loop_watch import LoopWatch
from tests.support.waiting import wait_until

PROTOCOLS = (
    "openai_chat_completions",
    "openai_completions",
    "openai_responses",
    "anthropic_messages",
    "model_discovery",
)
ASK = {"messages": [{"role": "user", "content": "Count from one to one hundred."}], "model": "whatever"}
WAIT_SECONDS = 10.0
"""For what takes a fraction of a second on an idle machine."""


def run(main: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())  # type: ignore[arg-type]  # tests pass coroutine functions


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def own_children() -> set[int]:
    """Of this process, the engine's among those that other tests started."""
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


@contextlib.asynccontextmanager
async def engine(path: Path | None = None, options: EngineOptions | None = None) -> AsyncIterator[Engine]:
    made = Engine(path or model_path(), clock=time.monotonic, options=options)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture(autouse=True)
def empty_temporary_directory(tmp_path: Path) -> Iterator[Path]:
    """Every test of this file leaves it empty: nothing an engine made in it outlives the engine."""
    directory = tmp_path / ("a directory with a name so long that no socket in it could be dialled " + "x" * 60)
    directory.mkdir()
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield directory
    finally:
        tempfile.tempdir = before
    assert not list(directory.iterdir())


def test_fifty_callers_start_one_child_and_a_cancelled_one_harms_nobody() -> None:
    async def main() -> None:
        async with engine() as made:
            states = [made.state]
            tasks = [asyncio.ensure_future(made.address()) for _ in range(50)]
            await asyncio.sleep(0)
            states.append(made.state)
            tasks[0].cancel()
            addresses = await asyncio.gather(*tasks[1:])
            assert len({address.socket_path for address in addresses}) == 1
            states.append(made.state)
            assert states == [EngineState.IDLE, EngineState.LOADING, EngineState.READY]
            pid = made.pid
        assert pid is not None
        assert not is_running(pid)

    run(main)


def test_a_ready_engine_has_a_private_socket_that_no_directory_lists(empty_temporary_directory: Path) -> None:
    async def main() -> None:
        async with engine() as made:
            address = await made.address()
            assert oct(os.stat(address.socket_path).st_mode & 0o777) == "0o600"
            assert not list(empty_temporary_directory.iterdir())
            assert "Secret" in repr(address)
            assert address.key.reveal() not in repr(address)

    run(main)


def test_the_event_loop_stays_free_while_a_model_loads() -> None:
    async def main() -> None:
        async with engine() as made:
            watch = LoopWatch(asyncio.get_running_loop())
            await made.address()
            # Its beats come between the steps of loading, or there was nothing to measure.
            assert watch.beats > 1
            assert watch.most_ms < 100
            watch.close()

    run(main)


def test_a_killed_child_is_started_again() -> None:
    async def main() -> None:
        async with engine() as made:
            first = await made.address()
            pid = made.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: made.pid is None)  # the loop has no chance to hear of it before the next call
            second = await made.address()
            assert second.key != first.key
            assert made.pid != pid
            _, writer = await asyncio.open_unix_connection(second.socket_path)
            writer.close()

    run(main)


def test_the_child_ends_when_its_parent_is_killed(empty_temporary_directory: Path) -> None:
    program = (
        "import asyncio, sys, time, pathlib\n"
        "from pointsman.engine.supervisor import Engine\n"
        "async def main():\n"
        "    engine = Engine(pathlib.Path(sys.argv[1]), clock=time.monotonic)\n"
        "    await engine.address()\n"
        "    print(engine.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(model_path())]
    environment = {**os.environ, "TMPDIR": str(empty_temporary_directory)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
        wait_until(lambda: not is_running(child))
        assert parent.stderr.read() == ""


def test_routes_to_one_file_share_an_engine_and_a_closed_fleet_starts_nothing() -> None:
    async def main() -> None:
        fleet = EngineFleet(clock=time.monotonic)
        made = fleet.engine(model_path())
        assert fleet.engine(Path(str(model_path()))) is made
        assert fleet.engine(Path("/other.gguf")) is not made
        await made.address()
        pid = made.pid
        await fleet.close()
        assert pid is not None
        assert not is_running(pid)
        with pytest.raises(EngineUnavailable):
            await made.address()

    run(main)


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (-1, "cannot be read: No such file or directory"),
        (0, "is not a GGUF file"),
        (20, r"could not load model\.gguf: failed to read header"),
        (2000, r"could not load model\.gguf: failed to read key-value pairs"),
        (50_000_000, r"could not load model\.gguf: tensor .* model is corrupted or incomplete"),
    ],
)
def test_a_missing_or_cut_model_file_is_one_clear_line(
    tmp_path: Path, size: int, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.gguf"
    if size >= 0:
        with model_path().open("rb") as whole:
            path.write_bytes(whole.read(size))

    async def main() -> None:
        async with engine(path) as made:
            with pytest.raises(EngineUnavailable, match=reason) as caught:
                await made.address()
            assert "\n" not in str(caught.value)
            assert (made.state, made.reason, made.pid) == (EngineState.FAILED, str(caught.value), None)

    run(main)
    assert capfd.readouterr() == ("", "")


def test_a_load_that_takes_too_long_is_ended() -> None:
    async def main() -> None:
        async with engine(options=EngineOptions(load_seconds=0.05)) as made:
            with pytest.raises(EngineUnavailable, match="did not answer in time"):
                await made.address()

    run(main)


def test_an_engine_that_is_closed_while_it_loads_ends_its_child() -> None:
    async def main() -> None:
        async with engine() as made:
            before = own_children()
            caller = asyncio.ensure_future(made.address())
            while not (pids := own_children() - before):
                await asyncio.sleep(0.005)
            await made.close()
            with pytest.raises(EngineUnavailable, match="shutting down"):
                await caller
            assert not any(map(is_running, pids))

    run(main)


@pytest.mark.alone
def test_an_engine_that_is_closed_while_it_generates_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with engine() as made:
            address = await made.address()
            reader, writer = await asyncio.open_unix_connection(address.socket_path)
            body = json.dumps({**ASK, "stream": True, "ignore_eos": True}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {address.key.reveal()}\r\n"
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await reader.readuntil(b'"content":"')
            before = time.monotonic()
            await made.close()
            assert time.monotonic() - before < 1
            writer.close()

    run(main)
    assert capfd.readouterr() == ("", "")


def test_the_child_has_no_keys_no_network_and_cannot_be_dumped() -> None:
    async def main() -> None:
        os.environ["CANARY_API_KEY"] = "sk-canary"
        try:
            async with engine() as made:
                await made.address()
                assert made.pid is not None
                process = Path(f"/proc/{made.pid}")
                assert b"canary" not in (process / "environ").read_bytes().lower()
                assert os.readlink(process / "ns/net") != os.readlink("/proc/self/ns/net")
                limits = (process / "limits").read_text()
                assert [line.split()[4] for line in limits.splitlines() if line.startswith("Max core")] == ["0"]
                status = (process / "status").read_text()
                assert "NoNewPrivs:\t1\n" in status
                for held in ("CapEff", "CapPrm"):  # CAP_DAC_READ_SEARCH at most
                    assert int(status.partition(f"{held}:\t")[2].split()[0], 16) in (0, 4)
        finally:
            del os.environ["CANARY_API_KEY"]

    run(main)


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    for name in ("xllamacpp", "json", "resource"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')")

    async def main() -> None:
        async with engine() as made:
            await made.address()

    with contextlib.chdir(tmp_path):
        run(main)


@pytest.fixture(scope="module")
def routes() -> Candidate:
    return Candidate("sandbox-system", Endpoint("gguf", "", 0, str(model_path())), "smollm2", PROTOCOLS)


def ask(candidate: Candidate, protocol: str, path: str, body: object) -> tuple[int, bytes]:
    found: list[tuple[int, bytes]] = []

    async def main() -> None:
        async with open_router(make_bundle((candidate,))) as router:
            content = json.dumps(body).encode()
            answer = await router.system_inference(
                protocol, "POST", path, [("Content-Type", "application/json")], content
            )
            found.append((answer.status, answer.body))

    run(main)
    return found[0]


def test_a_chat_streams_through_the_router_with_usage(routes: Candidate) -> None:
    body = {**ASK, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    status, answer = ask(routes, PROTOCOLS[0], "/v1/chat/completions", body)
    assert status == 200
    assert answer.endswith(b"data: [DONE]\n\n")
    assert b'"usage":{' in answer


@pytest.mark.parametrize(
    ("protocol", "path", "body"),
    [
        (PROTOCOLS[0], "/v1/chat/completions", {**ASK, "max_tokens": 5}),
        (PROTOCOLS[1], "/v1/completions", {"prompt": "The sky", "max_tokens": 5}),
        (PROTOCOLS[2], "/v1/responses", {"input": "The sky", "max_output_tokens": 5}),
        (PROTOCOLS[3], "/v1/messages", {**ASK, "max_tokens": 5}),
        (PROTOCOLS[3], "/v1/messages/count_tokens", ASK),
    ],
)
def test_every_dialect_is_answered_through_the_router(
    routes: Candidate, protocol: str, path: str, body: object
) -> None:
    status, answer = ask(routes, protocol, path, body)
    assert status == 200
    assert json.loads(answer)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_does_not_fit_is_400_through_the_router(routes: Candidate, stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "word " * 9000}], "stream": stream}
    status, answer = ask(routes, PROTOCOLS[0], "/v1/chat/completions", body)
    assert status == 400
    assert b"context" in answer
