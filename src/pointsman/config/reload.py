"""A configuration that is read again while the gateway runs: what of it can be applied, and when to look.

Owns the decision and the watching of one file; applying a change is the gateway's. A wrong file changes nothing.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pointsman.config.problems import SettingsError
from pointsman.config.settings import Settings

POLL_SECONDS = 1.0
"""Between two looks at the file: one stat, and soon enough for a person who has just saved it."""
AT_RUN_TIME = frozenset({"default_route"})
"""Settings that take effect at once, besides the records; all others need a restart."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What reading again came to."""

    settings: Settings
    """What is in force from now on: the old ones with what can be applied of the new."""
    changed: bool
    """Whether anything that can be applied differs."""
    lines: tuple[str, ...] = ()
    """For the log: problems, warnings, and what waits for a restart."""


def decide(old: Settings, new: Settings) -> Reload:
    """What of a good new configuration takes effect while the gateway runs. Pure.

    Warnings that were told before are not told again.
    """
    waiting = [key for key in old.shown() if key not in AT_RUN_TIME and _differs(key, old, new)]
    sources = dict(new.sources)
    lines = [
        f"{sources[key]}: {key} has changed and takes effect at the next start; restart the gateway" for key in waiting
    ]
    applied = replace(
        old,
        default_route=new.default_route,
        records=new.records,
        warnings=new.warnings,
        sources=tuple((key, place if key in waiting else sources[key]) for key, place in old.sources),
    )
    told = set(old.warnings)
    lines += [f"warning: {each}" for each in new.warnings if each not in told]
    changed = (old.default_route, _without_warnings(old)) != (new.default_route, _without_warnings(new))
    return Reload(applied, changed, tuple(lines))


def _differs(key: str, old: Settings, new: Settings) -> bool:
    if key == "database_url":  # what is shown of it hides the rest
        return old.database_url != new.database_url
    return old.shown()[key] != new.shown()[key]


def _without_warnings(settings: Settings) -> object:
    return replace(settings.records, warnings=())


def reload(old: Settings, load: Callable[[], Settings]) -> Reload:
    """Read again. A configuration that is wrong keeps the old one, and every problem of it is a line."""
    try:
        new = load()
    except SettingsError as error:
        problems = tuple(str(error).splitlines())
        return Reload(old, False, (*problems, "the configuration is not read again; what was in force stays"))
    return decide(old, new)


Stamp = tuple[int, ...]


def stamp(path: Path) -> Stamp:
    """What changes when the file does, written in place, replaced or linked elsewhere; empty without a file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


async def watch(
    look: Callable[[], Stamp], wait: Callable[[float], Awaitable[None]], changed: Callable[[], Awaitable[None]]
) -> None:
    """Call `changed` whenever the file has changed and has been still for one look, until cancelled.

    A file that is being written is not read half: two looks must agree. One that vanishes is waited for: editors and
    volumes replace files in two steps.
    """
    seen = last = look()
    while True:
        await wait(POLL_SECONDS)
        now = look()
        if now and now == last and now != seen:
            seen = now
            await changed()
        last = now
