"""Where a gateway's gRPC listener is, and what proves that it is the right one. Only names: no file is looked at."""

import ipaddress
import re
from dataclasses import dataclass

from pointsman.core.endpoint import parse_endpoint

_HAS_PORT = re.compile(r":[0-9]+/?$")
_EXAMPLE = "https://gateway.example:8782"


class GatewayFileError(Exception):
    """A file that a connection to a gateway needs cannot be used. The text names it and says why and what to do."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """A gateway, and the PEM files of a connection to it. Without TLS it is on this machine."""

    host: str
    port: int
    tls: bool = False
    ca_file: str = ""
    """The only certificates it is verified against; empty for the public ones."""
    certificate_file: str = ""
    """Ours, for a gateway that asks for one; empty for none."""
    key_file: str = ""

    @property
    def url(self) -> str:
        """As an operator would write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def read_gateway_address(
    text: str, ca_file: str = "", certificate_file: str = "", key_file: str = ""
) -> GatewayAddress:
    """Read `https://HOST:PORT`, `http://HOST:PORT` or `HOST:PORT`, which means http.

    Raises ValueError, whose text begins with a verb and ends in the next step, for anything else, for http beyond
    loopback (a gateway sends keys) and for files that don't go together.
    """
    text = text.strip()
    try:
        endpoint = parse_endpoint(text if "://" in text else f"http://{text}")
    except ValueError as error:
        reason = str(error).partition(";")[0]  # its next step is about other addresses
        raise ValueError(f"{reason}; write https://HOST:PORT, for example {_EXAMPLE}") from None
    if endpoint.scheme not in ("http", "https") or endpoint.path:
        raise ValueError(f"is not http://HOST:PORT or https://HOST:PORT; for example {_EXAMPLE}")
    if not _HAS_PORT.search(text):
        raise ValueError("names no port; add that of the gateway's gRPC listener, :8782 unless it was changed")
    tls = endpoint.scheme == "https"
    if not tls and not is_loopback(endpoint.host):
        raise ValueError("is plain text to another machine, and keys travel on it; write https://, and --gateway-ca")
    if not tls and (ca_file or certificate_file or key_file):
        raise ValueError("is plain text, so certificates mean nothing; write https://, or leave them out")
    if bool(certificate_file) != bool(key_file):
        raise ValueError("gets half of a certificate; give --gateway-cert together with --gateway-key")
    # With its dot the name is not looked for in the hosts file: a name server could send the keys anywhere.
    host = "localhost" if _is_localhost(endpoint.host) else endpoint.host
    return GatewayAddress(host, endpoint.port, tls, ca_file, certificate_file, key_file)


def _is_localhost(host: str) -> bool:
    """Whether it is that name, in lower case; one dot behind it is allowed."""
    return host.removesuffix(".") == "localhost"


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an address, never leaves this machine."""
    if _is_localhost(host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
