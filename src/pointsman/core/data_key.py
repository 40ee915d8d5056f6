"""A key of the data listener: which account its requests are, and what they may do."""

from dataclasses import dataclass

from pointsman.core.reach import Network

INFERENCE = "inference"
"""To call routes; what a key may do unless it says otherwise."""
MODELS_CREATE = "models:create"
MODELS_DELETE = "models:delete"
MODELS_EDIT = "models:edit"
MODELS_VIEW = "models:view"
RUNNERS_MANAGE = "runners:manage"
PERMISSIONS = (INFERENCE, MODELS_CREATE, MODELS_DELETE, MODELS_EDIT, MODELS_VIEW, RUNNERS_MANAGE)
"""Every word that a key may carry."""
KEY_PREFIX = "pointsman-key-"
"""So that a key found somewhere tells what it is, and a caller's token which table it is in."""


@dataclass(frozen=True, slots=True)
class DataKey:
    """What is kept of a key; the key itself is shown once."""

    account: str
    name: str
    digest: bytes
    """SHA-256 of the key. It has 256 random bits, so a slow hash would protect nothing more."""
    created_at: float
    """Seconds since the epoch, as the others."""
    permissions: tuple[str, ...] = (INFERENCE,)
    routes: tuple[str, ...] = ()
    """The only ones that it may use; empty for all of its account."""
    expires_at: float | None = None
    revoked_at: float | None = None
    networks: tuple[Network, ...] = ()
    """Where its requests may come from; empty for anywhere."""
    user: str = ""
    """Who has it, as the operator calls them; empty for nobody in particular."""

    def is_valid(self, now: float) -> bool:
        """Whether it still entitles to anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def permits(self, permission: str) -> bool:
        """Whether it may do what this word stands for."""
        return permission in self.permissions

    def may_use(self, route: str) -> bool:
        """Whether it may call this route of its account; whether there is one is another question."""
        return not self.routes or route in self.routes
