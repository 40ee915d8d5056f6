"""The bytes of OpenShell v0.0.31's services: what its own client sends, and what it expects to read.

Requests are what that client was seen to send; answers are put together here from field numbers, without our messages.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from pointsman.rpc.gen import datamodel_pb2, inference_pb2, openshell_pb2
from tests.support.control_plane import RunningControlPlane, control_plane

OPENSHELL = "/openshell.v1.OpenShell/"
INFERENCE = "/openshell.inference.v1.Inference/"

NUMBERS = {
    "openshell.datamodel.v1.Provider": {
        "id": 1,
        "name": 2,
        "type": 3,
        "credentials": 4,
        "config": 5,
        "from_file": 1000,
    },
    "openshell.inference.v1.SetClusterInferenceRequest": {
        "provider_name": 1,
        "model_id": 2,
        "route_name": 3,
        "verify": 4,
        "no_verify": 5,
        "timeout_secs": 6,
    },
    "openshell.inference.v1.SetClusterInferenceResponse": {
        "provider_name": 1,
        "model_id": 2,
        "version": 3,
        "route_name": 4,
        "validation_performed": 5,
        "validated_endpoints": 6,
        "timeout_secs": 7,
    },
    "openshell.inference.v1.ValidatedEndpoint": {"url": 1, "protocol": 2},
    "openshell.inference.v1.GetClusterInferenceRequest": {"route_name": 1},
    "openshell.inference.v1.GetClusterInferenceResponse": {
        "provider_name": 1,
        "model_id": 2,
        "version": 3,
        "route_name": 4,
        "timeout_secs": 5,
    },
    "openshell.inference.v1.GetInferenceBundleRequest": {},
    "openshell.inference.v1.ResolvedRoute": {
        "name": 1,
        "base_url": 2,
        "protocols": 3,
        "api_key": 4,
        "model_id": 5,
        "provider_type": 6,
        "timeout_secs": 7,
    },
    "openshell.inference.v1.GetInferenceBundleResponse": {"routes": 1, "revision": 2, "generated_at_ms": 3},
    "openshell.v1.HealthRequest": {},
    "openshell.v1.HealthResponse": {"status": 1, "version": 2},
    "openshell.v1.CreateProviderRequest": {"provider": 1},
    "openshell.v1.GetProviderRequest": {"name": 1},
    "openshell.v1.ListProvidersRequest": {"limit": 1, "offset": 2},
    "openshell.v1.UpdateProviderRequest": {"provider": 1},
    "openshell.v1.DeleteProviderRequest": {"name": 1},
    "openshell.v1.ProviderResponse": {"provider": 1},
    "openshell.v1.ListProvidersResponse": {"providers": 1},
    "openshell.v1.DeleteProviderResponse": {"deleted": 1},
}


def test_every_message_has_the_numbers_that_its_clients_were_built_with() -> None:
    messages = {
        message.full_name: {field.name: field.number for field in message.fields}
        for file in (datamodel_pb2, inference_pb2, openshell_pb2)
        for message in file.DESCRIPTOR.message_types_by_name.values()
    }
    assert messages == NUMBERS


def number(field: int, value: int) -> bytes:
    """A small number in wire format."""
    assert 0 < value < 128
    return bytes((field << 3, value))


def text(field: int, value: str | bytes) -> bytes:
    """A short text, or message, in wire format."""
    data = value.encode() if isinstance(value, str) else value
    assert len(data) < 128
    return bytes((field << 3 | 2, len(data))) + data


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path, open_to_admin=True) as running:
        yield running


def send(running: RunningControlPlane, method: str, request: str) -> bytes:
    invoke: Callable[..., bytes] = running.channel.unary_unary(method)
    return invoke(bytes.fromhex(request), timeout=10)


CREATE = (
    "0a43120270311a066f70656e616922180a0e4f50454e41495f4150495f4b455912067365637265742a1b0a0f4f50454e41495f424153455f"
    "55524c12086d6f636b3a2f2f78"
)
"""`provider create --name p1 --type openai --credential OPENAI_API_KEY=secret --config OPENAI_BASE_URL=mock://x`"""


def test_health_is_answered_as_the_status_command_reads_it(running: RunningControlPlane) -> None:
    assert send(running, OPENSHELL + "Health", "") == number(1, 1) + text(2, "0.1.0")


def test_a_provider_is_created_and_comes_back_without_its_key(running: RunningControlPlane) -> None:
    answer = send(running, OPENSHELL + "CreateProvider", CREATE)
    record = answer[2:]
    assert answer == text(1, record)
    record_id = record[2:38]
    redacted = text(4, text(1, "OPENAI_API_KEY") + text(2, "REDACTED"))
    config = text(5, text(1, "OPENAI_BASE_URL") + text(2, "mock://x"))
    assert record == text(1, record_id) + text(2, "p1") + text(3, "openai") + redacted + config
    assert send(running, OPENSHELL + "GetProvider", "0a027031") == answer
    assert send(running, OPENSHELL + "ListProviders", "0864") == answer
    assert send(running, OPENSHELL + "ListProviders", "08071002") == b""


def test_a_provider_is_updated_and_deleted(running: RunningControlPlane) -> None:
    send(running, OPENSHELL + "CreateProvider", CREATE)
    # `provider update p1 --config A=b`
    answer = send(running, OPENSHELL + "UpdateProvider", "0a0c1202703" + "12a060a0141120162")
    assert text(5, text(1, "A") + text(2, "b")) in answer
    assert text(5, text(1, "OPENAI_BASE_URL") + text(2, "mock://x")) in answer
    assert send(running, OPENSHELL + "UpdateProvider", "0a0412027031") == answer  # `provider update p1`
    assert send(running, OPENSHELL + "DeleteProvider", "0a027031") == number(1, 1)
    assert send(running, OPENSHELL + "DeleteProvider", "0a027031") == b""


def test_the_last_credential_cannot_be_deleted(running: RunningControlPlane) -> None:
    send(running, OPENSHELL + "CreateProvider", CREATE)
    # `provider update p1 --credential OPENAI_API_KEY=`
    with pytest.raises(grpc.RpcError) as raised:
        send(running, OPENSHELL + "UpdateProvider", "0a1612027031" + "22100a0e4f50454e41495f4150495f4b4559")
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_inference_is_set_and_got(running: RunningControlPlane) -> None:
    send(running, OPENSHELL + "CreateProvider", CREATE)
    names = text(1, "p1") + text(2, "m")
    # `inference set --provider p1 --model m --no-verify`, and with `--timeout 30`
    answer = send(running, INFERENCE + "SetClusterInference", "0a02703112016d2801")
    assert answer == names + number(3, 1) + text(4, "inference.local")
    answer = send(running, INFERENCE + "SetClusterInference", "0a02703112016d301e")
    endpoint = text(1, "mock://x/v1/chat/completions") + text(2, "openai_chat_completions")
    assert answer == (
        names + number(3, 2) + text(4, "inference.local") + number(5, 1) + text(6, endpoint) + number(7, 30)
    )
    got = names + number(3, 2) + text(4, "inference.local") + number(5, 30)
    assert send(running, INFERENCE + "GetClusterInference", "") == got


def test_system_inference_is_apart(running: RunningControlPlane) -> None:
    send(running, OPENSHELL + "CreateProvider", CREATE)
    system = "0a0e73616e64626f782d73797374656d"
    with pytest.raises(grpc.RpcError) as raised:
        send(running, INFERENCE + "GetClusterInference", system)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    # `inference set --provider p1 --model m --system`
    send(running, INFERENCE + "SetClusterInference", "0a02703112016d1a0e73616e64626f782d73797374656d")
    got = text(1, "p1") + text(2, "m") + number(3, 1) + text(4, "sandbox-system")
    assert send(running, INFERENCE + "GetClusterInference", system) == got
    with pytest.raises(grpc.RpcError) as raised:
        send(running, INFERENCE + "GetClusterInference", "")
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_large_timeout_and_an_unknown_route_name_are_refused_with_the_reason(running: RunningControlPlane) -> None:
    send(running, OPENSHELL + "CreateProvider", CREATE)
    with pytest.raises(grpc.RpcError, match="timeout") as raised:
        send(running, INFERENCE + "SetClusterInference", "0a02703112016d30ffffffffffffffffff01")
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError, match=r"neither inference\.local nor sandbox-system") as raised:
        send(running, INFERENCE + "SetClusterInference", "0a02703112016d1a0178")
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
