"""Operations on the keys of the data listener."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.core.control_errors import InvalidRequest, NotFound
from pointsman.core.data_key import INFERENCE, KEY_PREFIX, PERMISSIONS, DataKey
from pointsman.core.provider import check_name
from pointsman.core.reach import Network
from pointsman.core.route import RESERVED_NAMES
from pointsman.core.secret import Secret
from pointsman.core.source_network import MOST_NETWORKS, read_network
from pointsman.core.token_digest import digest_of
from pointsman.gateway.lifetime import check_lifetime
from pointsman.gateway.named_routes import named_route
from pointsman.store.interface import Store

MOST_ROUTES = 64
"""That one key names; without any it may use all of its account."""


@dataclass(frozen=True, slots=True)
class KeyDraft:
    """What a key is to be."""

    name: str = ""
    """Empty: one is made."""
    permissions: tuple[str, ...] = ()
    """Empty: `inference`."""
    routes: tuple[str, ...] = ()
    """Empty: all of the account, those made later included."""
    lifetime_seconds: int | None = None
    networks: tuple[str, ...] = ()
    """Where its requests may come from; empty: anywhere."""
    user: str = ""
    """Who has it; empty: nobody in particular."""


class Keys:
    """Makes, lists and revokes them. `random_text` gives 256 random bits as URL-safe text."""

    def __init__(
        self, store: Store, clock: Callable[[], float], random_text: Callable[[], str], say: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._random_text = random_text
        self._say = say

    async def create(self, account: str, draft: KeyDraft) -> tuple[DataKey, Secret]:
        """A new key, and the only sight of it. Raises InvalidRequest, NotFound (a route) or AlreadyExists."""
        _check(draft)
        networks = _networks(draft.networks)
        secret, now = Secret(KEY_PREFIX + self._random_text()), self._clock()
        expires = None if draft.lifetime_seconds is None else now + draft.lifetime_seconds
        permissions = tuple(dict.fromkeys(draft.permissions)) or (INFERENCE,)
        routes = tuple(dict.fromkeys(draft.routes))
        digest = digest_of(secret.reveal())
        name = draft.name or _made_name(digest)
        key = DataKey(account, name, digest, now, permissions, routes, expires, networks=networks, user=draft.user)
        async with self._store.write() as writer:
            for route in routes:
                if await named_route(writer, account, route) is None:
                    raise NotFound(f"there is no route {route[:64]!r}; see: pointsman route list")
            await writer.insert_key(key)
        limited = f", routes {', '.join(routes)}" if routes else ""
        limited += f", from {', '.join(map(str, networks))}" if networks else ""
        limited += f", for user {draft.user}" if draft.user else ""
        self._say(f"key {key.name} of {account}: created, may {', '.join(permissions)}{limited}")
        return key, secret

    async def list(self, account: str) -> Sequence[DataKey]:
        """All of an account's, revoked ones included, by name."""
        async with self._store.read() as reader:
            return await reader.keys(account)

    async def revoke(self, account: str, name: str) -> bool:
        """Whether there was one to revoke. It opens nothing from now on."""
        async with self._store.write() as writer:
            revoked = await writer.revoke_key(account, name, self._clock())
        if revoked:
            self._say(f"key {name} of {account}: revoked")
        return revoked


def _made_name(digest: bytes) -> str:
    return f"key-{digest.hex()[:8]}"


def _networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Raises InvalidRequest."""
    if len(texts) > MOST_NETWORKS:
        raise InvalidRequest(f"{len(texts)} networks; at most {MOST_NETWORKS}, or none for anywhere")
    try:
        return tuple(dict.fromkeys(read_network(text.strip()) for text in texts))
    except ValueError as error:
        problem = str(error)
    raise InvalidRequest(problem)


def _check(draft: KeyDraft) -> None:
    if draft.name:
        check_name(draft.name, "key's name")
    if draft.user:
        check_name(draft.user, "user's name")
    check_lifetime(draft.lifetime_seconds)
    for permission in draft.permissions:
        if permission not in PERMISSIONS:
            raise InvalidRequest(f"there is no permission {permission[:64]!r}; there are {', '.join(PERMISSIONS)}")
    if len(draft.routes) > MOST_ROUTES:
        raise InvalidRequest(f"{len(draft.routes)} routes; at most {MOST_ROUTES}, or none for all of the account")
    for route in draft.routes:
        if route in RESERVED_NAMES:
            raise InvalidRequest(f"{route} is for sandboxes; name a route of 'pointsman route create'")
        check_name(route, "route's name")
