"""One client: asked, mended, asked again. A shell around `request`, `reading` and `mend`."""

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.sandbox.doctor.client import Bypass, Client, Kind, Situation, bypass, missing_key
from pointsman.sandbox.doctor.mend import Mend, mend_for
from pointsman.sandbox.doctor.process import run
from pointsman.sandbox.doctor.reading import Outcome, Reading, read_output
from pointsman.sandbox.doctor.request import JAVA_FILE, JAVA_SCRIPT, request_of

_MOST_MENDS = 4
"""Proxy, switch, trust and key: no client needs more."""
_AT_ONCE = 4
"""Most clients use a core for as long as they start."""


_BY_HOSTS_FILE = (Bypass.NO_VARIABLES, Bypass.NOT_SWITCHED_ON)
HOSTS_FILE_HINT = "a sandbox's hosts file leads it to the door: run this inside one to see"


@dataclass(frozen=True, slots=True)
class Examination:
    """What was learnt of one client."""

    client: Client
    first: Reading
    """As things are."""
    last: Reading
    """With all of `mends`."""
    mends: tuple[Mend, ...]

    @property
    def is_good(self) -> bool:
        """Whether it needs no mend."""
        return self.first.outcome in (Outcome.ANSWERED, Outcome.HOSTS_FILE)

    @property
    def is_proven(self) -> bool:
        """Whether the mends were seen to work."""
        return bool(self.mends) and self.last.outcome is Outcome.ANSWERED

    @property
    def uses_door(self) -> bool | None:
        """As things are; None when that was not seen."""
        if self.is_good or self.first.outcome in (Outcome.UNTRUSTED, Outcome.EXPIRED, Outcome.CA_FILE):
            return True
        return None if self.first.outcome in (Outcome.FAILED, Outcome.TIMED_OUT) else False

    @property
    def trusts_authority(self) -> bool | None:
        """As things are; when it does not use the door, as it was seen once it did."""
        if self.first.outcome in (Outcome.UNTRUSTED, Outcome.EXPIRED, Outcome.CA_FILE):
            return False
        if self.last.outcome in (Outcome.UNTRUSTED, Outcome.EXPIRED, Outcome.CA_FILE):
            return False
        if self.last.outcome is Outcome.ANSWERED:
            return not any(mend.is_about_trust for mend in self.mends)
        return None


async def examine(client: Client, situation: Situation, seconds: float, trials: str) -> Examination:
    """Ask, and while there is a mend that can be tried, mend and ask again. A request may take `seconds`.

    It runs in a directory of its own in `trials`.
    """
    environ = {**situation.environ, "LC_ALL": "C", "LANGUAGE": ""}
    mends: list[Mend] = []
    with tempfile.TemporaryDirectory(prefix="pointsman-doctor-", dir=trials) as directory:
        if client.kind is Kind.JAVA:
            Path(directory, JAVA_FILE).write_text(JAVA_SCRIPT)  # noqa: ASYNC240  # a few bytes
        place = directory, seconds
        first = last = await _ask(client, situation, environ, (), place)
        while len(mends) < _MOST_MENDS and (mend := mend_for(client, last, situation, environ)):
            mends.append(mend)
            if not mend.can_be_tried:
                break
            if mend.prepare:
                await run(mend.prepare, environ, directory, seconds)
            environ = mend.apply(environ)
            arguments = tuple(each for mend in mends for each in mend.arguments)
            last = await _ask(client, situation, environ, arguments, place)
    return Examination(client, first, last, tuple(mends))


async def examine_all(
    clients: Sequence[Client], situation: Situation, seconds: float, trials: str, tell: Callable[[int], None]
) -> list[Examination]:
    """All of them, a few at a time; `tell` hears how many are done."""
    slots = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def one(client: Client) -> Examination:
        nonlocal done
        async with slots:
            found = await examine(client, situation, seconds, trials)
        done += 1
        tell(done)
        return found

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(client)) for client in clients]
    return [task.result() for task in tasks]


async def _ask(
    client: Client,
    situation: Situation,
    environ: Mapping[str, str],
    arguments: tuple[str, ...],
    place: tuple[str, float],
) -> Reading:
    if name := missing_key(client, environ):
        return Reading(Outcome.FAILED, f"{name} is not set, without which it does not start")
    expected = bypass(client, environ, situation.proxy_url, arguments)
    if expected is not None and not _stays_here(expected, situation):
        if situation.hosts_file_inside and expected in _BY_HOSTS_FILE and client.kind is not Kind.JAVA:
            return Reading(Outcome.HOSTS_FILE, f"{expected.value}; {HOSTS_FILE_HINT}", bypass=expected)
        return Reading(Outcome.BYPASSED, expected.value, bypass=expected)
    directory, seconds = place
    request = request_of(client, situation, arguments, seconds)
    finished = await run(request.argv, {**environ, **request.environ}, directory, seconds, request.stdin)
    return read_output(finished, expected, environ)


def _stays_here(expected: Bypass, situation: Situation) -> bool:
    """Whether a request that goes past the proxy still reaches nothing but this machine: else it is not made."""
    if situation.isolated:
        return True
    return situation.by_hosts_file and expected not in (Bypass.OTHER, Bypass.BASE_URL)
