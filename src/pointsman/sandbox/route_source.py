"""Where a sandbox's routes come from: a file, read once, or a gateway, asked again and again."""

from dataclasses import dataclass

from pointsman.config.routes_file import LoadedRoutes
from pointsman.core.gateway_address import GatewayAddress
from pointsman.core.secret import Secret
from pointsman.rpc.token_file import read_token
from pointsman.sandbox.route_refresh import DEFAULT_INTERVAL_SECONDS


@dataclass(frozen=True, slots=True)
class FileRoutes:
    """A route file."""

    loaded: LoadedRoutes
    path: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """Files that a sandboxed command must not read."""
        return (self.path,) if self.path else ()


@dataclass(frozen=True, slots=True)
class GatewayRoutes:
    """A gateway, and what it knows this sandbox by. `gateway_routes` makes one."""

    gateway: GatewayAddress
    token_file: str
    token: Secret
    """As it was at the start; the file is read again when the gateway does not take it."""
    interval_seconds: float = DEFAULT_INTERVAL_SECONDS

    @property
    def files(self) -> tuple[str, ...]:
        """Files that a sandboxed command must not read."""
        return tuple(path for path in (self.token_file, self.gateway.key_file) if path)


RouteSource = FileRoutes | GatewayRoutes


def gateway_routes(
    gateway: GatewayAddress, token_file: str, interval_seconds: float = DEFAULT_INTERVAL_SECONDS
) -> GatewayRoutes:
    """Routes that a gateway gives to whoever has the token. Raises GatewayFileError."""
    return GatewayRoutes(gateway, token_file, read_token(token_file), interval_seconds)
