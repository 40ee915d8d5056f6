"""Chains and what leads to them, over gRPC, on a real store: set, changed, verified, and as sandboxes get them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.route import LONGEST_TIMEOUT_SECONDS, MOST_CANDIDATES
from pointsman.core.secret import Secret
from pointsman.rpc.gen import control_pb2, inference_pb2
from tests.support.canary import KEY
from tests.support.control_plane import ADMIN, Metadata, RunningControlPlane, control_plane

DATA_URL = "http://127.0.0.1:8780/v1"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        running.provide("one", config={"OPENAI_BASE_URL": "mock://one", "MODEL": "own"})
        running.provide("two", type="anthropic", credentials={"ANTHROPIC_API_KEY": Secret(KEY)}, config=MESSAGES)
        model = tmp_path / "tiny.gguf"
        model.write_bytes(b"GGUF and so on")  # verified by its beginning, and loaded by nobody here
        running.provide("local", type="local_gguf", config={"MODEL_PATH": str(model)})
        yield running


MESSAGES = {"ANTHROPIC_BASE_URL": "mock://two"}


def candidates(*texts: str) -> list[control_pb2.RouteCandidate]:
    pairs = [text.partition("=") for text in texts]
    return [control_pb2.RouteCandidate(provider_name=provider, model=model) for provider, _, model in pairs]


def create(running: RunningControlPlane, name: str = "fast", **wanted: Any) -> control_pb2.RouteChange:
    values = {"candidates": candidates("one", "two=m"), **wanted}
    return running.commands.SetRoute(control_pb2.SetRouteRequest(name=name, **values), metadata=ADMIN, timeout=60)


def update(running: RunningControlPlane, name: str = "fast", **edit: Any) -> control_pb2.RouteChange:
    return running.commands.UpdateRoute(control_pb2.UpdateRouteRequest(name=name, **edit), metadata=ADMIN, timeout=60)


def alias(running: RunningControlPlane, name: str = "inference.local", to: str = "fast") -> control_pb2.RouteChange:
    return create(running, name, candidates=[], target=to)


def get(running: RunningControlPlane, name: str = "fast") -> control_pb2.Route:
    return running.commands.GetRoute(control_pb2.GetRouteRequest(name=name), metadata=ADMIN, timeout=10)


def bundle(running: RunningControlPlane, token: Metadata) -> list[inference_pb2.ResolvedRoute]:
    request = inference_pb2.GetInferenceBundleRequest()
    return list(running.inference.GetInferenceBundle(request, metadata=token, timeout=10).routes)


def refusal(running: RunningControlPlane, code: str, name: str = "fast", **wanted: Any) -> str:
    with pytest.raises(grpc.RpcError) as raised:
        create(running, name, **wanted)
    assert raised.value.code().name == code
    return str(raised.value.details())


def test_a_chain_is_stored_as_it_was_set_and_listed(running: RunningControlPlane) -> None:
    change = create(running, strategy="weighted", fallback="local", request_timeout_secs=90, timeout_secs=7)
    assert change.verified
    assert [each.protocol for each in change.validated_endpoints] == ["openai_chat_completions", "anthropic_messages"]
    assert get(running) == control_pb2.Route(
        name="fast",
        kind="chain",
        candidates=candidates("one", "two=m"),
        strategy="weighted",
        fallback="local",
        request_timeout_secs=90,
        timeout_secs=7,
        version=1,
    )
    assert any("weighted of one, two=m, then local" in line for line in running.lines)


def test_the_strategy_of_a_chain_that_names_none_is_in_order(running: RunningControlPlane) -> None:
    assert create(running).route.strategy == "in_order"


def test_an_update_replaces_what_is_given_and_nothing_else(running: RunningControlPlane) -> None:
    create(running, fallback="local")
    assert update(running, strategy="least_used").route.candidates == candidates("one", "two=m")
    change = update(running, candidates=candidates("two=other"), fallback="").route
    assert list(change.candidates) == candidates("two=other")
    assert (change.strategy, change.fallback) == ("least_used", "")
    assert update(running, request_timeout_secs=5).route.version == 4
    assert get(running).fallback == ""
    for edit in ({"provider_name": "one"}, {"model": "m"}, {"via_gateway": True}):
        with pytest.raises(grpc.RpcError, match="is a chain"):
            update(running, **edit)
    assert get(running).version == 4


@pytest.mark.parametrize(
    ("wanted", "code", "word"),
    [
        ({"candidates": [], "strategy": "weighted"}, "INVALID_ARGUMENT", "at least one candidate"),
        ({"candidates": candidates("one", "one=")}, "INVALID_ARGUMENT", "twice"),
        ({"candidates": candidates("a b")}, "INVALID_ARGUMENT", "provider of a candidate"),
        ({"candidates": candidates("one=m\n")}, "FAILED_PRECONDITION", ""),
        ({"strategy": "random"}, "INVALID_ARGUMENT", "in_order, weighted, least_used"),
        ({"fallback": "one"}, "INVALID_ARGUMENT", "the fallback"),
        ({"provider_name": "one", "model": "m"}, "INVALID_ARGUMENT", "is a chain"),
        ({"request_timeout_secs": LONGEST_TIMEOUT_SECONDS + 1}, "INVALID_ARGUMENT", "request timeout"),
        ({"candidates": candidates("nowhere")}, "FAILED_PRECONDITION", "pointsman provider create"),
        ({"fallback": "nowhere"}, "FAILED_PRECONDITION", "pointsman provider create"),
        ({"candidates": candidates("two")}, "INVALID_ARGUMENT", "two=MODEL"),
        ({"name": "inference.local"}, "INVALID_ARGUMENT", "inference set --route"),
        ({"name": "sandbox-system"}, "INVALID_ARGUMENT", "inference set --route"),
        ({"name": "other", "candidates": [], "target": "fast"}, "INVALID_ARGUMENT", "only inference.local and"),
    ],
)
def test_what_cannot_be_a_chain_is_refused(
    running: RunningControlPlane, wanted: dict[str, Any], code: str, word: str
) -> None:
    if not word:
        assert create(running, **wanted).route.candidates == candidates("one=m")  # space around it is nothing
        return
    assert word in refusal(running, code, **{"no_verify": True, **wanted})
    assert not running.commands.ListRoutes(control_pb2.ListRoutesRequest(), metadata=ADMIN, timeout=10).routes


def test_a_chain_has_so_many_candidates_and_no_more(running: RunningControlPlane) -> None:
    most = candidates(*(f"one=m{number}" for number in range(MOST_CANDIDATES)))
    assert create(running, candidates=most).route.version == 1
    text = refusal(running, "INVALID_ARGUMENT", candidates=[*most, *candidates("one")])
    assert f"at most {MOST_CANDIDATES}" in text
    assert create(running, request_timeout_secs=LONGEST_TIMEOUT_SECONDS).route.version == 2


def test_a_chain_is_stored_when_all_pass_and_each_that_does_not_is_told(running: RunningControlPlane) -> None:
    for name in ("down", "gone"):
        running.provide(name, config={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    wanted = candidates("down=a", "one", "gone=b")
    text = refusal(running, "FAILED_PRECONDITION", candidates=wanted)
    assert text.startswith("2 of 3 providers did not pass: ")
    assert text.endswith("or store the route unverified with --no-verify")
    assert text.count("--no-verify") == 1
    for word in ("model a of provider down", "model b of provider gone"):
        assert word in text
    assert KEY not in text
    with pytest.raises(grpc.RpcError, match="no route"):
        get(running)
    assert not create(running, candidates=wanted, no_verify=True).verified


def test_a_provider_that_a_chain_uses_is_deleted_by_force_alone(running: RunningControlPlane) -> None:
    create(running, fallback="local")
    for name in ("one", "two", "local"):
        with pytest.raises(NotPossibleNow, match="used by route fast"):
            running.call(running.control.providers.delete("default", name, force=False))
    assert running.call(running.control.providers.delete("default", "one", force=True)).broken_routes == ("fast",)
    assert not get(running).problem  # the others still answer
    for name in ("two", "local"):
        running.call(running.control.providers.delete("default", name, force=True))
    assert "one" in get(running).problem


def test_inference_leads_along_a_chain_and_openshells_clients_are_told(running: RunningControlPlane) -> None:
    create(running)
    assert alias(running).route == control_pb2.Route(name="inference.local", kind="alias", target="fast", version=1)
    request = inference_pb2.GetClusterInferenceRequest()
    answer = running.inference.GetClusterInference(request, metadata=ADMIN, timeout=10)
    assert (answer.provider_name, answer.model_id, answer.version) == ("chain:fast", "fast", 1)
    running.point("direct", "one", "m")
    alias(running, to="direct")
    answer = running.inference.GetClusterInference(request, metadata=ADMIN, timeout=10)
    assert (answer.provider_name, answer.model_id, answer.version) == ("one", "m", 2)
    with pytest.raises(grpc.RpcError, match="pointsman route update direct"):
        update(running, "inference.local", model="m")
    running.point("inference.local", "one", "m")
    assert get(running, "inference.local").kind == "direct"


@pytest.mark.parametrize("to", ["inference.local", "sandbox-system", "nowhere"])
def test_an_alias_leads_to_a_named_route_that_exists(running: RunningControlPlane, to: str) -> None:
    running.point("sandbox-system", "one", "m")
    with pytest.raises(grpc.RpcError) as raised:
        alias(running, to=to)
    assert "route" in str(raised.value.details())
    assert [each.name for each in bundle(running, running.token())] == ["sandbox-system"]


def test_a_chain_is_one_candidate_of_a_bundle_and_carries_no_key(running: RunningControlPlane) -> None:
    create(running, fallback="local")
    alias(running)
    token, own = running.token(), running.token("own", route="fast")
    expected = inference_pb2.ResolvedRoute(
        name="inference.local",
        base_url=DATA_URL,
        protocols=[
            "openai_chat_completions",
            "openai_completions",
            "openai_responses",
            "openai_embeddings",
            "model_discovery",
            "anthropic_messages",
        ],
        model_id="fast",
        provider_type="pointsman",
        timeout_secs=620,
    )
    assert bundle(running, token) == bundle(running, own) == [expected]
    alias(running, "sandbox-system")
    assert [(each.name, each.model_id) for each in bundle(running, token)] == [
        ("inference.local", "fast"),
        ("sandbox-system", "fast"),
    ]
    running.call(running.control.routes.delete("default", "fast"))
    assert not bundle(running, token)
    assert "does not exist" in get(running, "inference.local").problem


def test_a_direct_route_goes_through_the_gateway_when_told_to(running: RunningControlPlane) -> None:
    create(running, "metered", candidates=[], provider_name="one", model="m", via_gateway=True)
    alias(running, to="metered")
    token = running.token()
    (route,) = bundle(running, token)
    assert (route.provider_type, route.model_id, route.api_key) == ("pointsman", "metered", "")
    update(running, "metered", via_gateway=False)
    (route,) = bundle(running, token)
    assert (route.provider_type, route.model_id, route.api_key) == ("openai", "m", KEY)
    text = refusal(
        running, "INVALID_ARGUMENT", "inference.local", candidates=[], provider_name="one", model="m", via_gateway=True
    )
    assert "--via-gateway" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "none.gguf cannot be read: No such file or directory; fetch the model, or correct MODEL_PATH; or store"),
        (b"GGU", "none.gguf is not a GGUF file; fetch the model"),
    ],
)
def test_a_fallback_whose_model_file_is_not_there_does_not_pass_the_verification(
    content: bytes | None, said: str, running: RunningControlPlane, tmp_path: Path
) -> None:
    model = tmp_path / "none.gguf"
    if content is not None:
        model.write_bytes(content)
    running.provide("missing", type="local_gguf", config={"MODEL_PATH": str(model)})
    with pytest.raises(grpc.RpcError) as caught:
        create(running, candidates=candidates("one"), fallback="missing")
    assert said in str(caught.value)
    assert create(running, candidates=candidates("one"), fallback="missing", no_verify=True).route.fallback == "missing"
