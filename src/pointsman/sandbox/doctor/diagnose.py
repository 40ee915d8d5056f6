"""The whole examination: looks, finds clients, asks them, and says what was found."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pointsman.config.wording import nearest
from pointsman.core.candidate import Candidate, keys_of
from pointsman.core.secret import Secret
from pointsman.sandbox.doctor.agents import AGENTS, AgentFinding, config_paths, judge_agent
from pointsman.sandbox.doctor.client import NODE_LIBRARIES, PYTHON_LIBRARIES, Kind, Situation
from pointsman.sandbox.doctor.door_facts import (
    DoorFacts,
    ca_files,
    look_directly,
    look_through_proxy,
    loopback_proxies,
    only_loopback,
    with_absolute_ca_paths,
)
from pointsman.sandbox.doctor.endpoints import Reach, reach_all
from pointsman.sandbox.doctor.environment_findings import (
    Finding,
    State,
    judge_environment,
    seems_inside,
    situation_of,
)
from pointsman.sandbox.doctor.examine import Examination, examine_all
from pointsman.sandbox.doctor.host_findings import judge_host
from pointsman.sandbox.doctor.practice_door import practice_door
from pointsman.sandbox.doctor.regular_file import read_regular
from pointsman.sandbox.doctor.survey import Survey, survey
from pointsman.sandbox.doctor.trial_place import trial_place
from pointsman.sandbox.environment import PLACEHOLDER_KEY
from pointsman.sandbox.host import look_at_host

_OUTSIDE = "ask outside: pointsman doctor --inference-routes FILE"
_LARGEST_CONFIG = 256 * 1024
_KNOWN = tuple(dict.fromkeys((*Kind, "python3", *PYTHON_LIBRARIES, *NODE_LIBRARIES, *AGENTS)))
"""What may be asked for by name."""


@dataclass(frozen=True, slots=True)
class Task:
    """What was asked of the doctor."""

    environ: Mapping[str, str]
    directory: str
    """Where the operator stands."""
    inside: bool | None = None
    """Whether this is a sandbox; None: see for yourself."""
    only: tuple[str, ...] = ()
    """Clients, libraries or agents to look at; empty: all."""
    candidates: Sequence[Candidate] = ()
    """Whose hosts are to be reached, and whose keys no program may see."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that hold such keys."""
    seconds: float = 20.0
    """For each request."""

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The keys of the candidates."""
        return keys_of(self.candidates)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found."""

    inside: bool
    situation: Situation
    """What the clients found."""
    findings: tuple[Finding, ...] = ()
    examinations: tuple[Examination, ...] = ()
    agents: tuple[AgentFinding, ...] = ()
    reaches: tuple[Reach, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing needs mending."""
        return (
            all(each.state is not State.MEND for each in self.findings)
            and all(each.is_good for each in self.examinations)
            and all(each.configured for each in self.agents)
            and not any(each.failure for each in self.reaches)
        )


async def diagnose(task: Task, tell: Callable[[int, int], None]) -> Diagnosis:
    """Examine this machine; `tell` hears how many clients are done, and of how many."""
    isolated = only_loopback()
    task = replace(task, environ=with_absolute_ca_paths(task.environ, task.directory))
    door = await asyncio.to_thread(_find_door, task.environ)
    inside = task.inside
    if inside is None:
        inside = seems_inside(task.environ, ca_files(task.environ, door.certificate), isolated=isolated)
    if inside:
        diagnosis = await _examine(task, _without_keys(task), door, isolated, tell)
        if not task.candidates:
            return diagnosis
        note = Finding("hosts of the routes", State.NOTE, "not looked at: nothing can be reached from inside", _OUTSIDE)
        return replace(diagnosis, findings=(*diagnosis.findings, note))
    async with practice_door(task.environ, task.secrets, task.key_variables) as environ:
        door = await asyncio.to_thread(_find_door, environ)
        host = await asyncio.to_thread(look_at_host)
        diagnosis = await _examine(task, environ, door, None, tell)
        reaches = await reach_all(task.candidates)
    # A practice door is as it should be; what still is wrong with it matters.
    needed = tuple(each for each in diagnosis.findings if each.state is State.MEND)
    return replace(diagnosis, inside=False, findings=(*judge_host(host), *needed), reaches=tuple(reaches))


def _without_keys(task: Task) -> dict[str, str]:
    """The environment as it is, less the keys of the routes. What is no key stays: it would be missed."""
    return {
        name: value
        for name, value in task.environ.items()
        if value == PLACEHOLDER_KEY
        or (name not in task.key_variables and not any(secret.appears_in(value) for secret in task.secrets))
    }


async def _examine(
    task: Task, environ: Mapping[str, str], door: DoorFacts, isolated: bool | None, tell: Callable[[int, int], None]
) -> Diagnosis:
    """`isolated`: whether nothing but loopback is here; None: this is outside, and stands for a sandbox."""
    direct = await asyncio.to_thread(look_directly)
    files = ca_files(environ, door.certificate)
    now = datetime.now(UTC)
    situation = replace(situation_of(environ, door, files, direct, now), isolated=bool(isolated))
    if isolated is None:
        situation = replace(situation, hosts_file_inside=True)
    findings = judge_environment(situation, door, files, direct, now)
    # Asking an SDK runs its code: in a sandbox that is what the command does anyway, outside it is not ours to start.
    trials = trial_place(task.directory)
    found = await survey(environ, task.directory if isolated else "", task.only, tuple(AGENTS), trials)
    agents = tuple(judge_agent(name, each, environ, _configs(name, environ, task.directory), task.directory)
                   for name, each in found.agents.items())  # fmt: skip
    findings += _absent(task.only, found)
    clients = found.clients if door.is_door or situation.by_hosts_file else ()
    examinations = await examine_all(clients, situation, task.seconds, trials, lambda done: tell(done, len(clients)))
    return Diagnosis(True, situation, findings, tuple(examinations), agents)


def _absent(wanted: Sequence[str], found: Survey) -> tuple[Finding, ...]:
    present = {word for client in found.clients for word in client.words} | set(found.agents)
    return tuple(
        Finding(name, State.MEND, "not found on this machine", how_to_find(name))
        for name in wanted
        if name not in present
    )


def how_to_find(name: str) -> str:
    """The next step for who asked for `name`, which is not on this machine."""
    if name in _KNOWN:
        return "install it, or see whether it is on PATH"
    known = nearest(name, _KNOWN)
    return f"did you mean {known}?" if known else "check the spelling, or whether it is on PATH"


def _find_door(environ: Mapping[str, str]) -> DoorFacts:
    """The first loopback proxy that is the door, else what the likeliest one gave."""
    looks = []
    for url in loopback_proxies(environ):
        look = look_through_proxy(url)
        if look.is_door:
            return look
        looks.append(look)
    return looks[0]


def _configs(name: str, environ: Mapping[str, str], directory: str) -> dict[str, str]:
    texts = {}
    for path in config_paths(name, environ, directory):
        with contextlib.suppress(OSError):
            texts[path] = read_regular(path, _LARGEST_CONFIG).decode("utf-8", "replace")
    return texts
