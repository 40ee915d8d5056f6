"""Operations on provider records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.core.control_errors import DefinedInFile, InvalidRequest, NotFound, NotPossibleNow
from pointsman.core.limits import MIB
from pointsman.core.provider import Provider, ProviderDraft, changed, check_new
from pointsman.store.interface import Store

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000
LARGEST_PAGE_BYTES = 3 * MIB
"""Of what is shown of a page: clients take 4 MiB in one message. Records of usual size have 300 bytes."""
_SLICE = 25
"""Records read at a time: 20 MiB at all of their limits, and others have their turn in between."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """What deleting a provider did."""

    deleted: bool
    broken_routes: tuple[str, ...] = ()
    """Routes that lead nowhere from now on."""


@dataclass(frozen=True, slots=True)
class ProviderPage:
    """Some records, and how many there are."""

    providers: Sequence[Provider]
    total: int


class Providers:
    """Keeps records; whether one can be called is asked when a route is set."""

    def __init__(
        self, store: Store, clock: Callable[[], float], ids: Callable[[], str], say: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._say = say

    async def create(self, account: str, draft: ProviderDraft) -> Provider:
        """A new record. Raises InvalidRequest or AlreadyExists."""
        check_new(draft)
        now, record_id = self._clock(), self._ids()
        name = draft.name or f"{draft.type.strip().lower()}-{record_id[:8]}"
        provider = Provider(record_id, account, name, draft.type, draft.credentials, draft.config, now, now)
        provider = changed(provider, ProviderDraft(name), now)  # without empty values
        async with self._store.write() as writer:
            await writer.insert_provider(provider)
        self._say(f"provider {name} of {account}: created, type {provider.type}")
        return provider

    async def get(self, account: str, name: str) -> Provider:
        """One record. Raises NotFound."""
        async with self._store.read() as reader:
            provider = await reader.provider(account, name)
        if provider is None:
            raise _no_provider(name)
        return provider

    async def page(self, account: str, limit: int = 0, offset: int = 0) -> ProviderPage:
        """Records by name; `limit` 0 means 100. Raises InvalidRequest for more than an answer can hold."""
        if limit > LARGEST_PAGE:
            raise InvalidRequest(f"limit {limit} is too large; at most {LARGEST_PAGE}")
        found: list[Provider] = []
        size, end = 0, offset + (limit or DEFAULT_PAGE)
        async with self._store.read() as reader:
            total = await reader.count_providers(account)
            for start in range(offset, min(end, total), _SLICE):
                found += await reader.providers(account, min(_SLICE, end - start), start)
                size += sum(map(_shown_bytes, found[start - offset :]))
                if size > LARGEST_PAGE_BYTES:
                    raise InvalidRequest(
                        f"these providers have over {LARGEST_PAGE_BYTES // MIB} MiB together, too much for one answer; "
                        "ask for fewer with a smaller limit"
                    )
        return ProviderPage(found, total)

    async def update(self, account: str, draft: ProviderDraft) -> Provider:
        """Merge into a record, in one step. Raises NotFound or InvalidRequest."""
        async with self._store.write() as writer:
            provider = await writer.provider(account, draft.name)
            if provider is None:
                raise _no_provider(draft.name)
            if provider.from_file:
                raise DefinedInFile("provider", provider.name)
            provider = changed(provider, draft, self._clock())
            await writer.replace_provider(provider)
        self._say(f"provider {provider.name} of {account}: updated; changed: {_changed_keys(draft)}")
        return provider

    async def delete(self, account: str, name: str, *, force: bool) -> Deletion:
        """Delete a record. Raises NotPossibleNow while routes use it, unless forced."""
        async with self._store.write() as writer:
            provider = await writer.provider(account, name)
            if provider is not None and provider.from_file:
                raise DefinedInFile("provider", name)  # before anybody looks for routes to point elsewhere
            users = tuple(route.name for route in await writer.routes_to(account, name))
            if users and not force:
                raise NotPossibleNow(
                    f"provider {name} is used by {_listed(users)}; point {'it' if len(users) == 1 else 'them'} "
                    "elsewhere first, or force it (--force; ?force=true)"
                )
            deleted = await writer.delete_provider(account, name)
        if deleted:
            told = f"; no longer available: {_listed(users)}" if users else ""
            self._say(f"provider {name} of {account}: deleted{told}")
        return Deletion(deleted, users if deleted else ())


def _shown_bytes(provider: Provider) -> int:
    texts = (*provider.credentials, *provider.config, *provider.config.values())
    return sum(len(text.encode()) for text in texts)


def _no_provider(name: str) -> NotFound:
    return NotFound(f"provider {name[:64]!r} not found; see: pointsman provider list")


def _listed(routes: tuple[str, ...]) -> str:
    return f"route{'s' if len(routes) > 1 else ''} {', '.join(routes)}"


def _changed_keys(draft: ProviderDraft) -> str:
    return ", ".join((*sorted(draft.credentials), *sorted(draft.config))) or "nothing"
