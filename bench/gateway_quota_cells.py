"""Cells about the counters of a chain: their file, their PostgreSQL, and gateways that are killed while they count."""

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from functools import partial

from bench.chain_world import CALLERS, ChainWorld
from bench.gateway_cells import ChainCell, NotHere, Options, refusal, start_again
from bench.gateway_world import Seen
from tests.support.gateway_process import NotStarted

_BROKEN_SECONDS = 4.0
_KILLS = 20
_LIMIT = 1500
"""More than are asked for while it is killed."""
_BALLAST_NAME = "ballast"


def _watched(world: ChainWorld, seen: Seen, since: float) -> None:
    """What callers and operators have seen since something was broken: nothing but the fallback's answers."""
    ends = world.seen(since)
    for end, count in ends.items():
        seen.sandboxes.append(f"{end} (×{count})")
        if end not in ("200 limited", "200 open"):
            seen.wrong.append(f"a request failed (×{count}): {end}")
    seen.operators += [line for line in world.said() if "quota" in line]


def _file_changed(how: str, world: ChainWorld, options: Options) -> Seen:
    """The file of counters deleted, replaced or cut under the gateway; a restart mends it."""
    file, seen = world.gateway.directory / "quota.db", Seen(0.0)
    with world.under_load():
        aside = file.with_name("aside.db")
        shutil.copy(file, aside)
        broken = time.monotonic()
        if how == "deleted":
            file.unlink()
        elif how == "replaced":
            aside.replace(file)
        else:
            os.truncate(file, 0)
        time.sleep(_BROKEN_SECONDS)
        _watched(world, seen, broken)
        late = world.seen(time.monotonic() - 1.0)
        seen.sandboxes.append(f"after {_BROKEN_SECONDS:g} s: {dict(late)}")
        if how != "truncated" and late["200 limited"]:
            seen.wrong.append("places are counted where no other process sees them")
        if how != "truncated" and not any("quota" in line for line in world.said()):
            seen.wrong.append("operators are told nothing")
        world.gateway.end()
        seen.mended = time.monotonic()
        _started(world, seen)
        world.recovered(seen.mended)
    return seen


def _started(world: ChainWorld, seen: Seen) -> None:
    """A damaged file is refused, and removed as the text asks for."""
    try:
        world.gateway.start()
    except NotStarted as error:
        seen.operators.append(f"at the start: {error}")
        seen.wrong += [f"more than one line: {error}"] if "\n" in str(error) else []
        for path in world.gateway.directory.glob("quota.db*"):
            path.unlink()
        seen.mended = time.monotonic()
        world.gateway.start()


def _read_only(world: ChainWorld, options: Options) -> Seen:
    """Of a gateway that may not pass over modes, as root may."""
    gateway, file, seen = world.gateway, world.gateway.directory / "quota.db", Seen(0.0)
    gateway.start()
    gateway.end()
    if os.geteuid() == 0:
        gateway.prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    try:
        file.chmod(0o400)
        seen.operators.append(f"at the start: {refusal(gateway, seen)}")
    finally:
        file.chmod(0o600)
        gateway.prefix = ()
    seen.mended = time.monotonic()
    gateway.start()
    with world.under_load():
        world.recovered(seen.mended)
    return seen


def _disk_full(world: ChainWorld, options: Options) -> Seen:
    """Until nothing more can be counted; then room is made."""
    directory, seen = world.gateway.directory, Seen(0.0)
    if not os.path.ismount(directory):
        raise NotHere("only root can mount a small disk")
    with world.under_load():
        broken = time.monotonic()
        with (directory / _BALLAST_NAME).open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        world.until(lambda: world.seen(time.monotonic() - 1.0)["200 open"] > 0, "the counters never met the full disk")
        time.sleep(_BROKEN_SECONDS)
        _watched(world, seen, broken)
        seen.mended = time.monotonic()
        (directory / _BALLAST_NAME).unlink()
        world.recovered(seen.mended)
        seen.wrong += _agreed(world)
    return seen


def _locked(world: ChainWorld, options: Options) -> Seen:
    """By another process, for 10 s."""
    seen = Seen(0.0)
    with world.under_load():
        with contextlib.closing(sqlite3.connect(world.gateway.directory / "quota.db", isolation_level=None)) as other:
            other.execute("PRAGMA busy_timeout = 5000")
            other.execute("BEGIN EXCLUSIVE")
            broken = time.monotonic()
            time.sleep(10)
            _watched(world, seen, broken)
            seen.sandboxes.append(f"the slowest took {world.slowest(broken):.1f} s")
            other.execute("ROLLBACK")
        seen.mended = time.monotonic()
        world.recovered(seen.mended)
        seen.wrong += _agreed(world)
    return seen


def _agreed(world: ChainWorld, most_over: int = 0) -> list[str]:
    """Whether the ledger has what the upstream answered, once nothing is under way."""
    world.stop()

    def level() -> bool:
        return 0 <= int(world.live()["daily_count"]) - world.upstream.answered["limited"] <= most_over

    try:
        world.until(level, "")
    except TimeoutError:
        return [f"/stats/live has {world.live()['daily_count']}, upstream {world.upstream.answered['limited']}"]
    return []


def _postgresql(how: str, world: ChainWorld, options: Options) -> Seen:
    """Away for some seconds under a chain with limits."""
    assert world.server is not None
    seen = Seen(0.0)
    with world.under_load():
        broken = time.monotonic()
        world.server.stop(signal.SIGINT if how == "stopped" else signal.SIGKILL)
        time.sleep(_BROKEN_SECONDS)
        _watched(world, seen, broken)
        seen.sandboxes.append(f"the slowest took {world.slowest(broken):.1f} s")
        started = time.monotonic()
        start_again(world.server)
        seen.mended = time.monotonic()
        seen.operators.append(f"PostgreSQL took {seen.mended - started:.1f} s to start")
        world.recovered(seen.mended)
        # What was asked when the server went: done or not, nobody can tell, and a place that may be gone stays gone.
        seen.wrong += _agreed(world, CALLERS)
    return seen


def _killed(world: ChainWorld, options: Options) -> Seen:
    """Again and again while it counts: never more than the limit, and at most what was under way too much."""
    seen, gateway, kills = Seen(0.0), world.gateways[-1], min(_KILLS, options.kills)
    with world.under_load():
        for _ in range(kills):
            time.sleep(options.rng.uniform(0.05, 0.4))
            gateway.end(signal.SIGKILL)
            seen.mended = time.monotonic()
            gateway.start()
        world.until(lambda: world.seen(time.monotonic() - 1.0).keys() == {"503 no_provider_available"}, "room is left")
        world.stop()
    answered, count = world.upstream.answered["limited"], int(world.live()["daily_count"])
    text = f"{kills} kills: limit {world.limit}, the upstream answered {answered}, /stats/live has {count}"
    seen.operators.append(text)
    if answered > world.limit or count != world.limit or world.limit - answered > kills * CALLERS:
        seen.wrong.append(text)
    return seen


QUOTA_CELLS = (
    ChainCell("quota file deleted", "sqlite", partial(_file_changed, "deleted")),
    ChainCell("quota file replaced by a copy", "sqlite", partial(_file_changed, "replaced")),
    ChainCell("quota file truncated", "sqlite", partial(_file_changed, "truncated")),
    ChainCell("quota file read-only", "sqlite", _read_only),
    ChainCell("disk full under the counters", "sqlite", _disk_full),
    ChainCell("quota file locked by another process for 10 s", "sqlite", _locked),
    ChainCell("gateway SIGKILLed 20 times while it counts", "sqlite", _killed, limit=_LIMIT, alone=True, seconds=400),
    ChainCell(
        "one of two gateways SIGKILLed 20 times while both count",
        "sqlite",
        _killed,
        limit=_LIMIT,
        alone=True,
        gateways=2,
        seconds=400,
    ),
    ChainCell("PostgreSQL stopped for 4 s under the counters", "postgresql", partial(_postgresql, "stopped")),
    ChainCell("PostgreSQL SIGKILLed under the counters", "postgresql", partial(_postgresql, "killed")),
    ChainCell(
        "gateway SIGKILLed 20 times, PostgreSQL counts", "postgresql", _killed, limit=_LIMIT, alone=True, seconds=400
    ),
)
