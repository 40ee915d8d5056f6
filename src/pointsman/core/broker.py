"""Where a NATS server is: a URL taken apart once, strictly."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pointsman.core.secret import Secret

_SCHEMES = ("nats", "tls")
_DEFAULT_PORT = 4222


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a NATS server is, and how to be let in."""

    host: str
    port: int
    is_secure: bool
    user: str = ""
    password: Secret | None = None
    """A password, or without a user a token."""

    @property
    def told(self) -> str:
        """Fit for logs: no credential."""
        return f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """Its URL for people: what may be a password or a token is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.is_secure else 'nats'}://{'…@' if self.password else ''}{host}:{self.port}"


def parse_broker(url: Secret) -> Broker:
    """Take apart `nats://` or `tls://`, `[USER:PASSWORD@|TOKEN@]HOST[:PORT]`. Raises ValueError, repeating nothing."""
    try:
        parts = urlsplit(url.reveal())
        port = parts.port or _DEFAULT_PORT
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError("is not of the form nats://HOST:PORT or tls://HOST:PORT")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if user and not password:
        user, password = "", user
    return Broker(parts.hostname, port, parts.scheme == "tls", user, Secret(password) if password else None)
