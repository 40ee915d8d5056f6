"""Operations on the tokens of sandboxes."""

from collections.abc import Callable, Sequence

from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.control_errors import InvalidRequest, NotFound
from pointsman.core.provider import check_name
from pointsman.core.route import RESERVED_NAMES
from pointsman.core.sandbox_token import SandboxToken
from pointsman.core.secret import Secret
from pointsman.core.token_digest import digest_of
from pointsman.gateway.lifetime import check_lifetime
from pointsman.gateway.named_routes import named_route
from pointsman.store.interface import Store

_PREFIX = "pointsman-sandbox-"
"""So that a token found somewhere tells what it is."""


class SandboxTokens:
    """Makes, lists and revokes them. `random_text` gives 256 random bits as URL-safe text."""

    def __init__(
        self, store: Store, clock: Callable[[], float], random_text: Callable[[], str], say: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._random_text = random_text
        self._say = say

    async def create(
        self, account: str, name: str, route: str = "", lifetime_seconds: int | None = None
    ) -> tuple[SandboxToken, Secret]:
        """A new token, and the only sight of it. Raises InvalidRequest, NotFound (the route) or AlreadyExists."""
        check_name(name, "sandbox's name")
        check_lifetime(lifetime_seconds)
        if route == INFERENCE_LOCAL:
            route = ""  # where it leads anyway
        if route in RESERVED_NAMES:
            raise InvalidRequest(f"{route} is not for what runs in a sandbox; name a route of 'pointsman route create'")
        secret, now = Secret(_PREFIX + self._random_text()), self._clock()
        expires = None if lifetime_seconds is None else now + lifetime_seconds
        token = SandboxToken(account, name, digest_of(secret.reveal()), route, now, expires)
        async with self._store.write() as writer:
            if route and await named_route(writer, account, route) is None:
                raise NotFound(f"there is no route {route[:64]!r}; see: pointsman route list")
            await writer.insert_sandbox_token(token)
        self._say(f"sandbox token {name} of {account}: created{f', route {route}' if route else ''}")
        return token, secret

    async def list(self, account: str) -> Sequence[SandboxToken]:
        """All of an account's, revoked ones included, by name."""
        async with self._store.read() as reader:
            return await reader.sandbox_tokens(account)

    async def revoke(self, account: str, name: str) -> bool:
        """Whether there was one to revoke. It entitles to nothing from now on."""
        async with self._store.write() as writer:
            revoked = await writer.revoke_sandbox_token(account, name, self._clock())
        if revoked:
            self._say(f"sandbox token {name} of {account}: revoked")
        return revoked
