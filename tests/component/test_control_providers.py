"""Operations on provider records, over gRPC, on a real store."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from pointsman.core.provider import (
    LONGEST_KEY,
    LONGEST_NAME,
    LONGEST_TYPE,
    LONGEST_VALUE,
    MOST_CONFIG_ENTRIES,
    MOST_CREDENTIALS,
)
from pointsman.gateway.providers import LARGEST_PAGE_BYTES
from pointsman.rpc.gen import control_pb2, openshell_pb2
from pointsman.rpc.gen.datamodel_pb2 import Provider
from tests.support.canary import KEY
from tests.support.control_plane import ADMIN, RunningControlPlane, control_plane


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        yield running


def create(running: RunningControlPlane, provider: Provider) -> Provider:
    request = openshell_pb2.CreateProviderRequest(provider=provider)
    return running.openshell.CreateProvider(request, metadata=ADMIN, timeout=10).provider


def test_a_model_file_of_the_gateways_own_machine_needs_no_key(fresh: RunningControlPlane) -> None:
    wanted = Provider(name="local", type="local_gguf", config={"MODEL_PATH": "/models/small.gguf"})
    assert dict(create(fresh, wanted).config) == {"MODEL_PATH": "/models/small.gguf"}


def update(running: RunningControlPlane, provider: Provider) -> Provider:
    request = openshell_pb2.UpdateProviderRequest(provider=provider)
    return running.openshell.UpdateProvider(request, metadata=ADMIN, timeout=10).provider


def get(running: RunningControlPlane, name: str) -> Provider:
    request = openshell_pb2.GetProviderRequest(name=name)
    return running.openshell.GetProvider(request, metadata=ADMIN, timeout=10).provider


def names(running: RunningControlPlane, limit: int = 0, offset: int = 0) -> list[str]:
    request = openshell_pb2.ListProvidersRequest(limit=limit, offset=offset)
    return [each.name for each in running.openshell.ListProviders(request, metadata=ADMIN, timeout=10).providers]


def refusal(raised: "pytest.ExceptionInfo[grpc.RpcError]", code: str) -> str:
    """The text of an error with this status."""
    assert raised.value.code().name == code
    return str(raised.value.details())


def sound(name: str = "sound") -> Provider:
    return Provider(name=name, type="openai", credentials={"OPENAI_API_KEY": KEY})


def test_a_name_is_made_up_when_there_is_none(running: RunningControlPlane) -> None:
    made = create(running, sound(""))
    assert made.name.startswith("openai-")
    assert get(running, made.name) == made


def test_a_second_provider_of_a_name_is_refused_and_changes_nothing(running: RunningControlPlane) -> None:
    first = create(running, sound("twice"))
    with pytest.raises(grpc.RpcError) as raised:
        create(running, Provider(name="twice", type="anthropic", credentials={"A": "b"}))
    assert "twice" in refusal(raised, "ALREADY_EXISTS")
    assert get(running, "twice") == first


def test_a_provider_that_is_not_there_is_not_found(running: RunningControlPlane) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        get(running, "nowhere")
    assert "nowhere" in refusal(raised, "NOT_FOUND")
    with pytest.raises(grpc.RpcError) as raised:
        update(running, Provider(name="nowhere"))
    assert "nowhere" in refusal(raised, "NOT_FOUND")


@pytest.mark.parametrize(
    ("provider", "word"),
    [
        (Provider(name="x", credentials={"A": "b"}), "type"),
        (Provider(name="x", type="  ", credentials={"A": "b"}), "type"),
        (Provider(name="x", type="open\0ai", credentials={"A": "b"}), "control character"),
        (Provider(name="x", type="openai", credentials={"A": "b"}, config={"key_file": "/etc/shadow"}), "KEY_FILE"),
        (Provider(name="x", type="openai"), "credentials"),
        (Provider(name="x", type="openai", credentials={"A": ""}), "credentials"),
        (Provider(name="x y", type="openai", credentials={"A": "b"}), "name"),
        (Provider(name="-x", type="openai", credentials={"A": "b"}), "name"),
        (Provider(name="x/../y", type="openai", credentials={"A": "b"}), "name"),
        (Provider(name="x", type="openai", credentials={"": KEY}), "key"),
        (Provider(name="x", type="openai", credentials={"A": "REDACTED"}), "mask"),
        (Provider(name="x", type="openai", credentials={"A\n": KEY}), "key"),
        (Provider(name="x", type="openai", credentials={"A": KEY + "\0"}), "control character"),
        (Provider(name="x", type="openai", credentials={"A": "b"}, config={"C": "d\0"}), "control character"),
        (Provider(name="x", type="a\npointsman: b", credentials={"A": "b"}), "type"),
        (Provider(name="x", type="a\x1b[31m", credentials={"A": "b"}), "type"),
        (Provider(name="x", type="openai", credentials={"A": "b"}, config={"openai_api_key": KEY}), "as a credential"),
        (Provider(name="x", type="openai", credentials={"A": "b"}, config={"U": f"https://u:{KEY}@h/"}), "password"),
    ],
)
def test_what_cannot_be_a_provider_is_refused_with_the_reason(
    running: RunningControlPlane, provider: Provider, word: str
) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        create(running, provider)
    text = refusal(raised, "INVALID_ARGUMENT")
    assert word in text
    assert KEY not in text


def test_a_credential_may_have_lines(running: RunningControlPlane) -> None:
    pem = Provider(name="pem", type="github", credentials={"KEY": f"-----BEGIN-----\n{KEY}\n-----END-----\n"})
    assert create(running, pem).credentials == {"KEY": "REDACTED"}


def at(limit: int, what: str) -> Provider:
    """A provider that has `limit` of something."""
    provider = sound("limits")
    match what:
        case "name":
            provider.name = "n" * limit
        case "type":
            provider.type = "t" * limit
        case "credentials":
            provider.credentials.update({f"K{number}": "v" for number in range(limit - 1)})
        case "config":
            provider.config.update({f"K{number}": "v" for number in range(limit)})
        case "key":
            provider.config["k" * limit] = "v"
        case "credential":
            provider.credentials["OPENAI_API_KEY"] = "v" * limit
        case "value":
            provider.config["K"] = "v" * limit
    return provider


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        (LONGEST_NAME, "name"),
        (LONGEST_TYPE, "type"),
        (MOST_CREDENTIALS, "credentials"),
        (MOST_CONFIG_ENTRIES, "config"),
        (LONGEST_KEY, "key"),
        (LONGEST_VALUE, "credential"),
        (LONGEST_VALUE, "value"),
    ],
)
def test_every_limit_of_a_record_is_kept_to_the_unit(fresh: RunningControlPlane, limit: int, what: str) -> None:
    made = create(fresh, at(limit, what))
    assert get(fresh, made.name) == made
    other = at(limit + 1, what)
    if what != "name":
        other.name = "beyond"
    with pytest.raises(grpc.RpcError) as raised:
        create(fresh, other)
    assert str(limit) in refusal(raised, "INVALID_ARGUMENT")
    assert names(fresh) == [made.name]


def test_an_update_merges_and_an_empty_value_deletes(running: RunningControlPlane) -> None:
    create(running, Provider(name="merged", type="openai", credentials={"A": KEY, "B": KEY}, config={"C": "1"}))
    changed = update(running, Provider(name="merged", credentials={"B": "", "D": KEY}, config={"E": "2"}))
    assert sorted(changed.credentials) == ["A", "D"]
    assert set(changed.credentials.values()) == {"REDACTED"}
    assert dict(changed.config) == {"C": "1", "E": "2"}
    changed = update(running, Provider(name="merged", config={"C": "", "nothing": ""}))
    assert dict(changed.config) == {"E": "2"}
    assert update(running, Provider(name="merged")) == changed


def test_the_limits_hold_for_what_an_update_comes_to(running: RunningControlPlane) -> None:
    many = {f"K{number}": "v" for number in range(MOST_CREDENTIALS)}
    create(running, Provider(name="full", type="openai", credentials=many))
    with pytest.raises(grpc.RpcError) as raised:
        update(running, Provider(name="full", credentials={"ONE_MORE": "v"}))
    refusal(raised, "INVALID_ARGUMENT")
    assert sorted(get(running, "full").credentials) == sorted(many)


def test_a_type_cannot_be_changed_but_may_be_repeated(running: RunningControlPlane) -> None:
    create(running, sound("typed"))
    assert update(running, Provider(name="typed", type=" OpenAI ")).type == "openai"
    with pytest.raises(grpc.RpcError) as raised:
        update(running, Provider(name="typed", type="anthropic"))
    assert "openai" in refusal(raised, "INVALID_ARGUMENT")


def test_a_page_that_no_answer_can_hold_is_refused_and_a_smaller_one_is_not(fresh: RunningControlPlane) -> None:
    full = {f"{key:02}": "v" * LONGEST_VALUE for key in range(MOST_CONFIG_ENTRIES)}
    shown = MOST_CONFIG_ENTRIES * (2 + LONGEST_VALUE) + len("OPENAI_API_KEY")
    whole, rest = divmod(LARGEST_PAGE_BYTES, shown)
    for number in range(whole):
        fresh.provide(f"p{number}", config=full)
    entries, left = divmod(rest - len("OPENAI_API_KEY"), 2 + LONGEST_VALUE)
    last = f"{entries:02}"
    fresh.provide("q", config={**dict(list(full.items())[:entries]), last: "v" * (left - 2)})
    assert len(names(fresh)) == whole + 1
    update(fresh, Provider(name="q", config={last: "v" * (left - 1)}))
    with pytest.raises(grpc.RpcError) as raised:
        names(fresh)
    assert "smaller limit" in refusal(raised, "INVALID_ARGUMENT")
    assert names(fresh, limit=2, offset=whole - 1) == [f"p{whole - 1}", "q"]


def test_pages_are_by_name_with_100_at_a_time_unless_asked(fresh: RunningControlPlane) -> None:
    for number in range(102):
        fresh.provide(f"p{number:03}")
    expected = [f"p{number:03}" for number in range(102)]
    assert names(fresh) == expected[:100]
    assert names(fresh, limit=1000, offset=100) == expected[100:]
    assert names(fresh, limit=2, offset=1) == expected[1:3]
    assert not names(fresh, offset=4_000_000_000)
    with pytest.raises(grpc.RpcError) as raised:
        names(fresh, limit=1001)
    assert "1000" in refusal(raised, "INVALID_ARGUMENT")


def test_deleting_a_used_provider_takes_force_from_our_commands_and_is_told(fresh: RunningControlPlane) -> None:
    fresh.provide()
    fresh.point()
    delete = fresh.commands.DeleteProvider
    with pytest.raises(grpc.RpcError) as raised:
        delete(control_pb2.DeleteProviderRequest(name="mocked"), metadata=ADMIN, timeout=10)
    text = refusal(raised, "FAILED_PRECONDITION")
    assert "inference.local" in text
    assert "--force" in text
    answer = delete(control_pb2.DeleteProviderRequest(name="mocked", force=True), metadata=ADMIN, timeout=10)
    assert answer.deleted
    assert list(answer.broken_routes) == ["inference.local"]
    assert any("mocked" in line and "inference.local" in line for line in fresh.lines[-1:])
    assert not delete(control_pb2.DeleteProviderRequest(name="mocked", force=True), metadata=ADMIN, timeout=10).deleted


def test_openshells_call_deletes_a_used_provider_and_the_log_names_the_route(fresh: RunningControlPlane) -> None:
    fresh.provide()
    fresh.point()
    request = openshell_pb2.DeleteProviderRequest(name="mocked")
    assert fresh.openshell.DeleteProvider(request, metadata=ADMIN, timeout=10).deleted
    assert "inference.local" in fresh.lines[-1]


def test_accounts_do_not_see_each_others_providers(fresh: RunningControlPlane) -> None:
    fresh.call(fresh.control.accounts.create("other"))
    fresh.provide("shared-name")
    fresh.provide("shared-name", account="other")
    fresh.provide("theirs", account="other")
    assert names(fresh) == ["shared-name"]
    fresh.call(fresh.control.providers.delete("other", "shared-name", force=True))
    assert names(fresh) == ["shared-name"]
