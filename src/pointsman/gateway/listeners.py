"""The gateway's three listeners: their sockets, and the same TLS for each of the libraries that serve them.

What is served there belongs to `data_listener`, `rest` and `grpc`.
"""

import socket
import ssl
from dataclasses import dataclass

import grpc

from pointsman.config.listen_address import Address
from pointsman.config.settings import Listen
from pointsman.config.tls_files import Tls, load_pair
from pointsman.gateway.cannot_start import CannotStart
from pointsman.proxy.process import bind

_LOWEST_TLS = ssl.TLSVersion.TLSv1_2


@dataclass(frozen=True, slots=True)
class Sockets:
    """Listening sockets. gRPC binds its own: `bind_grpc`."""

    data: socket.socket | None
    """None for a process that serves no data."""
    control: socket.socket

    def close(self) -> None:
        """For a gateway that does not start after all."""
        if self.data is not None:
            self.data.close()
        self.control.close()


def bind_sockets(listen: Listen, *, with_data: bool = True) -> Sockets:
    """Listen for data and control. Raises CannotStart, which names the key; nothing stays open then."""
    data = _bind("listen.data", listen.data) if with_data else None
    try:
        return Sockets(data, _bind("listen.control", listen.control))
    except CannotStart:
        if data is not None:
            data.close()
        raise


def _bind(key: str, address: Address) -> socket.socket:
    try:
        return bind((address.host, address.port))
    except OSError as error:
        # asyncio and create_server add the address to the text, which is said already.
        reason = (error.strerror or str(error)).partition(" (while")[0].lower()
        raise CannotStart(f"{key} {address}: {reason}; choose another address or port") from None


def bind_grpc(server: grpc.aio.Server, address: Address, tls: Tls | None) -> int:
    """Let a gRPC server listen; the port that it got. Raises CannotStart.

    The server must have been made with `GRPC_OPTIONS`, or two gateways could share one port.
    """
    credentials = grpc_credentials(tls)
    try:
        if credentials is None:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), credentials)
    except RuntimeError:
        port = 0
    if not port:
        raise CannotStart(f"listen.grpc {address}: in use, or not of this machine; choose another address or port")
    return port


GRPC_OPTIONS = (("grpc.so_reuseport", 0),)
"""Without it a second server on the same port takes half of the calls instead of failing."""


def ssl_context(tls: Tls | None) -> ssl.SSLContext | None:
    """For the data and control listeners; None for clear text. Raises CannotStart."""
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _LOWEST_TLS
    context.set_alpn_protocols(["http/1.1"])
    try:
        load_pair(context, tls)
        if tls.client_ca is not None:
            context.load_verify_locations(cafile=tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise _changed(error) from None
    return context


def grpc_credentials(tls: Tls | None) -> grpc.ServerCredentials | None:
    """For the gRPC listener; None for clear text. Raises CannotStart."""
    if tls is None:
        return None
    try:
        key, cert = tls.key.read_bytes(), tls.cert.read_bytes()
        authority = tls.client_ca.read_bytes() if tls.client_ca is not None else None
    except OSError as error:
        raise _changed(error) from None
    return grpc.ssl_server_credentials([(key, cert)], authority, require_client_auth=authority is not None)


def _changed(error: OSError) -> CannotStart:
    """The files were good when the settings were read."""
    return CannotStart(f"tls: {(error.strerror or str(error)).lower()}; start again when cert and key are in place")
