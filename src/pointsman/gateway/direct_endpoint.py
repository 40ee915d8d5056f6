"""Where a direct AI model may be: checked when an account's user names it. Connections are checked again.

A name may lead elsewhere tomorrow, so what is found here is a courtesy to whoever made a mistake; `core.reach` asked at
connect is what holds.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from pointsman.core.control_errors import InvalidRequest, NotPossibleNow
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.reach import DirectReach

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name. Raises OSError."""
_LOOKUP_SECONDS = 5.0
_LOOKUPS_AT_ONCE = 4
"""Whoever has a slow name server of their own shall not hold up all of the loop's threads."""
_SCHEMES = ("http", "https")


class SystemLookup:
    """As the system answers."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_LOOKUPS_AT_ONCE)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host name. Raises OSError."""
        async with self._places:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(each[4][0]) for each in found))


class DirectEndpoints:
    """Which addresses direct models may have."""

    def __init__(self, reach: DirectReach, lookup: Lookup | None = None) -> None:
        self.reach = reach
        self._lookup = lookup or SystemLookup()

    async def checked(self, text: str) -> str:
        """The one spelling of a base URL. Raises InvalidRequest, or NotPossibleNow for a name that is not found."""
        try:
            endpoint = parse_endpoint(text)
        except ValueError as error:
            raise InvalidRequest(f"api_endpoint {error}") from None
        if endpoint.scheme not in _SCHEMES:
            raise InvalidRequest("api_endpoint is neither http:// nor https://; write it as https://host/v1")
        host = endpoint.host.removesuffix(".")
        for address in await _addresses(host, endpoint.port, self._lookup):
            reason = self.reach.refused(address)
            if reason is not None:
                raise InvalidRequest(
                    f"api_endpoint leads to what {reason}; name a public one, register it at a runner, or let the "
                    "operator add its network to direct_allowed_cidrs"
                )
        return f"{endpoint.scheme}://{replace(endpoint, host=host).authority}{endpoint.path}"


async def _addresses(host: str, port: int, lookup: Lookup) -> Sequence[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    try:
        async with asyncio.timeout(_LOOKUP_SECONDS):
            found = await lookup(host, port)
    except (OSError, UnicodeError):  # TimeoutError is one
        found = ()
    if not found:
        raise NotPossibleNow("the host of api_endpoint has no address at present; check its spelling, then try again")
    return found
