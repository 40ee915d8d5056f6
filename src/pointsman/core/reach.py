"""Which addresses a route may never lead to (DESIGN section 9, "Reach"): an operator's, and those of account users."""

import ipaddress
from dataclasses import dataclass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_REFUSED = tuple(
    (ipaddress.ip_network(network), reason)
    for network, reason in (
        ("0.0.0.0/32", "is the unspecified address"),
        ("::/128", "is the unspecified address"),
        ("169.254.0.0/16", "is a link-local or metadata address"),
        ("fe80::/10", "is a link-local address"),
        ("168.63.129.16/32", "is a metadata address"),
        ("192.0.0.192/32", "is a metadata address"),
        ("100.100.100.200/32", "is a metadata address"),
        ("fd00:ec2::254/128", "is a metadata address"),
        ("fd20:ce::254/128", "is a metadata address"),
        ("224.0.0.0/4", "is a multicast address"),
        ("ff00::/8", "is a multicast address"),
        ("255.255.255.255/32", "is the broadcast address"),
    )
)
_NOT_PUBLIC = tuple(
    (ipaddress.ip_network(network), reason)
    for network, reason in (
        ("127.0.0.0/8", "is a loopback address"),
        ("::1/128", "is a loopback address"),
        ("0.0.0.0/8", "is an address of this network"),
        ("10.0.0.0/8", "is a private address"),
        ("172.16.0.0/12", "is a private address"),
        ("192.168.0.0/16", "is a private address"),
        ("fc00::/7", "is a private address"),
        ("fec0::/10", "is a site-local address"),
        ("100.64.0.0/10", "is a shared address"),  # RFC 6598, and what overlay networks give out
        ("192.0.0.0/24", "is a reserved address"),
        ("198.18.0.0/15", "is a reserved address"),  # RFC 2544
        ("240.0.0.0/4", "is a reserved address"),
        ("100::/64", "is a reserved address"),  # RFC 6666, discarded
    )
)
_IPV4_BELOW = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "64:ff9b::/96",  # NAT64, RFC 6052
        "64:ff9b:1::/48",  # NAT64 of one's own, RFC 8215
        "::ffff:0:0:0/96",  # IPv4-translated, RFC 2765
        "::/96",  # IPv4-compatible, RFC 4291
    )
)
"""Networks whose addresses hold an IPv4 address in their last 32 bits; the module knows the others itself."""


def refused_address(text: str) -> str | None:
    """Why an IP address must not be dialled, or None. Addresses that embed an IPv4 address are judged by it.

    Private and loopback addresses are permitted. Raises ValueError for text that is no IP address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    for form in (address, *_embedded(address)):
        for network, reason in _REFUSED:
            if form.version == network.version and form in network:
                return reason
    return None


@dataclass(frozen=True, slots=True)
class DirectReach:
    """Where models that an account's users make may lead to: to public addresses, and where the operator allows it."""

    allowed: tuple[Network, ...] = ()
    """The setting direct_allowed_cidrs. What nobody may dial it does not open."""

    def refused(self, text: str) -> str | None:
        """Why an IP address must not be dialled, or None. To be asked when a model is made, and for every connection.

        Raises ValueError for text that is no IP address.
        """
        reason = refused_address(text)
        if reason is not None:
            return reason
        address = ipaddress.ip_address(text.partition("%")[0])
        if self._allows(address):
            return None
        for form in (address, *_embedded(address)):
            for network, private in _NOT_PUBLIC:
                if form.version == network.version and form in network and not self._allows(form):
                    return private
        return None

    def _allows(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        return any(address.version == each.version and address in each for each in self.allowed)


ONLY_PUBLIC = DirectReach()
"""Where nothing has been opened."""


def _embedded(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _IPV4_BELOW):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]
