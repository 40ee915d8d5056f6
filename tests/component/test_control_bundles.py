"""What a sandbox gets, over gRPC, on a real store: resolved from the records of that moment."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import InvalidRequest, NotFound, NotPossibleNow, Unauthenticated
from pointsman.core.route import ValidatedEndpoint
from pointsman.core.secret import Secret
from pointsman.gateway.routes import Routes, RouteTarget
from pointsman.rpc.gen import inference_pb2
from tests.support.canary import KEY
from tests.support.control_plane import Metadata, RunningControlPlane, control_plane, draft


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        running.provide()
        yield running


@pytest.fixture
def token(running: RunningControlPlane) -> Metadata:
    return running.token()


def fetch(running: RunningControlPlane, token: Metadata) -> inference_pb2.GetInferenceBundleResponse:
    return running.inference.GetInferenceBundle(inference_pb2.GetInferenceBundleRequest(), metadata=token, timeout=10)


def update(running: RunningControlPlane, name: str = "mocked", **changes: object) -> None:
    values = {"type": "", "credentials": {}, "config": {}, **changes}
    running.call(running.control.providers.update("default", draft(name, **values)))


def test_without_a_route_the_bundle_is_empty_and_valid(running: RunningControlPlane, token: Metadata) -> None:
    bundle = fetch(running, token)
    assert not bundle.routes
    assert bundle.revision
    assert bundle.generated_at_ms > 0


def test_a_route_is_resolved_from_its_providers_record(running: RunningControlPlane, token: Metadata) -> None:
    running.point(model="m")
    (route,) = fetch(running, token).routes
    assert route == inference_pb2.ResolvedRoute(
        name="inference.local",
        base_url="mock://answers",
        protocols=[
            "openai_chat_completions",
            "openai_completions",
            "openai_responses",
            "openai_embeddings",
            "model_discovery",
        ],
        api_key=KEY,
        model_id="m",
        provider_type="openai",
    )


def test_user_and_system_routes_come_together_and_each_alone(running: RunningControlPlane, token: Metadata) -> None:
    running.point("sandbox-system", model="system")
    assert [each.name for each in fetch(running, token).routes] == ["sandbox-system"]
    running.point(model="user")
    assert [(each.name, each.model_id) for each in fetch(running, token).routes] == [
        ("inference.local", "user"),
        ("sandbox-system", "system"),
    ]


def test_the_revision_is_stable_and_changes_with_every_change_that_matters(
    running: RunningControlPlane, token: Metadata
) -> None:
    running.point()
    seen = [fetch(running, token).revision]
    assert fetch(running, token).revision == seen[0]
    running.provide("bystander")
    assert fetch(running, token).revision == seen[0]
    changes: tuple[Callable[[], object], ...] = (
        lambda: running.point(model="model-2"),
        lambda: update(running, credentials={"OPENAI_API_KEY": Secret(KEY + "2")}),
        lambda: update(running, config={"OPENAI_BASE_URL": "mock://elsewhere"}),
        lambda: running.point("sandbox-system"),
        lambda: running.call(
            running.control.routes.set("default", RouteTarget("inference.local", "mocked", "model-2", 7), verify=False)
        ),
        lambda: running.call(running.control.routes.delete("default", "sandbox-system")),
    )
    for change in changes:
        change()
        seen.append(fetch(running, token).revision)
    assert len(set(seen)) == len(seen)


@pytest.mark.guarantee("G4")
def test_a_rotated_key_and_a_moved_endpoint_are_in_the_next_bundle(
    running: RunningControlPlane, token: Metadata
) -> None:
    version = running.point()
    update(running, credentials={"OPENAI_API_KEY": Secret("sk-rotated")}, config={"OPENAI_BASE_URL": " mock://moved "})
    (route,) = fetch(running, token).routes
    assert (route.api_key, route.base_url) == ("sk-rotated", "mock://moved")
    update(running, config={"OPENAI_BASE_URL": ""})
    (route,) = fetch(running, token).routes
    assert route.base_url == "https://api.openai.com/v1"
    assert running.point() == version + 1


@pytest.mark.guarantee("G4")
def test_a_route_that_cannot_be_resolved_is_left_out_told_once_and_takes_no_other_down(
    running: RunningControlPlane, token: Metadata
) -> None:
    running.provide("second")
    running.point(provider="second")
    running.point("sandbox-system")
    running.call(running.control.providers.delete("default", "second", force=True))
    for _ in range(2):
        assert [each.name for each in fetch(running, token).routes] == ["sandbox-system"]
        running.provide(f"bystander-{len(running.lines)}")
    told = [line for line in running.lines if "left out of bundles" in line]
    assert len(told) == 1
    assert "second" in told[0]
    running.provide("second")
    assert [each.name for each in fetch(running, token).routes] == ["inference.local", "sandbox-system"]
    assert any("usable again" in line for line in running.lines)


def test_a_token_with_a_route_of_its_own_gets_it_as_inference_local(running: RunningControlPlane) -> None:
    running.point(model="shared")
    running.point("fast", model="own")
    own, shared = running.token("own", route="fast"), running.token("shared")
    assert [(each.name, each.model_id) for each in fetch(running, own).routes] == [("inference.local", "own")]
    assert [(each.name, each.model_id) for each in fetch(running, shared).routes] == [("inference.local", "shared")]
    running.call(running.control.routes.delete("default", "fast"))
    # Never quietly the shared one: somebody chose where this sandbox's prompts go.
    assert not fetch(running, own).routes
    assert any("fast" in line and "deleted" in line for line in running.lines)


def test_a_token_cannot_name_a_route_that_does_not_exist(running: RunningControlPlane) -> None:
    with pytest.raises(NotFound, match="there is no route 'nowhere'"):
        running.token("own", route="nowhere")


def test_a_token_cannot_make_the_system_route_a_sandboxs_own(running: RunningControlPlane) -> None:
    running.point("sandbox-system", model="system")
    with pytest.raises(InvalidRequest, match="sandbox-system is not for what runs in a sandbox"):
        running.token("own", route="sandbox-system")
    running.point(model="shared")
    shared = running.token("shared", route="inference.local")
    assert [each.model_id for each in fetch(running, shared).routes] == ["shared", "system"]


@pytest.mark.guarantee("K8")
def test_a_revoked_or_expired_token_gets_nothing_at_once(running: RunningControlPlane) -> None:
    running.point()
    token = running.token("soon-revoked")
    assert fetch(running, token).routes
    running.call(running.control.sandbox_tokens.revoke("default", "soon-revoked"))
    with pytest.raises(grpc.RpcError) as raised:
        fetch(running, token)
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    _, secret = running.call(running.control.sandbox_tokens.create("default", "short", "", 1))
    short: Metadata = (("authorization", f"Bearer {secret.reveal()}"),)
    assert fetch(running, short).routes
    running.expire()
    with pytest.raises(grpc.RpcError) as raised:
        fetch(running, short)
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.guarantee("K8")
def test_tokens_have_256_random_bits_and_are_kept_as_digests_only(running: RunningControlPlane, tmp_path: Path) -> None:
    values = [running.token(f"t{number}")[0][1].removeprefix("Bearer ") for number in range(20)]
    assert len({value[-43:] for value in values}) == 20  # 32 bytes in base64
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not [value for value in values if value[-20:].encode() in stored]


@pytest.mark.guarantee("K8")
def test_a_token_of_any_text_is_judged_without_an_error(running: RunningControlPlane) -> None:
    for text in ("é", "\udce9", "x" * 100_000, "\0", " "):
        with pytest.raises(Unauthenticated, match="token"):
            running.call(running.control.authenticator.identify(text))


def test_what_is_stored_is_what_was_verified_even_when_the_provider_changes_meanwhile(
    running: RunningControlPlane,
) -> None:
    control, seen = running.control, list[str]()

    async def verify(candidate: Candidate, _: str) -> tuple[ValidatedEndpoint, ...]:
        seen.append(candidate.endpoint.host)
        if len(seen) == 1:
            await control.providers.update("default", draft(config={"OPENAI_BASE_URL": "mock://moved"}))
        return (ValidatedEndpoint(candidate.endpoint.host, "any"),)

    routes = Routes(control.store, verify, running.lines.append)
    target = RouteTarget("inference.local", "mocked", "m")
    change = running.call(routes.set("default", target, verify=True))
    assert seen == ["answers", "moved"]
    assert [each.url for each in change.endpoints] == ["moved"]
    assert change.route.version == 1


def test_records_that_never_hold_still_are_given_up_on(running: RunningControlPlane) -> None:
    control, rounds = running.control, list[int]()

    async def verify(candidate: Candidate, _: str) -> tuple[ValidatedEndpoint, ...]:
        rounds.append(len(rounds))
        await control.providers.update("default", draft(config={"OPENAI_BASE_URL": f"mock://moved-{len(rounds)}"}))
        return ()

    routes = Routes(control.store, verify, running.lines.append)
    with pytest.raises(NotPossibleNow, match="try again"):
        running.call(routes.set("default", RouteTarget("inference.local", "mocked", "m"), verify=True))
    assert len(rounds) < 20
    assert not running.call(control.routes.list("default"))
