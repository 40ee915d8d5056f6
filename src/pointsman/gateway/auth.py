"""Whose token it is. One place for every protocol; what an identity may do is decided by whoever asks."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.control_errors import NotFound, Unauthenticated
from pointsman.core.data_key import KEY_PREFIX, DataKey
from pointsman.core.sandbox_token import SandboxToken
from pointsman.core.secret import Secret
from pointsman.core.token_digest import digest_of
from pointsman.store.interface import Store

_MOST_KEPT = 10_000
"""Tokens remembered between two changes of the store; a gateway with more asks the database more often."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls."""

    account: str
    """The account that is worked on."""
    is_admin: bool = False
    sandbox_token: SandboxToken | None = None
    data_key: DataKey | None = None
    """A key of the data listener; it opens nothing of the control plane."""
    is_halted: bool = False
    """Whether the key's account may do nothing."""


class Authenticator:
    """Knows the admin's token and, by the store, those of sandboxes and the keys of the data listener."""

    def __init__(self, store: Store, admin_token: Secret, clock: Callable[[], float]) -> None:
        self._store = store
        self._admin_digest = digest_of(admin_token.reveal())
        self._clock = clock
        self._known: dict[bytes, tuple[SandboxToken | DataKey | None, bool]] = {}
        """Each with whether its account is halted."""
        self._known_at = -1
        """The store's generation that `_known` belongs to."""

    async def identify(self, bearer: str | None) -> Identity:
        """The identity of a token. Raises Unauthenticated, also for one that is revoked or has expired."""
        if not bearer:
            raise Unauthenticated(
                "a token is needed: send 'authorization: Bearer TOKEN'; the admin's is in admin.token, in the "
                "gateway's data directory"
            )
        digest = digest_of(bearer)
        # Digests are compared, in constant time: of a token, its length included, timing tells nothing.
        if hmac.compare_digest(digest, self._admin_digest):
            return Identity(DEFAULT_ACCOUNT, is_admin=True)
        is_key = bearer.startswith(KEY_PREFIX)
        token, is_halted = await self._token(digest, is_key=is_key)
        if token is None or not token.is_valid(self._clock()):
            what, make = ("key", "key") if is_key else ("token", "sandbox token")
            raise Unauthenticated(f"the {what} is not valid, or no longer; make one: pointsman {make} create NAME")
        if isinstance(token, DataKey):
            return Identity(token.account, data_key=token, is_halted=is_halted)
        return Identity(token.account, sandbox_token=token)

    async def admin_of(self, account: str) -> Identity:
        """An admin who works on `account`. Raises NotFound when there is none."""
        if account != DEFAULT_ACCOUNT:
            async with self._store.read() as reader:
                if await reader.account(account) is None:
                    raise NotFound(f"there is no account {account[:64]!r}; see: pointsman account list")
        return Identity(account, is_admin=True)

    async def _token(self, digest: bytes, *, is_key: bool) -> tuple[SandboxToken | DataKey | None, bool]:
        generation = await self._store.generation()
        if generation != self._known_at:
            self._known, self._known_at = {}, generation
        known = self._known.get(digest)
        if known is None:
            async with self._store.read() as reader:
                token = await (reader.key_by_digest(digest) if is_key else reader.sandbox_token_by_digest(digest))
                account = None if token is None else await reader.account(token.account)
            # The digest was found by an index; this says so in constant time, whatever the database compares like.
            if token is None or not hmac.compare_digest(token.digest, digest):
                return None, False
            known = token, account is not None and account.halted_at is not None
            if self._known_at == generation and len(self._known) < _MOST_KEPT:
                self._known[digest] = known
        return known
