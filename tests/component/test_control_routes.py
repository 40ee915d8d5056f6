"""Operations on routes, over gRPC, on a real store."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from pointsman.core.route import LONGEST_MODEL, LONGEST_TIMEOUT_SECONDS
from pointsman.core.secret import Secret
from pointsman.rpc.gen import control_pb2, inference_pb2
from tests.support.answering_upstream import AnsweringUpstream
from tests.support.canary import KEY
from tests.support.control_plane import ADMIN, RunningControlPlane, control_plane

WRITERS = 50


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        running.provide()
        yield running


def set_inference(
    running: RunningControlPlane, provider: str = "mocked", model: str = "m", no_verify: bool = False
) -> inference_pb2.SetClusterInferenceResponse:
    request = inference_pb2.SetClusterInferenceRequest(provider_name=provider, model_id=model, no_verify=no_verify)
    return running.inference.SetClusterInference(request, metadata=ADMIN, timeout=30)


def update(running: RunningControlPlane, **changes: object) -> control_pb2.RouteChange:
    request = control_pb2.UpdateRouteRequest(name="inference.local", **changes)  # type: ignore[arg-type]  # by name
    return running.commands.UpdateRoute(request, metadata=ADMIN, timeout=30)


def route(running: RunningControlPlane, name: str = "inference.local") -> control_pb2.Route:
    return running.commands.GetRoute(control_pb2.GetRouteRequest(name=name), metadata=ADMIN, timeout=10)


def refusal(raised: "pytest.ExceptionInfo[grpc.RpcError]", code: str) -> str:
    assert raised.value.code().name == code
    return str(raised.value.details())


def test_setting_a_route_creates_it_and_counts_its_versions(running: RunningControlPlane) -> None:
    assert [set_inference(running, model=f"m{number}").version for number in range(3)] == [1, 2, 3]
    assert route(running).model == "m2"


def test_a_version_is_never_used_again_not_even_after_deletion(running: RunningControlPlane) -> None:
    assert set_inference(running).version == 1
    request = control_pb2.DeleteRouteRequest(name="inference.local")
    assert running.commands.DeleteRoute(request, metadata=ADMIN, timeout=10).deleted
    assert not running.commands.DeleteRoute(request, metadata=ADMIN, timeout=10).deleted
    assert set_inference(running).version == 2


def test_a_route_is_verified_unless_told_otherwise(running: RunningControlPlane) -> None:
    answer = set_inference(running)
    assert answer.validation_performed
    assert [each.protocol for each in answer.validated_endpoints] == ["openai_chat_completions"]
    answer = set_inference(running, no_verify=True)
    assert not answer.validation_performed
    assert not answer.validated_endpoints


def test_a_route_whose_verification_fails_is_not_stored(running: RunningControlPlane) -> None:
    running.provide("down", config={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    set_inference(running)
    with pytest.raises(grpc.RpcError) as raised:
        set_inference(running, provider="down", model="other")
    text = refusal(raised, "FAILED_PRECONDITION")
    for word in ("down", "other", "http://127.0.0.1:9/v1", "--no-verify"):
        assert word in text
    assert route(running).provider_name == "mocked"
    assert set_inference(running, provider="down", no_verify=True).version == 2


def test_a_route_to_an_upstream_that_answers_is_verified_there(
    running: RunningControlPlane, answering: AnsweringUpstream
) -> None:
    running.provide("real", config={"OPENAI_BASE_URL": f"{answering.url}/v1"})
    answer = set_inference(running, provider="real")
    assert [each.url for each in answer.validated_endpoints] == [f"{answering.url}/v1/chat/completions"]


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"provider": ""}, "INVALID_ARGUMENT", "provider_name"),
        ({"provider": "  "}, "INVALID_ARGUMENT", "provider_name"),
        ({"model": ""}, "INVALID_ARGUMENT", "model_id"),
        ({"model": " \t"}, "INVALID_ARGUMENT", "model_id"),
        ({"model": "m\r\nx: y"}, "INVALID_ARGUMENT", "printed"),
        ({"provider": "nowhere"}, "FAILED_PRECONDITION", "pointsman provider create"),
        ({"provider": "keyless"}, "INVALID_ARGUMENT", "no usable key"),
        ({"provider": "github"}, "INVALID_ARGUMENT", "type 'github'"),
        ({"provider": "baseless"}, "INVALID_ARGUMENT", "no base URL"),
        ({"provider": "metadata"}, "INVALID_ARGUMENT", "metadata"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_called(
    running: RunningControlPlane, changes: dict[str, str], code: str, word: str
) -> None:
    running.provide("keyless", credentials={"OPENAI_API_KEY": Secret("  ")})
    running.provide("github", type="github")
    running.provide("baseless", type="openai_compatible", config={})
    running.provide("metadata", config={"OPENAI_BASE_URL": "http://169.254.169.254/v1"})
    for no_verify in (False, True):
        with pytest.raises(grpc.RpcError) as raised:
            set_inference(running, **changes, no_verify=no_verify)
        text = refusal(raised, code)
        assert word in text
        assert KEY not in text


def test_the_limits_of_a_route_are_kept_to_the_unit(running: RunningControlPlane) -> None:
    assert set_inference(running, model="m" * LONGEST_MODEL).version == 1
    with pytest.raises(grpc.RpcError) as raised:
        set_inference(running, model="m" * (LONGEST_MODEL + 1))
    refusal(raised, "INVALID_ARGUMENT")
    assert update(running, timeout_secs=LONGEST_TIMEOUT_SECONDS).route.timeout_secs == LONGEST_TIMEOUT_SECONDS
    with pytest.raises(grpc.RpcError) as raised:
        update(running, timeout_secs=LONGEST_TIMEOUT_SECONDS + 1)
    refusal(raised, "INVALID_ARGUMENT")
    assert route(running).version == 2


def test_an_update_changes_what_is_given_and_nothing_else(running: RunningControlPlane) -> None:
    set_inference(running, model="m1")
    running.provide("second")
    change = update(running, timeout_secs=30)
    assert (change.route.model, change.route.timeout_secs, change.route.version) == ("m1", 30, 2)
    assert change.verified
    change = update(running, model="m2", no_verify=True)
    assert (change.route.provider_name, change.route.model, change.route.timeout_secs) == ("mocked", "m2", 30)
    assert not change.verified
    assert update(running, provider_name="second").route.model == "m2"
    assert update(running, timeout_secs=0).route.timeout_secs == 0


def test_an_update_of_nothing_and_of_no_route_says_so(running: RunningControlPlane) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        update(running, model="m")
    assert "pointsman inference set" in refusal(raised, "NOT_FOUND")
    set_inference(running)
    with pytest.raises(grpc.RpcError) as raised:
        update(running)
    assert "nothing to change" in refusal(raised, "INVALID_ARGUMENT")


@pytest.mark.guarantee("G6")
def test_fifty_writers_at_once_get_fifty_versions_and_lose_no_change(running: RunningControlPlane) -> None:
    set_inference(running, model="first")

    def write(number: int) -> int:
        if number % 2:
            return update(running, timeout_secs=number).route.version
        return update(running, model=f"m{number}").route.version

    with ThreadPoolExecutor(WRITERS) as pool:
        versions = list(pool.map(write, range(1, WRITERS + 1)))
    assert sorted(versions) == list(range(2, WRITERS + 2))
    by_version = dict(zip(versions, range(1, WRITERS + 1), strict=True))
    latest = route(running)
    # The last change of each kind is there, whoever wrote in between: no update wrote back what it had read before.
    timeouts = [number for _, number in sorted(by_version.items()) if number % 2]
    models = [number for _, number in sorted(by_version.items()) if not number % 2]
    assert (latest.timeout_secs, latest.model) == (timeouts[-1], f"m{models[-1]}")


def test_named_routes_are_aliases_of_their_own(running: RunningControlPlane) -> None:
    request = control_pb2.SetRouteRequest(name="fast", provider_name="mocked", model="small")
    assert running.commands.SetRoute(request, metadata=ADMIN, timeout=10).route.version == 1
    set_inference(running)
    listed = running.commands.ListRoutes(control_pb2.ListRoutesRequest(), metadata=ADMIN, timeout=10).routes
    assert [(each.name, each.kind, each.model) for each in listed] == [
        ("fast", "direct", "small"),
        ("inference.local", "direct", "m"),
    ]
    bad = control_pb2.SetRouteRequest(name="a b", provider_name="mocked", model="m")
    with pytest.raises(grpc.RpcError) as raised:
        running.commands.SetRoute(bad, metadata=ADMIN, timeout=10)
    refusal(raised, "INVALID_ARGUMENT")


def test_a_route_that_must_be_new_is_made_by_one_of_many(running: RunningControlPlane) -> None:
    def create(number: int) -> str:
        """The model that was made, or the refusal's status."""
        request = control_pb2.SetRouteRequest(name="fast", provider_name="mocked", model=f"m{number}", create_only=True)
        try:
            return running.commands.SetRoute(request, metadata=ADMIN, timeout=30).route.model
        except grpc.RpcError as error:
            return str(error.code().name)

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(create, range(8)))
    assert answers == sorted([*["ALREADY_EXISTS"] * 7, route(running, "fast").model])
    assert route(running, "fast").version == 1


def test_a_route_says_why_it_cannot_be_used(running: RunningControlPlane) -> None:
    set_inference(running)
    assert not route(running).problem
    running.call(running.control.providers.delete("default", "mocked", force=True))
    assert "mocked" in route(running).problem
    status = running.commands.GetStatus(control_pb2.GetStatusRequest(), metadata=ADMIN, timeout=10)
    assert [each.problem for each in status.routes] == [route(running).problem]
    assert (status.store, status.providers) == ("sqlite", 0)
