"""Where a listener listens: an IP address and a port. Pure; no name is ever looked up."""

import ipaddress
from dataclasses import dataclass

_LOCALHOST = "localhost"
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address of this machine and a port; port 0 takes any free one."""

    host: str
    """Without brackets, in its shortest spelling."""
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    def overlaps(self, other: "Address") -> bool:
        """Whether the two cannot both be listened on."""
        if not self.port or self.port != other.port:
            return False
        either = (self.host, other.host)
        return self.host == other.host or any(ipaddress.ip_address(host).is_unspecified for host in either)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `HOST:PORT`; an IPv6 address stands in brackets, and `localhost` is 127.0.0.1.

    Raises ValueError with a reason that repeats nothing of the text.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise ValueError("is not HOST:PORT")
    if int(port) > _HIGHEST_PORT:
        raise ValueError(f"has a port beyond {_HIGHEST_PORT}")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed != (":" in host):
        raise ValueError("needs brackets around an IPv6 address, and around nothing else")
    if host.lower() == _LOCALHOST:
        return Address("127.0.0.1", int(port))
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise ValueError("has a name or a broken address where an IP address belongs") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError("has an address with a zone")
        if address.ipv4_mapped is not None:
            raise ValueError("has an IPv4 address in IPv6 spelling")
    return Address(str(address), int(port))
