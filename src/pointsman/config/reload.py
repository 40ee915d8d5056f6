"""A configuration that is read again while the gateway runs: what of it can be applied, and when to look.

Owns the decision and the watching of one file; applying a change is the gateway's. A wrong file changes nothing.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pointsman.config.problems import SettingsError
from pointsman.config.settings import Settings, load_settings
from pointsman.core.provider import Provider
from pointsman.core.route import Route

POLL_SECONDS = 1.0
"""Between two looks at the file: one stat, and soon enough for a person who has just saved it."""
_MOST_NAMED = 8
"""Names in a line of the log, of each kind of change."""
NOT_READ = "the configuration is not read again; what was in force stays"
"""Behind the problems of a file that changes nothing."""
AT_RUN_TIME = frozenset({"default_route", "secrets_dir"})
"""Settings that take effect at once, besides the records, which alone use `secrets_dir`; all others need a restart."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What reading again came to."""

    settings: Settings
    """What is in force from now on: the old ones with what can be applied of the new."""
    changed: bool
    """Whether anything that can be applied differs."""
    lines: tuple[str, ...] = ()
    """For the log: problems, warnings, and what waits for a restart."""
    refused: bool = False
    """Whether it is wrong, so that `settings` are the old ones."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a gateway's settings come from: the same at each reading."""

    file: Path | None
    environ: Mapping[str, str] = field(repr=False)
    """As it was at the start; it may hold passwords."""
    options: Mapping[str, str] = field(repr=False)
    allow_degraded: bool = False

    def load(self) -> Settings:
        """Read all of it. Raises SettingsError and OSError."""
        return load_settings(self.file, self.environ, self.options, allow_degraded=self.allow_degraded)

    def stamp(self) -> "Stamp":
        """What the file is at this moment."""
        return stamp(self.file) if self.file is not None else ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a gateway starts with."""

    source: Source
    settings: Settings
    stamp: "Stamp"
    """Of the file, from before it was read: a change during the start is seen."""


def load(source: Source) -> Loaded:
    """Read a source for the first time. Raises SettingsError and OSError."""
    before = source.stamp()
    return Loaded(source, source.load(), before)


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
        secrets_dir=new.secrets_dir,
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
    except (SettingsError, OSError) as error:
        problems = tuple(str(error).splitlines())
        return Reload(old, False, (*problems, NOT_READ), refused=True)
    return decide(old, new)


def changes(old: Settings, new: Settings) -> str:
    """What differs of that which takes effect at once, in one line; nothing where nothing does. Pure."""
    parts = [
        *_record_changes("provider", old.records.providers, new.records.providers),
        *_record_changes("route", old.records.routes, new.records.routes),
    ]
    if old.default_route != new.default_route:
        parts.append(f"default_route is {new.default_route or 'none'}")
    return "; ".join(parts)


def _record_changes(
    what: str, old: Iterable[Provider] | Iterable[Route], new: Iterable[Provider] | Iterable[Route]
) -> list[str]:
    before, after = {each.name: each for each in old}, {each.name: each for each in new}
    kinds = {
        "added": [name for name in after if name not in before],
        "changed": [name for name in after if name in before and before[name] != after[name]],
        "removed": [name for name in before if name not in after],
    }
    return [f"{what} {_listed(names)} {kind}" for kind, names in kinds.items() if names]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


Stamp = tuple[int, ...]


def stamp(path: Path) -> Stamp:
    """What changes when the file does, written in place, replaced or linked elsewhere; empty without a file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


async def watch(
    look: Callable[[], Stamp],
    wait: Callable[[float], Awaitable[None]],
    changed: Callable[[], Awaitable[None]],
    seen: Stamp | None = None,
) -> None:
    """Call `changed` whenever the file has changed and has been still for one look, until cancelled.

    `seen` is what the file was when it was read; without it, what it is now.

    A file that is being written is not read half: two looks must agree. One that vanishes is waited for: editors and
    volumes replace files in two steps.
    """
    last = look()
    seen = last if seen is None else seen
    while True:
        await wait(POLL_SECONDS)
        now = look()
        if now and now == last and now != seen:
            seen = now
            await changed()
        last = now
