"""What callers without a token can take from the others on the gRPC listener: bounded, and given back."""

import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from pointsman.gateway.grpc.server import GrpcLimits
from pointsman.rpc.gen import openshell_pb2, openshell_pb2_grpc
from tests.support.control_plane import ADMIN, RunningControlPlane, control_plane
from tests.support.processes import run_to_end

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and empty SETTINGS
MOST_STREAMS = 3  # RFC 9113 section 6.5.2


@pytest.fixture
def connections() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def connect(running: RunningControlPlane, stack: contextlib.ExitStack, sent: bytes = PREFACE) -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10))
    connection.sendall(sent)
    return connection


def is_served(connection: socket.socket) -> bool:
    """Whether the server's first frame comes; otherwise it has closed."""
    try:
        return bool(connection.recv(1))
    except ConnectionError:
        return False


def answers(running: RunningControlPlane) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{running.port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            openshell_pb2_grpc.OpenShellStub(channel).Health(openshell_pb2.HealthRequest(), metadata=ADMIN, timeout=10)
        except grpc.RpcError:
            return False
    return True


def test_as_many_connections_as_the_limit_and_no_more(tmp_path: Path, connections: contextlib.ExitStack) -> None:
    with control_plane(tmp_path, limits=GrpcLimits(connections=3)) as running:
        held = [connect(running, connections) for _ in range(3)]
        assert [is_served(each) for each in held] == [True] * 3
        assert not is_served(connect(running, connections))
        held[0].close()
        until = time.monotonic() + 10
        while not answers(running):
            assert time.monotonic() < until


def test_who_connects_and_says_nothing_is_not_kept(tmp_path: Path, connections: contextlib.ExitStack) -> None:
    with control_plane(tmp_path, limits=GrpcLimits(connections=2, handshake_seconds=0.3)) as running:
        silent = [connect(running, connections, b"") for _ in range(2)]
        for each in silent:
            while each.recv(4096):
                pass
        assert answers(running)


def test_who_makes_no_calls_is_not_kept(tmp_path: Path, connections: contextlib.ExitStack) -> None:
    with control_plane(tmp_path, limits=GrpcLimits(idle_seconds=0.3)) as running:
        idle = connect(running, connections)
        while idle.recv(4096):
            pass
        assert answers(running)


def test_a_connection_is_told_how_many_calls_it_may_make_at_once(
    tmp_path: Path, connections: contextlib.ExitStack
) -> None:
    with control_plane(tmp_path) as running:
        frame = connect(running, connections).makefile("rb").read(9)
        assert frame[3] == 4  # SETTINGS
        settings = connect(running, connections).makefile("rb").read(9 + int.from_bytes(frame[:3], "big"))[9:]
    pairs = {
        int.from_bytes(settings[at : at + 2], "big"): int.from_bytes(settings[at + 2 : at + 6], "big")
        for at in range(0, len(settings), 6)
    }
    assert pairs[MOST_STREAMS] == GrpcLimits().calls_of_one_connection


@pytest.mark.parametrize(("soft", "wanted", "now"), [(64, 100, 100), (100, 100, 100), (128, 100, 128), (64, 300, 200)])
def test_a_server_may_open_as_many_files_as_it_has_room_for_clients(soft: int, wanted: int, now: int) -> None:
    code = f"""
import resource
from pointsman.proxy.process import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, 200))
print(open_files({wanted}), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    assert run_to_end([sys.executable, "-c", code]).stdout == f"{now} {now} 200\n"
