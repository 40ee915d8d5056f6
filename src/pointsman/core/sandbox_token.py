"""The identity of one sandbox, or of several that are meant to be the same: what its token entitles it to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SandboxToken:
    """What is kept of a token; the token itself is shown once."""

    account: str
    name: str
    digest: bytes
    """SHA-256 of the token. A token has 256 random bits, so a slow hash would protect nothing more."""
    route: str
    """The route that `inference.local` leads to for this sandbox; empty for the shared one."""
    created_at: float
    """Seconds since the epoch, as the others."""
    expires_at: float | None = None
    revoked_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Whether it still entitles to anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
