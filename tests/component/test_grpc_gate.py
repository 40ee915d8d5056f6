"""Every method of every service against every identity, and what comes back of credentials: nothing."""

import itertools
import pkgutil
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pointsman.gateway.keys import KeyDraft
from pointsman.rpc import gen
from tests.support.canary import KEY
from tests.support.control_plane import ADMIN, Metadata, RunningControlPlane, control_plane

METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for each in pkgutil.iter_modules(gen.__path__)
    if each.name.endswith("_pb2")
    for service in import_module(f"{gen.__name__}.{each.name}").DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Whatever `proto/` defines, so that a new method cannot be forgotten here."""
BUNDLE = "/openshell.inference.v1.Inference/GetInferenceBundle"
HEALTH = "/openshell.v1.OpenShell/Health"
NOBODY = "UNAUTHENTICATED"
IDENTITIES = ("none", "wrong", "basic", "empty", "two", "twice", "revoked", "expired", "sandbox", "key", "admin")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path_factory.mktemp("gateway")) as running:
        running.provide()
        running.point()
        yield running


@pytest.fixture(scope="module")
def identities(running: RunningControlPlane) -> dict[str, Metadata]:
    revoked = running.token("revoked")
    assert running.call(running.control.sandbox_tokens.revoke("default", "revoked"))
    expired = running.call(running.control.sandbox_tokens.create("default", "expired", "", 1))[1]
    running.expire()
    key = running.call(running.control.keys.create("default", KeyDraft("laptop")))[1]
    token = ADMIN[0][1].removeprefix("Bearer ")
    return {
        "none": (),
        "wrong": (("authorization", "Bearer " + "x" * 43),),
        "basic": (("authorization", f"Basic {token}"),),
        "empty": (("authorization", "Bearer "),),
        "two": (("authorization", f"Bearer {token} {token}"),),
        "twice": (("authorization", "Bearer " + "x" * 43), *ADMIN),
        "revoked": revoked,
        "expired": (("authorization", f"Bearer {expired.reveal()}"),),
        "sandbox": running.token("valid"),
        "key": (("authorization", f"Bearer {key.reveal()}"),),
        "admin": ADMIN,
    }


def call(running: RunningControlPlane, method: str, metadata: Metadata, request: Message | None = None) -> Any:
    """The answer, or the name of the status that was refused with."""
    descriptor = METHODS[method]
    invoke: Callable[..., Any] = running.channel.unary_unary(
        method,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(descriptor.output_type).FromString,
    )
    try:
        return invoke(request or GetMessageClass(descriptor.input_type)(), metadata=metadata, timeout=10)
    except grpc.RpcError as error:
        return error.code().name


def refused(answer: Any) -> str:
    return answer if answer in ("UNAUTHENTICATED", "PERMISSION_DENIED") else ""


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize(("method", "identity"), list(itertools.product(sorted(METHODS), IDENTITIES)))
def test_every_method_is_closed_to_everybody_but_those_it_is_for(
    running: RunningControlPlane, identities: dict[str, Metadata], method: str, identity: str
) -> None:
    answer = call(running, method, identities[identity])
    if identity == "admin":
        assert refused(answer) == ("PERMISSION_DENIED" if method == BUNDLE else "")
    elif identity == "sandbox":
        assert refused(answer) == ("" if method in (BUNDLE, HEALTH) else "PERMISSION_DENIED")
    elif identity == "key":
        assert refused(answer) == ("" if method == HEALTH else "PERMISSION_DENIED")
    else:
        assert answer == NOBODY


@pytest.mark.guarantee("G1")
def test_without_a_token_an_open_listener_is_the_admins_but_gives_no_bundle(tmp_path: Path) -> None:
    with control_plane(tmp_path, open_to_admin=True) as running:
        running.provide()
        answers = {method: call(running, method, ()) for method in METHODS}
        assert answers.pop(BUNDLE) == NOBODY
        assert not [method for method, answer in answers.items() if refused(answer)]
        wrong: Metadata = (("authorization", "Bearer wrong"),)
        assert {call(running, method, wrong) for method in METHODS} == {NOBODY}


def _texts(message: Message) -> Iterator[str]:
    """Every string of a message, at any depth, keys of maps included."""
    for _, value in message.ListFields():
        for each in _flat(value):
            if isinstance(each, Message):
                yield from _texts(each)
            elif isinstance(each, str):
                yield each


def _flat(value: Any) -> Iterator[Any]:
    if hasattr(value, "items"):
        yield from itertools.chain(*value.items())
    elif isinstance(value, str | bytes | int | bool | float | Message):
        yield value
    else:
        yield from value


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("method", sorted(set(METHODS) - {BUNDLE}))
def test_no_answer_but_a_bundle_holds_a_credential(running: RunningControlPlane, method: str) -> None:
    request: Any = GetMessageClass(METHODS[method].input_type)()
    for field in ("name", "provider_name"):
        if field in request.DESCRIPTOR.fields_by_name:
            setattr(request, field, "mocked")
    provider = request.DESCRIPTOR.fields_by_name.get("provider")
    if provider is not None and provider.message_type is not None:
        request.provider.name = "mocked" if "Update" in method else "another"
        request.provider.type = "openai"
        request.provider.credentials["OPENAI_API_KEY"] = KEY
    if "force" not in request.DESCRIPTOR.fields_by_name and "DeleteProvider" in method:
        request.name = "another"
    answer = call(running, method, ADMIN, request)
    if isinstance(answer, Message):
        assert not [text for text in _texts(answer) if KEY in text]


def test_a_bundle_holds_the_key_for_the_sandbox_that_it_is_for(
    running: RunningControlPlane, identities: dict[str, Metadata]
) -> None:
    bundle = call(running, BUNDLE, identities["sandbox"])
    assert [route.api_key for route in bundle.routes if route.name == "inference.local"] == [KEY]


@pytest.mark.guarantee("G1")
def test_a_sandbox_gets_its_own_accounts_routes_only(running: RunningControlPlane) -> None:
    running.call(running.control.accounts.create("other"))
    foreign = running.token("foreign", account="other")
    assert not call(running, BUNDLE, foreign).routes
    named: Metadata = (*foreign, ("x-pointsman-account", "default"))
    assert not call(running, BUNDLE, named).routes


def test_an_account_that_does_not_exist_is_not_found(running: RunningControlPlane) -> None:
    nowhere: Metadata = (*ADMIN, ("x-pointsman-account", "nowhere"))
    assert call(running, "/openshell.v1.OpenShell/ListProviders", nowhere) == "NOT_FOUND"


@pytest.mark.parametrize(
    ("names", "code"), [(("default", "default"), "INVALID_ARGUMENT"), (("",), "INVALID_ARGUMENT"), (("default",), "")]
)
def test_the_account_is_named_once_or_not_at_all(
    running: RunningControlPlane, names: tuple[str, ...], code: str
) -> None:
    named: Metadata = (*ADMIN, *(("x-pointsman-account", name) for name in names))
    answer = call(running, "/openshell.v1.OpenShell/ListProviders", named)
    assert (answer if isinstance(answer, str) else "") == code


@pytest.mark.parametrize("identity", [each for each in IDENTITIES if each not in ("admin", "sandbox", "key")])
def test_who_is_refused_is_not_waited_for(
    running: RunningControlPlane, identities: dict[str, Metadata], identity: str
) -> None:
    never = threading.Event()

    def messages() -> Iterator[bytes]:
        never.wait()
        yield from ()

    invoke: Callable[..., Any] = running.channel.stream_unary(HEALTH)
    try:
        with pytest.raises(grpc.RpcError) as caught:
            invoke(messages(), metadata=identities[identity], timeout=10)
        assert caught.value.code().name == NOBODY
    finally:
        never.set()
