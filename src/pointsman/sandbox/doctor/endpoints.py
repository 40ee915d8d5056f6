"""Can the hosts that a route file names be reached? Name, connection, TLS; no key and no request is sent. A shell."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pointsman.core.candidate import Candidate
from pointsman.core.reach import refused_address

_SECONDS = 10.0
"""For each of name, connection and TLS; the proxy itself allows 30 for all of it."""


class Failure(StrEnum):
    """Why an endpoint cannot be reached."""

    UNKNOWN_NAME = "unknown_name"
    NO_NAME_SERVER = "no_name_server"
    FORBIDDEN_ADDRESS = "forbidden_address"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    UNTRUSTED = "untrusted"
    EXPIRED = "expired"
    WRONG_NAME = "wrong_name"
    NO_TLS = "no_tls"
    CA_BUNDLE = "ca_bundle"


_MENDS = {
    Failure.UNKNOWN_NAME: "check the spelling of the endpoint",
    Failure.NO_NAME_SERVER: "check /etc/resolv.conf and the network",
    Failure.FORBIDDEN_ADDRESS: "name the model server itself; link-local and metadata addresses are never dialled",
    Failure.REFUSED: "start the model server, or correct the port",
    Failure.UNREACHABLE: "check the network, a VPN, the firewall",
    Failure.TIMED_OUT: "check the network and the firewall: nothing answered",
    Failure.UNTRUSTED: "add ca_bundle: FILE with the certificate authority of that server to the route",
    Failure.EXPIRED: "renew the server's certificate, or set this machine's clock",
    Failure.WRONG_NAME: "write the name that is in the server's certificate",
    Failure.NO_TLS: "write http:// if that server speaks no TLS, or correct the port",
    Failure.CA_BUNDLE: "name a file of PEM certificates",
}


@dataclass(frozen=True, slots=True)
class Reach:
    """What was learnt of one host; `failure` is None when it can be reached."""

    endpoint: str
    routes: tuple[str, ...]
    failure: Failure | None = None
    detail: str = ""

    @property
    def mend(self) -> str:
        """The next step, or empty."""
        return _MENDS[self.failure] if self.failure else ""


@dataclass(frozen=True, slots=True)
class _Target:
    host: str
    port: int
    tls: bool
    ca_bundle: str
    shown: str


class _Unreached(Exception):
    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


async def reach_all(candidates: Sequence[Candidate], seconds: float = _SECONDS) -> list[Reach]:
    """Every distinct host of the candidates, at once; what has no host (gguf, mock) is left out."""
    targets: dict[_Target, list[str]] = {}
    for candidate in candidates:
        endpoint = candidate.endpoint
        if endpoint.scheme in ("http", "https"):
            tls, shown = endpoint.scheme == "https", f"{endpoint.scheme}://{endpoint.authority}"
            target = _Target(endpoint.host, endpoint.port, tls, candidate.ca_bundle, shown)
            targets.setdefault(target, []).append(f"{candidate.route} ({candidate.model})")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_reach(target, tuple(routes), seconds)) for target, routes in targets.items()]
    return [task.result() for task in tasks]


async def _reach(target: _Target, routes: tuple[str, ...], seconds: float) -> Reach:
    try:
        addresses = await _resolve(target, seconds)
        connection = await _connect(target, addresses, seconds)
        try:
            if target.tls:
                await asyncio.to_thread(_handshake, connection, target, seconds)
        finally:
            connection.close()
    except _Unreached as error:
        return Reach(target.shown, routes, error.failure, error.detail)
    return Reach(target.shown, routes)


async def _resolve(target: _Target, seconds: float) -> list[str]:
    try:
        async with asyncio.timeout(seconds):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise _Unreached(Failure.NO_NAME_SERVER, f"no answer about {target.host} within {seconds:g} s") from None
    except socket.gaierror as error:
        unsure = error.errno in (socket.EAI_AGAIN, socket.EAI_FAIL)
        failure = Failure.NO_NAME_SERVER if unsure else Failure.UNKNOWN_NAME
        raise _Unreached(failure, f"cannot resolve {target.host}: {error.strerror}") from None
    except (OSError, UnicodeError) as error:
        raise _Unreached(Failure.UNKNOWN_NAME, f"cannot resolve {target.host}: {error}") from None
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    allowed = [each for each in addresses if not refused_address(each)]
    if not allowed:
        reason = refused_address(addresses[0])
        raise _Unreached(Failure.FORBIDDEN_ADDRESS, f"{target.host} is {addresses[0]}, which {reason}")
    return allowed


async def _connect(target: _Target, addresses: list[str], seconds: float) -> socket.socket:
    last: OSError | None = None
    try:
        async with asyncio.timeout(seconds):
            for address in addresses:
                connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
                connection.setblocking(False)
                try:
                    await asyncio.get_running_loop().sock_connect(connection, (address, target.port))
                except OSError as error:
                    connection.close()
                    last = error
                except BaseException:
                    connection.close()
                    raise
                else:
                    return connection
    except TimeoutError:
        raise _Unreached(Failure.TIMED_OUT, f"no connection within {seconds:g} s") from None
    refused = last is not None and last.errno == errno.ECONNREFUSED
    failure = Failure.REFUSED if refused else Failure.UNREACHABLE
    raise _Unreached(failure, f"cannot connect to port {target.port}: {last.strerror if last else 'no address'}")


def _handshake(connection: socket.socket, target: _Target, seconds: float) -> None:
    """As the proxy does it: the same store, the same versions, verified."""
    connection.settimeout(seconds)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if target.ca_bundle:
            context.load_verify_locations(cafile=target.ca_bundle)
        else:
            context.load_default_certs()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
    except (OSError, ValueError):
        raise _Unreached(Failure.CA_BUNDLE, f"{target.ca_bundle} holds no certificate") from None
    try:
        context.wrap_socket(connection, server_hostname=target.host).close()
    except ssl.SSLCertVerificationError as error:
        raise _Unreached(_verdict(error), f"its certificate: {error.verify_message}") from None
    except TimeoutError:
        raise _Unreached(Failure.TIMED_OUT, f"no TLS within {seconds:g} s") from None
    except (OSError, ValueError) as error:
        what = getattr(error, "reason", None) or error
        raise _Unreached(Failure.NO_TLS, f"no TLS handshake: {what}") from None


def _verdict(error: ssl.SSLCertVerificationError) -> Failure:
    # <openssl/x509_vfy.h>: 9 and 10 are times, 62 and 64 names.
    if error.verify_code in (9, 10):
        return Failure.EXPIRED
    return Failure.WRONG_NAME if error.verify_code in (62, 64) else Failure.UNTRUSTED
