"""Where a gateway's control listener is, and how it is reached: https with its certificate verified, always."""

import re
import ssl
from urllib.parse import quote

from pointsman.core.gateway_address import GatewayAddress, read_gateway_address

DEFAULT_GATEWAY = "http://127.0.0.1:8781"
API = "/api/v1"
_HAS_PORT = re.compile(r":[0-9]+/?$")


def read_control_address(text: str, ca_file: str = "") -> GatewayAddress:
    """Raises ValueError, whose text begins with a verb, also for http to another machine: a token travels on it."""
    if not _HAS_PORT.search(text.strip()):
        raise ValueError("names no port; add that of the gateway's control listener, :8781 unless it was changed")
    return read_gateway_address(text, ca_file)


def websocket_url(address: GatewayAddress, runner_id: str) -> str:
    """Where a runner dials."""
    scheme, _, rest = address.url.partition("://")
    return f"{'wss' if scheme == 'https' else 'ws'}://{rest}{API}/runners/{quote(runner_id, safe='')}/ws"


def tls_context(address: GatewayAddress) -> ssl.SSLContext | None:
    """None for clear text on loopback. Raises OSError for a file of authorities that cannot be used."""
    return ssl.create_default_context(cafile=address.ca_file or None) if address.tls else None
