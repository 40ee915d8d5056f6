"""Cells about a gateway that serves a chain: secret files, logs, usage rows, its clock, reloads, mute upstreams."""

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

from bench.chain_world import ChainWorld
from bench.gateway_cells import ChainCell, NotHere, Options, fake_clock
from bench.gateway_world import Seen

_SWAPS = 1000
_STORM = 200
_BROKEN_SECONDS = 3.0
_TIMEOUT = 1.0
_CANARY = "sk-canary-7f31"


def _only(world: ChainWorld, seen: Seen, since: float, *allowed: str) -> None:
    for end, count in world.seen(since).items():
        seen.sandboxes.append(f"{end} (×{count})")
        if end not in allowed:
            seen.wrong.append(f"a request failed (×{count}): {end}")


def _nowhere(world: ChainWorld, seen: Seen) -> None:
    """No key stands in what the gateway said, nor in its files."""
    for line in world.said():
        if _CANARY in line:
            seen.wrong.append(f"a key was said: {line}")
    for path in (world.gateway.directory / "operations").glob("*"):
        if _CANARY in path.read_text():
            seen.wrong.append(f"a key is in {path.name}")


def _secrets_swapped(world: ChainWorld, options: Options) -> Seen:
    """As Kubernetes does it, by renaming a link to a directory, again and again."""
    seen = Seen(0.0)
    world.secrets.rmdir()
    for number in (0, 1):
        version = world.directory / f"version-{number}"
        version.mkdir(mode=0o700)
        (version / "limited_api_key").write_text(f"{_CANARY}-{number}-" + str(number) * 200 + "\n")
        (version / "limited_api_key").chmod(0o600)
    _point(world, 0)
    world.file.write_text(world.configuration(10**6, alone=True))
    with world.under_load():
        broken = time.monotonic()
        for number in range(_SWAPS):
            _point(world, number % 2)
            time.sleep(0.003)
        seen.mended = time.monotonic()
        _only(world, seen, broken, "200 limited")
        world.recovered(seen.mended)
    whole = {f"{_CANARY}-{number}-" + str(number) * 200 for number in (0, 1)}
    keys = {key: count for (name, key), count in world.upstream.keys.items() if name == "limited"}
    seen.wrong += [f"half a key: {key} (×{count})" for key, count in keys.items() if key not in whole]
    seen.sandboxes.append(f"{_SWAPS} swaps, keys at the upstream: {list(keys.values())} times")
    if len(keys) != len(whole):
        seen.wrong.append(f"{len(keys)} keys were used")
    _nowhere(world, seen)
    return seen


def _point(world: ChainWorld, number: int) -> None:
    draft = world.directory / "link"
    draft.symlink_to(f"version-{number}")
    draft.replace(world.secrets)


def _secret_broken(world: ChainWorld, options: Options) -> Seen:
    """Removed, emptied, unreadable, of two lines: each one is an `auth_error`, and the next provider answers."""
    seen, file = Seen(0.0), world.secrets / "limited_api_key"
    world.write_secret(_CANARY.encode())
    world.file.write_text(world.configuration(10**6, alone=False))
    if os.geteuid() == 0:
        world.gateway.prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    with world.under_load():
        world.recovered(time.monotonic())
        for name in ("removed", "emptied", "unreadable", "of two lines"):
            broken = time.monotonic()
            if name == "removed":
                file.unlink()
            elif name == "unreadable":
                file.chmod(0)
            else:
                world.write_secret(b"" if name == "emptied" else f"{_CANARY}\n{_CANARY}".encode())
            world.recovered(time.monotonic(), by="open")
            _only(world, seen, broken, "200 open", "200 limited")
            seen.mended = time.monotonic()
            world.write_secret(_CANARY.encode())
            seen.operators.append(f"{name}: mended after {world.recovered(seen.mended):.2f} s")
    reasons = {line["reason"] for line in world.operations() if line["event"] == "infer_fallback"}
    if reasons != {"auth_error"}:
        seen.wrong.append(f"reasons in the operation log: {reasons}")
    seen.operators += [line.partition("provider ")[2] for line in world.said() if "key file" in line]
    _nowhere(world, seen)
    return seen


def _operations_removed(world: ChainWorld, options: Options) -> Seen:
    """The directory of the operation log, under the gateway."""
    directory, seen = world.gateway.directory / "operations", Seen(0.0)
    with world.under_load():
        broken = time.monotonic()
        shutil.rmtree(directory)
        time.sleep(_BROKEN_SECONDS)
        seen.mended = time.monotonic()
        _only(world, seen, broken, "200 limited")
        world.until(lambda: bool(world.operations()), "the operation log does not go on", 5)
    seen.operators += [line for line in world.said() if "operation" in line]
    return seen


def _operations_full(world: ChainWorld, options: Options) -> Seen:
    """Their disk; the database lies elsewhere."""
    directory, seen = world.gateway.directory, Seen(0.0)
    if not os.path.ismount(directory):
        raise NotHere("only root can mount a small disk")
    elsewhere = world.directory / "elsewhere"
    shutil.rmtree(elsewhere, ignore_errors=True)
    log = directory / "operations"
    world.gateway.options = (*world.gateway.options, f"--operation-log-dir={log}")
    world.gateway.directory = elsewhere
    with world.under_load():
        broken = time.monotonic()
        with (directory / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))
        time.sleep(_BROKEN_SECONDS)
        _only(world, seen, broken, "200 limited")
        seen.mended = time.monotonic()
        (directory / "ballast").unlink()

        def gap_is_told() -> bool:
            return any("events_dropped" in path.read_text() for path in log.glob("*.jsonl"))

        world.until(gap_is_told, "nothing tells of the lines that are missing")
    seen.operators += [line for line in world.said() if "operation" in line or "lines" in line]
    return seen


def _usage_away(world: ChainWorld, options: Options) -> Seen:
    """The store held by another process for 10 s: rows wait, and none is lost."""
    seen, file = Seen(0.0), world.gateway.directory / "pointsman.db"
    with world.under_load():
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("PRAGMA busy_timeout = 5000")
            other.execute("BEGIN EXCLUSIVE")
            broken = time.monotonic()
            time.sleep(10)
            other.execute("ROLLBACK")
        seen.mended = time.monotonic()
        _only(world, seen, broken, "200 limited")
        world.recovered(seen.mended)
        world.stop()
        world.until(lambda: _rows(file) == len(world.calls), f"{len(world.calls)} calls have not as many rows")
        seen.operators.append(f"{_rows(file)} usage rows of {len(world.calls)} requests")
    seen.operators += [line for line in world.said() if "usage" in line]
    return seen


def _rows(file: Path) -> int:
    with contextlib.closing(sqlite3.connect(file, timeout=10)) as database:
        return int(database.execute("SELECT count(*) FROM usage").fetchone()[0])


def _clock(world: ChainWorld, options: Options) -> Seen:
    """The wall clock jumps a day ahead, two back, and home: places of every day are counted, none twice."""
    seen = Seen(0.0)
    clock, environ = fake_clock(world.directory)
    world.gateway.start(environ)
    with world.under_load():
        before = world.upstream.answered["limited"]
        for jump in ("+1d", "-1d", "+0"):
            clock.write_text(f"{jump}\n")
            jumped = time.monotonic()
            took = world.recovered(jumped)
            seen.operators.append(f"clock {jump}: {took:.1f} s")
        seen.mended = time.monotonic()
        _only(world, seen, 0.0, "200 limited")
        world.stop()
        if world.upstream.answered["limited"] <= before:
            seen.wrong.append("nobody was answered")
    with contextlib.closing(sqlite3.connect(world.gateway.directory / "quota.db", timeout=10)) as database:
        days = database.execute("SELECT day, daily FROM quota_days WHERE provider = 'limited'").fetchall()
    total = sum(int(daily) for _, daily in days)
    seen.operators.append(f"places by day: {[int(daily) for _, daily in days]}")
    if total != world.upstream.answered["limited"]:
        seen.wrong.append(f"{total} places of all days, the upstream answered {world.upstream.answered['limited']}")
    return seen


def _hangups(world: ChainWorld, options: Options) -> Seen:
    """SIGHUP, as fast as it goes, while the file changes."""
    seen = Seen(0.0)
    with world.under_load():
        broken = time.monotonic()
        for number in range(_STORM):
            draft = world.file.with_suffix(".new")
            draft.write_text(world.configuration(10**6 + number, alone=False))
            draft.replace(world.file)
            os.kill(world.gateway.pid, signal.SIGHUP)
            time.sleep(0.005)
        seen.mended = time.monotonic()
        last = 10**6 + _STORM - 1
        world.until(lambda: bool(world.live()["daily_limit"] == last), "the last file is not in force")
        seen.operators.append(f"the last of {_STORM} files was in force {time.monotonic() - seen.mended:.1f} s later")
        _only(world, seen, broken, "200 limited")
        seen.wrong += [line for line in world.said() if "not read again" in line]
    return seen


def _mute(world: ChainWorld, options: Options) -> Seen:
    """An upstream that takes every request and never answers: `request_timeout` ends it."""
    seen = Seen(0.0)
    world.file.write_text(world.configuration(10**6, alone=False, timeout=_TIMEOUT))
    with world.under_load():
        broken = time.monotonic()
        world.upstream.mute.add("limited")
        time.sleep(_BROKEN_SECONDS + _TIMEOUT)
        world.upstream.mute.discard("limited")
        seen.mended = time.monotonic()
        world.recovered(seen.mended)
        _only(world, seen, broken, "200 limited", "503 no_provider_available")
        slowest = world.slowest(broken)
        seen.sandboxes.append(f"request_timeout {_TIMEOUT:g} s, the slowest took {slowest:.1f} s")
        if slowest > _TIMEOUT + 2.0:
            seen.wrong.append(f"an answer took {slowest:.1f} s")
        world.stop()
        world.until(
            lambda: world.live()["daily_count"] == world.upstream.answered["limited"], "places were not given back"
        )
    return seen


CHAIN_CELLS = (
    ChainCell("secrets directory swapped 1,000 times", "sqlite", _secrets_swapped),
    ChainCell("secret removed, emptied, unreadable, of two lines", "sqlite", _secret_broken),
    ChainCell("operation log's directory removed", "sqlite", _operations_removed),
    ChainCell("operation log's disk full", "sqlite", _operations_full),
    ChainCell("store locked for 10 s under usage rows", "sqlite", _usage_away),
    ChainCell("wall clock a day ahead, then a day behind, under quotas", "sqlite", _clock),
    ChainCell("200 SIGHUPs and files under load", "sqlite", _hangups),
    ChainCell("a mute upstream, request_timeout 1 s", "sqlite", _mute),
)
