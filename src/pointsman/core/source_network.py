"""Networks that a key's requests may come from: how they are written, and whether an address is in one. Pure."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from pointsman.core.reach import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MOST_NETWORKS = 16
"""Of one key (ours): each is compared with the address of every request."""


def read_network(text: str) -> Network:
    """A network, or a single address as one. Raises ValueError whose text says what is wrong."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        meant = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text[:64]!r} is no network; write it as 10.0.0.0/8 or 2001:db8::/32") from None
    raise ValueError(f"{text[:64]!r} has bits behind its prefix; did you mean {meant}?")


@lru_cache(maxsize=4096)
def _read_address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # A socket that takes both families tells IPv4 so.
    return getattr(address, "ipv4_mapped", None) or address


def is_address(text: str) -> bool:
    """Whether it is an IP address as a connection may have."""
    return _read_address(text) is not None


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether a connection's address is in one of them. What is no address, or empty, is in none."""
    read = _read_address(address)
    return read is not None and any(read in network for network in networks)
