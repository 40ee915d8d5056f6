"""Binding the gateway's listeners, and the same TLS on all three."""

import asyncio
import contextlib
import socket
import ssl
import threading
from pathlib import Path

import grpc
import pytest
import trustme

from pointsman.config.listen_address import Address
from pointsman.config.settings import Listen
from pointsman.config.tls_files import Tls
from pointsman.gateway.cannot_start import CannotStart
from pointsman.gateway.listeners import (
    GRPC_OPTIONS,
    bind_grpc,
    bind_sockets,
    grpc_credentials,
    ssl_context,
)
from pointsman.proxy.process import bound_address, ready_text

FREE = Address("127.0.0.1", 0)


class Files:
    """A server's files, and what clients know."""

    def __init__(self, directory: Path) -> None:
        self.authority, self.clients = trustme.CA(), trustme.CA()
        leaf = self.authority.issue_cert("localhost", "127.0.0.1")
        self.client = self.clients.issue_cert("client")
        leaf.cert_chain_pems[0].write_to_path(directory / "cert.pem")
        leaf.private_key_pem.write_to_path(directory / "key.pem")
        self.clients.cert_pem.write_to_path(directory / "ca.pem")
        self.tls = Tls(directory / "cert.pem", directory / "key.pem")
        self.mutual = Tls(self.tls.cert, self.tls.key, directory / "ca.pem")

    def client_context(self, *, shows_certificate: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.authority.configure_trust(context)
        if shows_certificate:
            self.client.configure_cert(context)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def taken() -> tuple[socket.socket, Address]:
    other = socket.create_server(("127.0.0.1", 0))
    return other, Address(*other.getsockname())


def test_both_sockets_listen_where_they_were_told() -> None:
    sockets = bind_sockets(Listen(FREE, FREE, FREE))
    assert sockets.data is not None
    for each in (sockets.data, sockets.control):
        socket.create_connection(bound_address(each), 10).close()
    data, control = bound_address(sockets.data), bound_address(sockets.control)
    assert ready_text(data=data, control=control, grpc=("::1", 7)) == (
        f"ready data=127.0.0.1:{data[1]} control=127.0.0.1:{control[1]} grpc=[::1]:7"
    )
    sockets.close()


@pytest.mark.parametrize("name", ["data", "control"])
def test_a_port_in_use_names_its_key_and_leaves_nothing_open(name: str) -> None:
    other, address = taken()
    with other, pytest.raises(CannotStart) as caught:
        bind_sockets(Listen(**{"data": FREE, "control": FREE, "grpc": FREE, name: address}))
    text = f"listen.{name} {address}: address already in use; choose another address or port"
    assert str(caught.value) == text


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(CannotStart, match=r"listen.data 192.0.2.1:1: cannot assign requested address; choose"):
        bind_sockets(Listen(Address("192.0.2.1", 1), FREE, FREE))


@pytest.mark.parametrize("secure", [False, True])
def test_grpc_gets_a_port_and_a_second_gateway_does_not_share_it(files: Files, secure: bool) -> None:
    tls = files.tls if secure else None

    async def main() -> None:
        first, second = grpc.aio.server(options=GRPC_OPTIONS), grpc.aio.server(options=GRPC_OPTIONS)
        port = bind_grpc(first, FREE, tls)
        assert port > 0
        with pytest.raises(CannotStart, match=rf"listen.grpc 127.0.0.1:{port}: in use, or not of this machine; choose"):
            bind_grpc(second, Address("127.0.0.1", port), tls)
        await first.stop(0)
        await second.stop(0)

    asyncio.run(main())


# TLS: each listener against clients with and without a certificate


def handshakes(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Whether a client is let in: it gets the byte that the server sends once it has seen the client's side."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            raw, _ = listener.accept()
            with raw, contextlib.suppress(OSError), server.wrap_socket(raw, server_side=True) as secure:
                secure.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), 10) as raw,
                client.wrap_socket(raw, server_hostname="localhost") as secure,
            ):
                return secure.recv(1) == b"x"
        except (ssl.SSLError, ConnectionResetError):
            return False
        finally:
            thread.join()


def server(tls: Tls) -> ssl.SSLContext:
    context = ssl_context(tls)
    assert context is not None
    return context


@pytest.mark.guarantee("G2")
def test_data_and_control_let_in_whom_tls_lets_in(files: Files) -> None:
    anybody, known = (files.client_context(shows_certificate=shows) for shows in (False, True))
    assert handshakes(server(files.tls), anybody)
    assert handshakes(server(files.mutual), known)
    assert not handshakes(server(files.mutual), anybody)


def test_data_and_control_speak_nothing_older_than_tls_1_2(files: Files) -> None:
    assert server(files.tls).minimum_version is ssl.TLSVersion.TLSv1_2
    assert ssl_context(None) is None
    assert grpc_credentials(None) is None


async def grpc_call(files: Files, tls: Tls, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    """What a call of a method that nobody serves comes to: UNIMPLEMENTED if the client was let in."""
    server = grpc.aio.server(options=GRPC_OPTIONS)
    port = bind_grpc(server, FREE, tls)
    await server.start()
    target = f"localhost:{port}"
    channel = (
        grpc.aio.secure_channel(target, credentials) if credentials is not None else grpc.aio.insecure_channel(target)
    )
    try:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/a/b")
        await method(b"", timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        await channel.close()
        await server.stop(0)
    raise AssertionError("there is no such method")


@pytest.mark.guarantee("G2")
def test_grpc_lets_in_whom_tls_lets_in(files: Files) -> None:
    root = files.authority.cert_pem.bytes()
    anybody = grpc.ssl_channel_credentials(root)
    known = grpc.ssl_channel_credentials(
        root, files.client.private_key_pem.bytes(), files.client.cert_chain_pems[0].bytes()
    )

    async def main() -> None:
        assert await grpc_call(files, files.tls, anybody) is grpc.StatusCode.UNIMPLEMENTED
        assert await grpc_call(files, files.mutual, known) is grpc.StatusCode.UNIMPLEMENTED
        assert await grpc_call(files, files.mutual, anybody) is grpc.StatusCode.UNAVAILABLE
        assert await grpc_call(files, files.tls, None) is grpc.StatusCode.UNAVAILABLE

    asyncio.run(main())


def test_files_that_have_gone_since_the_settings_were_read_are_told(tmp_path: Path) -> None:
    tls = Tls(tmp_path / "cert", tmp_path / "key")
    for make in (ssl_context, grpc_credentials):
        with pytest.raises(CannotStart, match="tls: no such file or directory; start again when"):
            make(tls)
