"""What the configuration file defines, in the audit record: when it is read first, and whenever it has changed.

Gateways that share a database share the record: of several that read the same file one tells of it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.config.settings import Settings
from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.audit import AuditDraft, AuditQuery
from pointsman.core.audited import as_json, changed_records, revision_of
from pointsman.gateway.actor import FILE
from pointsman.store.interface import Store

READ, RELOAD = "configuration.read", "configuration.reload"


@dataclass(frozen=True, slots=True)
class _Setting:
    value: str


class ConfigurationAudit:
    """`subject` is the file; `clock` gives seconds since the epoch."""

    def __init__(self, store: Store, subject: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._subject = subject
        self._clock = clock

    async def started(self, settings: Settings) -> None:
        """Note what is defined now, unless that is what was noted last. Raises StoreUnavailable or StoreFull."""
        known, revision = await self._known(), revision_of(_records(settings))
        if known == revision or (not known and revision == _OF_NOTHING):
            return
        before = as_json({"revision": known}) if known else ""
        await self._append(READ, before, as_json({"revision": revision, "records": list(_records(settings))}))

    async def reloaded(self, old: Settings, new: Settings) -> None:
        """Note which records are about to change. Raises StoreUnavailable or StoreFull."""
        was, now = _records(old), _records(new)
        if was == now or await self._known() == revision_of(now):
            return
        before, after = changed_records(was, now)
        await self._append(
            RELOAD,
            f'{{"revision":"{revision_of(was)}","records":{before}}}',
            f'{{"revision":"{revision_of(now)}","records":{after}}}',
        )

    async def _known(self) -> str:
        """The revision that was noted last; empty when there was none."""
        async with self._store.read() as reader:
            newest = await reader.audit(AuditQuery(1, action="configuration", newest_first=True))
        try:
            return str(json.loads(newest[0].after)["revision"]) if newest else ""
        except (ValueError, LookupError, TypeError):  # somebody altered it
            return ""

    async def _append(self, action: str, before: str, after: str) -> None:
        draft = AuditDraft(self._clock(), DEFAULT_ACCOUNT, FILE, action, self._subject, before, after)
        await self._store.append_audit([draft])


def _records(settings: Settings) -> dict[str, object]:
    found: dict[str, object] = {f"provider {each.name}": each for each in settings.records.providers}
    found |= {f"route {each.name}": each for each in settings.records.routes}
    if settings.default_route:
        found["default_route"] = _Setting(settings.default_route)
    return found


_OF_NOTHING = revision_of({})
