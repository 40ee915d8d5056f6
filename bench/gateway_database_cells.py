"""Cells about the gateway's database and its files, on SQLite and on PostgreSQL."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import grpc
from bench.gateway_cells import Cell, NotHere, Options, refusal, start_again
from bench.gateway_world import POLL_SECONDS, Seen, World
from bench.operators import held

from pointsman.cli.call import CallFailed
from pointsman.rpc.gen import control_pb2, datamodel_pb2, inference_pb2, inference_pb2_grpc

_DISK = "64m"
"""Gateways that are killed again and again leave some 10 MiB of logs ahead of their databases."""
_LARGE = "v" * 8000
_MOST_TRIES = 40
_WAITS_SECONDS = 0.6
"""Without an answer, an operator is taken to wait for another's turn."""
_FRESH_SECONDS = 0.05
"""`StoreSettings.freshness_seconds`: what a gateway may not know yet of another's writes."""


def data_directory(path: Path, stack: ExitStack) -> None:
    """A directory for a gateway's data; a small disk of its own when that can be had."""
    path.mkdir(mode=0o700)
    if (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=700", "pointsman-faults", str(path)],
            capture_output=True,
            check=False,
        ).returncode
    ):
        stack.callback(subprocess.run, ["umount", str(path)], check=False)


def _locked(seconds: float, world: World, options: Options) -> Seen:
    with contextlib.closing(sqlite3.connect(world.gateway.directory / "pointsman.db", isolation_level=None)) as other:
        other.execute("PRAGMA busy_timeout = 5000")
        other.execute("BEGIN EXCLUSIVE")
        time.sleep(seconds)
        other.execute("ROLLBACK")
        return Seen(time.monotonic())


def disk_full(world: World, options: Options) -> Seen:
    directory = world.gateway.directory
    if not os.path.ismount(directory):
        raise NotHere("only root can mount a small disk")
    seen, ballast = Seen(0.0), directory / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    names = []
    for number in range(400):
        record = datamodel_pb2.Provider(name=f"large-{number}", type="openai", config={"A": _LARGE, "B": _LARGE})
        record.credentials["OPENAI_API_KEY"] = _LARGE
        try:
            world.create_provider(record)
        except CallFailed as failure:
            seen.operators.append(f"a large record: {failure.code}: {failure.message}")
            if failure.code != "RESOURCE_EXHAUSTED":
                seen.wrong.append(f"a full disk is told as {failure.code}")
            break
        names.append(record.name)
    else:
        seen.wrong.append("the disk was never full")
    time.sleep(4 * POLL_SECONDS)
    seen.mended = time.monotonic()
    ballast.unlink()
    for name in names:
        world.delete_provider(name)
    return seen


def _read_only(world: World, options: Options) -> Seen:
    """Of a gateway that may not pass over modes, as root may."""
    gateway, file = world.gateway, world.gateway.directory / "pointsman.db"
    gateway.end()
    if os.geteuid() == 0:
        gateway.prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    seen = Seen(0.0)
    try:
        file.chmod(0o400)
        gateway.start()
        time.sleep(4 * POLL_SECONDS)
        health = _health(world)
        seen.operators.append(f"status: {health}")
        gateway.end()
    finally:
        file.chmod(0o600)
        gateway.prefix = ()
        seen.mended = time.monotonic()
        gateway.start()
    return seen


def _health(world: World) -> str:
    try:
        with world.operators[0].access.open() as gateway:
            status = gateway.call(gateway.control.GetStatus, control_pb2.GetStatusRequest())
            return f"{status.providers} providers"
    except CallFailed as failure:
        return f"{failure.code}: {failure.message}"


def _garbage(world: World, options: Options) -> Seen:
    """Three kinds of damage, while it is down."""
    gateway, seen = world.gateway, Seen(0.0)
    file, kept = gateway.directory / "pointsman.db", world.directory / "kept.db"
    gateway.end()
    shutil.copy(file, kept)
    good = kept.read_bytes()
    middle = len(good) // 2 // 4096 * 4096
    damages = {
        "random bytes": options.rng.randbytes(len(good)),
        "an empty file": b"",
        "cut in half": good[:middle],
        "pages of garbage": good[:4096] + options.rng.randbytes(len(good) - 4096),
    }
    for name, data in damages.items():
        file.write_bytes(data)
        before = sorted(path.name for path in gateway.directory.iterdir())
        seen.operators.append(f"{name}: {refusal(gateway, seen)}")
        if file.read_bytes() != data:
            seen.wrong.append(f"{name}: the file was changed")
        if sorted(path.name for path in gateway.directory.iterdir()) != before:
            seen.wrong.append(f"{name}: files were made: {sorted(gateway.directory.iterdir())}")
    shutil.copy(kept, file)
    seen.mended = time.monotonic()
    gateway.start()
    return seen


def _exchanged(world: World, options: Options) -> Seen:
    """While it runs: another file is moved into its place, as by somebody who restores a backup too early."""
    gateway, seen = world.gateway, Seen(0.0)
    file, aside, backup = (gateway.directory / f"pointsman.db{end}" for end in ("", ".aside", ".backup"))
    with held(world.operators), contextlib.closing(sqlite3.connect(file)) as old:
        with contextlib.closing(sqlite3.connect(backup)) as new:
            old.backup(new)
        file.rename(aside)
        backup.rename(file)
        # More than SQLite gathers before it writes them to the file that it holds open.
        done = [world.operators[0].point()]
        while len(done) < 400 and done[-1].code == "OK":
            done.append(world.operators[len(done) % len(world.operators)].point(verify=False))
        seen.operators += sorted({f"{each.code}: {each.text}" for each in done if each.code == "OK"})
    time.sleep(2 * POLL_SECONDS)
    with held(world.operators):
        gateway.end()
        aside.unlink()
        seen.mended = time.monotonic()
        gateway.start()
    return seen


def _locked_at_the_start(world: World, options: Options) -> Seen:
    """For longer than it waits."""
    gateway, seen = world.gateway, Seen(0.0)
    gateway.end()
    with contextlib.closing(sqlite3.connect(gateway.directory / "pointsman.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        seen.operators.append(f"at the start: {refusal(gateway, seen)}")
        other.execute("ROLLBACK")
    seen.mended = time.monotonic()
    gateway.start()
    return seen


def _key_file(world: World, options: Options) -> Seen:
    gateway, seen = world.gateway, Seen(0.0)
    path = gateway.directory / "credentials.key"
    key = path.read_bytes()
    gateway.end()
    path.unlink()
    seen.operators.append(f"missing: {refusal(gateway, seen)}")
    if path.exists():
        seen.wrong.append("a new key was made")
    for name, data, mode in (
        ("another key", b"A" * 43 + b"=\n", 0o600),
        ("no key", b"hello\n", 0o600),
        ("readable by all", key, 0o644),
    ):
        path.write_bytes(data)
        path.chmod(mode)
        seen.operators.append(f"{name}: {refusal(gateway, seen)}")
    path.write_bytes(key)
    path.chmod(0o600)
    seen.mended = time.monotonic()
    gateway.start()
    return seen


def _admin_token(world: World, options: Options) -> Seen:
    """Deleted while the gateway runs; then it is started again."""
    gateway, seen = world.gateway, Seen(0.0)
    old = gateway.token_file.read_bytes()
    gateway.token_file.unlink()
    time.sleep(4 * POLL_SECONDS)
    gateway.end()
    seen.mended = time.monotonic()
    gateway.start()
    if gateway.token_file.read_bytes() == old:
        seen.wrong.append("the old token is there again")
    return seen


def _while_postgresql(world: World, act: Callable[[], object]) -> Seen:
    assert world.server is not None
    act()
    time.sleep(5)
    seen = Seen(0.0, operators=[f"status: {_health(world)}"])
    seen.mended = time.monotonic()
    start_again(world.server)
    return seen


def _postgresql_ended(how: signal.Signals, world: World, options: Options) -> Seen:
    assert world.server is not None
    return _while_postgresql(world, partial(world.server.stop, how))


def postgresql_restarted(world: World, options: Options) -> Seen:
    assert world.server is not None
    world.server.stop()
    seen = Seen(time.monotonic())
    start_again(world.server)
    return seen


def _postgresql_hangs(world: World, options: Options) -> Seen:
    """Every process of it, for 8 s."""
    assert world.server is not None
    pids = world.server.pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(8)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)
    return Seen(time.monotonic())


def _postgresql_missing(world: World, options: Options) -> Seen:
    """When a gateway starts."""
    assert world.server is not None
    gateway, seen = world.gateway, Seen(0.0)
    gateway.end()
    world.server.stop()
    seen.operators.append(f"at the start: {refusal(gateway, seen)}")
    seen.mended = time.monotonic()
    start_again(world.server)
    gateway.start()
    return seen


def _one_of_two_stopped(world: World, options: Options) -> Seen:
    """Within a change: then it holds the turn that the other's writers wait for."""
    stopped, (writer, other) = world.gateways[1], (world.operators[1], world.operators[0])
    for _ in range(_MOST_TRIES):
        writer.begun.clear()
        writer.begun.wait(5)
        time.sleep(options.rng.uniform(0.002, 0.01))
        os.kill(stopped.pid, signal.SIGSTOP)
        at = time.monotonic()
        time.sleep(_WAITS_SECONDS)
        if not any(each.operator == other.number and each.ended > at + 0.1 for each in world.ledger[-50:]):
            break
        os.kill(stopped.pid, signal.SIGCONT)
    else:
        raise NotHere(f"it was not met within a change, {_MOST_TRIES} times")
    time.sleep(8 - _WAITS_SECONDS)
    os.kill(stopped.pid, signal.SIGCONT)
    return Seen(time.monotonic())


def _two_gateways(world: World, options: Options) -> Seen:
    """What one acknowledged, the other must serve as soon as it may know of it."""
    first, second = (operator for operator in world.operators[:2])
    token = str(world.new_token(f"canary-{options.rng.randrange(10**6)}"))
    metadata = (("authorization", f"Bearer {token}"),)
    seen, slowest = Seen(0.0), 0.0
    with held(world.operators):
        for _ in range(20):
            for writer, other in ((first, second), (second, first)):
                done = writer.point(verify=False)
                time.sleep(_FRESH_SECONDS)
                began = time.monotonic()
                model = _bundle_model(world.gateways[other.number % 2].ports["grpc"], metadata)
                slowest = max(slowest, time.monotonic() - began)
                if done.code != "OK" or model != f"model-{done.operator}-{done.number}":
                    seen.wrong.append(f"the other gateway serves {model} {_FRESH_SECONDS} s after {done}")
    time.sleep(5)  # with all of them writing
    seen.mended = time.monotonic()
    seen.operators.append(f"40 changes were in the other's bundle {_FRESH_SECONDS * 1000:.0f} ms later")
    seen.sandboxes.append(f"the slowest bundle took {slowest * 1000:.0f} ms")
    return seen


def _bundle_model(port: int, metadata: tuple[tuple[str, str], ...]) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        answer = stub.GetInferenceBundle(inference_pb2.GetInferenceBundleRequest(), metadata=metadata, timeout=30)
    return next(route.model_id for route in answer.routes)


DATABASE_CELLS = (
    Cell("database locked by another process for 3 s", "sqlite", partial(_locked, 3.0), 40),
    Cell("database locked by another process for 10 s", "sqlite", partial(_locked, 10.0), 60),
    Cell("disk full, then room made", "sqlite", disk_full, 60),
    Cell("database file made read-only", "sqlite", _read_only, 60),
    Cell("database file replaced by garbage while down", "sqlite", _garbage, 60),
    Cell("database file exchanged for another while running", "sqlite", _exchanged, 60),
    Cell("database locked when the gateway starts", "sqlite", _locked_at_the_start, 60),
    Cell("key file missing, wrong, readable by all at the start", "sqlite", _key_file, 60),
    Cell("admin.token deleted while running, and a restart", "sqlite", _admin_token, 60),
)
POSTGRESQL_CELLS = (
    Cell("PostgreSQL stopped for 5 s", "postgresql", partial(_postgresql_ended, signal.SIGINT), 60),
    Cell("PostgreSQL SIGKILLed, back after 5 s", "postgresql", partial(_postgresql_ended, signal.SIGKILL), 60),
    Cell("PostgreSQL restarted", "postgresql", postgresql_restarted, 60),
    Cell("PostgreSQL hangs for 8 s", "postgresql", _postgresql_hangs, 60),
    Cell("PostgreSQL away when a gateway starts", "postgresql", _postgresql_missing, 60),
    Cell("one of two gateways stopped (SIGSTOP) for 8 s", "postgresql", _one_of_two_stopped, 60),
    Cell("two gateways on one PostgreSQL, writers on both", "postgresql", _two_gateways, 60),
)
