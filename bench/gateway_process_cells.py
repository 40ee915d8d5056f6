"""Cells about the gateway's process, its clock, its connections and its operations, on SQLite."""

import contextlib
import http.client
import shutil
import signal
import socket
import sqlite3
import threading
import time
from pathlib import Path

from bench.gateway_cells import Cell, Options, fake_clock
from bench.gateway_world import POLL_SECONDS, Seen, World
from bench.operators import held, record_message
from bench.polling_crowd import PollingCrowd
from bench.sandbox_load import Connection, RequestFailed

from pointsman.cli.call import VERIFY_SECONDS, CallFailed, Gateway
from pointsman.rpc.gen import control_pb2

_STOPPED_SECONDS = 8.0
_CROWD = 300
_CONNECTIONS, _DESCRIPTORS = 200, 64
_DAY_SECONDS = 24 * 3600
_STREAM_EVENTS = 20
_HANG_SECONDS = 4
_LONGEST_END_SECONDS = 5.0
_SLOWEST_CHANGE_SECONDS = 2.0
"""Of others, while one verification hangs: as on any busy machine."""


def killed(world: World, options: Options) -> Seen:
    """At a moment of a write, again and again."""
    seen, restarts, gateway = Seen(0.0), [], world.gateway
    for number in range(options.kills):
        for operator in world.operators:
            operator.begun.clear()
        world.operators[number % len(world.operators)].begun.wait(5)
        time.sleep(options.rng.uniform(0.0, 0.015))  # a change takes some milliseconds: within one, or right behind
        gateway.end(signal.SIGKILL)
        with held(world.operators):
            if number % 10 == 0:
                seen.wrong += _integrity(gateway.directory, world.directory / "copy")
            seen.mended = time.monotonic()
            gateway.start()
            restarts.append(time.monotonic() - seen.mended)
            seen.wrong += world.ledger_complaints()
    restarts.sort()
    seen.operators.append(
        f"{options.kills} kills, restart median {restarts[len(restarts) // 2]:.1f} s, most {restarts[-1]:.1f} s; "
        f"{sum(each.is_open for each in world.ledger)} calls were left open"
    )
    return seen


def _integrity(directory: Path, copy: Path) -> list[str]:
    """Of a copy, so that the gateway itself meets what was left."""
    copy.mkdir(exist_ok=True)
    for path in directory.glob("pointsman.db*"):
        shutil.copy(path, copy)
    with contextlib.closing(sqlite3.connect(copy / "pointsman.db")) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchall()
        found += connection.execute("PRAGMA foreign_key_check").fetchall()
    shutil.rmtree(copy)
    return [] if found == [("ok",)] else [f"integrity: {found}"]


def _stopped(world: World, options: Options) -> Seen:
    assert world.gateway.process is not None
    world.gateway.process.send_signal(signal.SIGSTOP)
    time.sleep(_STOPPED_SECONDS)
    world.gateway.process.send_signal(signal.SIGCONT)
    return Seen(time.monotonic())


def _restarted(world: World, options: Options) -> Seen:
    status = world.gateway.end()
    seen = Seen(time.monotonic())
    if status != 0:
        seen.wrong.append(f"exit status {status} after SIGTERM")
    world.gateway.start()
    return seen


def _storm(world: World, options: Options) -> Seen:
    """Everybody comes back at once. They are sandboxes' own pollers, in one process."""
    token_file = world.directory / "crowd.token"
    token_file.write_text(world.new_token("crowd"))
    token_file.chmod(0o600)
    with PollingCrowd(world.gateway.url, token_file, _CROWD) as crowd:
        crowd.wait_for_all(time.monotonic(), 30)
        world.gateway.end(signal.SIGKILL)
        mended = time.monotonic()
        world.gateway.start()
        up = time.monotonic()
        took = crowd.wait_for_all(up, 30) - up
    slowest = max(each.ended - each.began for each in world.ledger[-500:] if each.began > up)
    seen = Seen(mended)
    seen.sandboxes.append(f"all {_CROWD} had a bundle {took:.1f} s after the gateway listened")
    seen.operators.append(f"slowest change meanwhile {slowest:.1f} s")
    return seen


def _few_descriptors(world: World, options: Options) -> Seen:
    gateway, seen = world.gateway, Seen(0.0)
    first = len(gateway.lines)
    gateway.end()
    gateway.prefix = ("prlimit", f"--nofile={_DESCRIPTORS}:{_DESCRIPTORS}")
    try:
        gateway.start()
        with contextlib.ExitStack() as stack:
            for number in range(_CONNECTIONS):
                port = list(gateway.ports.values())[number % 3]
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            time.sleep(3)
        seen.operators += [line.strip() for line in gateway.lines[first:] if "rror" in line][:5]
        freed = time.monotonic()
        after = world.recovered(freed)
    finally:
        gateway.prefix = ()
        gateway.end()
        seen.mended = time.monotonic()
        gateway.start()
    seen.operators.append(
        f"once the {_CONNECTIONS} connections had gone, without a restart, all was well {after:.1f} s later"
    )
    return seen


def _clock(world: World, options: Options) -> Seen:
    """The wall clock of the gateway jumps a day ahead, two back, and home."""
    clock, environ = fake_clock(world.directory)
    world.new_token("hourly", lifetime_seconds=3600)
    world.gateway.end()
    world.gateway.start(environ)
    seen = Seen(0.0)
    try:
        valid = [_valid_tokens(world)]
        for jump in ("+1d", "-1d"):
            clock.write_text(f"{jump}\n")
            jumped = time.monotonic()
            took = world.recovered(jumped)
            valid.append(_valid_tokens(world))
            seen.operators.append(f"clock {jump}: changes and bundles go on, {took:.1f} s")
        if valid != [valid[0], valid[0] - 1, valid[0]]:
            seen.wrong.append(f"valid tokens, one of an hour among them: {valid}")
    finally:
        world.gateway.end()
        seen.mended = time.monotonic()
        world.gateway.start()
    return seen


def _valid_tokens(world: World) -> int:
    with world.operators[0].access.open() as gateway:
        return gateway.call(gateway.control.GetStatus, control_pb2.GetStatusRequest()).sandbox_tokens


def _revoked(world: World, options: Options) -> Seen:
    sandbox = world.sandboxes[0]
    streamed: list[object] = []

    def stream() -> None:
        connection = Connection(sandbox.proxy)
        try:
            streamed.append(connection.ask(_STREAM_EVENTS))
        except (OSError, RequestFailed, http.client.HTTPException, ValueError) as error:
            streamed.append(f"the stream was cut: {error}")
        connection.close()

    thread = threading.Thread(target=stream)
    thread.start()
    time.sleep(0.5)
    _revoke(world, "sandbox-0")
    served = sandbox.served
    thread.join()
    seen = Seen(0.0)
    seen.wrong += [text for text in streamed if isinstance(text, str)]
    if sandbox.served == served:
        seen.wrong.append("nothing was served on the routes that were there")
    token_file = sandbox.proxy.ca_directory.parent / "sandbox.token"
    new = world.directory / "new.token"
    new.write_text(world.new_token(f"sandbox-0-{options.rng.randrange(10**6)}"))
    new.chmod(0o600)
    seen.mended = time.monotonic()
    new.rename(token_file)
    refused = [line for line in sandbox.proxy.lines if "token_refused" in line]
    if len(refused) != 1:
        seen.wrong.append(f"told {len(refused)} times: {refused}")
    else:
        seen.sandboxes.append(refused[0].partition(" detail=")[2].strip())
    seen.sandboxes.append("the stream ended whole; a new token in the file was taken without a restart")
    return seen


def _revoke(world: World, name: str) -> None:
    request = control_pb2.RevokeSandboxTokenRequest(name=name)
    with world.operators[0].access.open() as gateway:
        assert gateway.call(gateway.control.RevokeSandboxToken, request).revoked


def _deleted(world: World, options: Options) -> Seen:
    """The provider that everybody uses."""
    seen = Seen(0.0, allowed=("503 ",))
    with held(world.operators):
        done = world.operators[0].point()
        time.sleep(3 * POLL_SECONDS)
        mark = world.mark()
        began = time.monotonic()
        try:
            world.delete_provider("op0")
        except CallFailed as failure:
            seen.operators.append(f"without --force: {failure.code}: {failure.message}")
        else:
            seen.wrong.append("deleted without --force")
        world.delete_provider("op0", force=True)
        while not world.request_failures(mark) and time.monotonic() < began + 10:
            time.sleep(0.01)
        seen.sandboxes.append(f"first 503 after {time.monotonic() - began:.1f} s")
        problem = world.final_route().problem
        seen.operators.append(f"the route's problem: {problem}")
        if done.code != "OK" or not problem or not world.request_failures(mark):
            seen.wrong.append(f"{done}, problem {problem!r}")
    seen.mended = time.monotonic()
    return seen


def _hanging(world: World, options: Options) -> Seen:
    """One verification waits for an upstream that says nothing, while others set routes."""
    world.create_provider(record_message("mute", world.upstream.mute_url, "key-mute"))
    request = control_pb2.SetRouteRequest(
        name="mute", provider_name="mute", model="any", timeout_secs=_HANG_SECONDS, no_verify=False
    )
    seen, first, began = Seen(0.0), len(world.ledger), time.monotonic()

    def set_route(gateway: Gateway) -> None:
        gateway.call(gateway.control.SetRoute, request, seconds=VERIFY_SECONDS)

    try:
        world.ask(set_route)
        seen.wrong.append("a route was verified though its upstream says nothing")
    except CallFailed as failure:
        seen.operators.append(f"the one that hung, after {time.monotonic() - began:.1f} s: {failure.message}")
    seen.mended = time.monotonic()
    meanwhile = world.ledger[first:]
    slowest = max(each.ended - each.began for each in meanwhile)
    seen.operators.append(f"{len(meanwhile)} changes of others meanwhile, the slowest took {slowest:.2f} s")
    if slowest > _SLOWEST_CHANGE_SECONDS:
        seen.wrong.append(f"a change of others took {slowest:.1f} s")
    world.delete_provider("mute")
    return seen


def _ended_while_verifying(world: World, options: Options) -> Seen:
    """SIGTERM while a verification waits for an upstream that says nothing: it does not wait with it."""
    world.create_provider(record_message("mute", world.upstream.mute_url, "key-mute"))
    request = control_pb2.SetRouteRequest(name="mute", provider_name="mute", model="any")
    seen, told = Seen(0.0), []

    def set_route() -> None:
        try:
            world.ask(lambda gateway: gateway.call(gateway.control.SetRoute, request, seconds=VERIFY_SECONDS))
            told.append("OK")
        except CallFailed as failure:
            told.append(f"{failure.code}: {failure.message}")

    thread = threading.Thread(target=set_route)
    thread.start()
    time.sleep(1)
    seen.mended = time.monotonic()
    status = world.gateway.end()
    took = time.monotonic() - seen.mended
    world.gateway.start()
    thread.join()
    seen.operators += [
        f"the gateway ended after {took:.1f} s",
        f"the one that hung: {told[0]}".replace(world.gateway.url, "URL"),
    ]
    if status != 0 or took > _LONGEST_END_SECONDS or "broke before it answered" not in told[0]:
        seen.wrong.append(f"status {status} after {took:.1f} s, {told}")
    world.delete_provider("mute")
    return seen


PROCESS_CELLS = (
    Cell("gateway restarted on the same port", "sqlite", _restarted, 40),
    Cell("gateway stopped (SIGSTOP) for 8 s", "sqlite", _stopped, 50),
    Cell("300 sandboxes come back at once after a SIGKILL", "sqlite", _storm, 90),
    Cell("64 descriptors, 200 connections", "sqlite", _few_descriptors, 90),
    Cell("wall clock a day ahead, then a day behind", "sqlite", _clock, 90),
    Cell("a sandbox's token revoked while it streams", "sqlite", _revoked, 40),
    Cell("the provider in use deleted with --force", "sqlite", _deleted, 40),
    Cell("a verification that hangs", "sqlite", _hanging, 40),
    Cell("SIGTERM while a verification hangs", "sqlite", _ended_while_verifying, 40),
    Cell("gateway SIGKILLed within writes, again and again", "sqlite", killed, 480),
)
