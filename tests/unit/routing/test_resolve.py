"""What a stored route leads to, by the record of its provider."""

from dataclasses import replace

import pytest

from pointsman.core.control_errors import InvalidRequest
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.profiles import known_provider_types
from pointsman.core.secret import Secret
from pointsman.routing.resolve import Unresolvable, resolve
from tests.support.canary import KEY
from tests.unit.routing.provider_records import record, stored

OPENAI_LIKE = (
    "openai_chat_completions",
    "openai_completions",
    "openai_responses",
    "openai_embeddings",
    "model_discovery",
)
HERE = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("kind", "config", "url", "protocols"),
    [
        ("openai", {}, "https://api.openai.com/v1", OPENAI_LIKE),
        ("nvidia", {}, "https://integrate.api.nvidia.com/v1", OPENAI_LIKE),
        ("anthropic", {}, "https://api.anthropic.com/v1", ("anthropic_messages", "model_discovery")),
        ("openai_compatible", {"BASE_URL": HERE}, HERE, OPENAI_LIKE),
        ("openai_compatible", {"OPENAI_BASE_URL": HERE}, HERE, OPENAI_LIKE),
        ("openai_compatible", {"OPENAI_BASE_URL": "http://other", "BASE_URL": HERE}, HERE, OPENAI_LIKE),
        ("openai", {"OPENAI_BASE_URL": HERE, "BASE_URL": "http://not-this-one"}, HERE, OPENAI_LIKE),
        ("anthropic", {"ANTHROPIC_BASE_URL": HERE}, HERE, ("anthropic_messages", "model_discovery")),
        ("nvidia", {"NVIDIA_BASE_URL": HERE, "OPENAI_BASE_URL": "http://other"}, HERE, OPENAI_LIKE),
        ("openai", {"OPENAI_BASE_URL": f"  {HERE}\t"}, HERE, OPENAI_LIKE),
        ("openai", {"OPENAI_BASE_URL": "  "}, "https://api.openai.com/v1", OPENAI_LIKE),
        ("openai_compatible", {"BASE_URL": " ", "OPENAI_BASE_URL": HERE}, HERE, OPENAI_LIKE),
        ("openai", {"OPENAI_BASE_URL": "mock://canned"}, "mock://canned", OPENAI_LIKE),
    ],
)
def test_resolve_managed_route_derives_from_provider(
    kind: str, config: dict[str, str], url: str, protocols: tuple[str, ...]
) -> None:
    found = resolve(stored(timeout=30), record(kind, config=config))
    assert (found.name, found.base_url, found.protocols) == ("inference.local", url, protocols)
    assert (found.model, found.provider_type, found.timeout_seconds) == ("gpt-x", kind, 30)
    assert found.api_key == Secret(KEY)
    candidate = found.candidate()
    assert candidate.endpoint == parse_endpoint(url)
    assert (candidate.route, candidate.model, candidate.timeout_seconds) == ("inference.local", "gpt-x", 30.0)
    assert (candidate.protocols, candidate.provider_type, candidate.api_key) == (protocols, kind, Secret(KEY))


def test_resolve_managed_route_reflects_provider_key_rotation() -> None:
    before, provider = resolve(stored(), record()), record(credentials={"OPENAI_API_KEY": "rotated-key"})
    assert resolve(stored(), provider) == replace(before, api_key=Secret("rotated-key"))


@pytest.mark.parametrize("kind", [" OpenAI\n", "OPENAI", "openai"])
def test_a_type_is_trimmed_and_lowercased(kind: str) -> None:
    assert resolve(stored(), record(kind)).provider_type == "openai"


@pytest.mark.parametrize("kind", ["", "  ", "mock", "local_gguf", "claude", "generic", "openai-compatible"])
def test_a_type_that_cannot_be_routed_to_is_refused_by_naming_those_that_can(kind: str) -> None:
    with pytest.raises(Unresolvable) as raised:
        resolve(stored(), record(kind))
    assert all(name in raised.value.text for name in ("prod", *known_provider_types()))


@pytest.mark.parametrize(
    ("kind", "credentials", "key"),
    [
        ("openai", {"A_KEY": "first", "OPENAI_API_KEY": "right"}, "right"),
        ("openai", {"B_KEY": "second", "A_KEY": "first"}, "first"),
        ("openai", {"OPENAI_API_KEY": " ", "A_KEY": "", "B_KEY": "second"}, "second"),
        ("openai", {"OPENAI_API_KEY": " right\n"}, "right"),
        ("anthropic", {"ANTHROPIC_API_KEY": "right", "AN_OTHER": "x"}, "right"),
        ("nvidia", {"OPENAI_API_KEY": "x", "NVIDIA_API_KEY": "right"}, "right"),
        ("nvidia", {"OPENAI_API_KEY": "only"}, "only"),
    ],
)
def test_the_profiles_key_comes_first_then_the_first_that_is_not_blank(
    kind: str, credentials: dict[str, str], key: str
) -> None:
    assert resolve(stored(), record(kind, credentials)).api_key == Secret(key)


@pytest.mark.parametrize("credentials", [{}, {"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": " \t", "OTHER": " "}])
def test_without_a_usable_key_the_next_step_is_to_add_one(credentials: dict[str, str]) -> None:
    with pytest.raises(Unresolvable, match=r"prod has no usable key.*provider update prod --credential OPENAI_API_KEY"):
        resolve(stored(), record(credentials=credentials))


@pytest.mark.parametrize("spoiler", [" ", "\r\nX-Evil: 1", "é", "\x7f", "\t", "\u2028"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(spoiler: str) -> None:
    spoilt = KEY[:9] + spoiler + KEY[9:]
    with pytest.raises(Unresolvable, match="credential ODD of provider prod holds a space or") as raised:
        resolve(stored(), record(credentials={"ODD": spoilt}))
    assert KEY[:9] not in raised.value.text
    assert KEY[9:20] not in raised.value.text


@pytest.mark.parametrize("config", [{}, {"BASE_URL": " "}, {"URL": HERE}])
def test_a_compatible_server_needs_a_base_url(config: dict[str, str]) -> None:
    with pytest.raises(Unresolvable, match=r"no base URL, and type openai_compatible has no default.*BASE_URL=URL"):
        resolve(stored(), record("openai_compatible", config=config))


REFUSED = {
    "api.example.com/v1": "is not a URL",
    "ftp://host/v1": "unknown scheme",
    "https://user:hunter22@host/v1": "user name or password",
    "https://host/v1?key=hunter22": "query or a fragment",
    "http://host:0/v1": "port that is not between",
    "http://127.1/v1": "ambiguous way",
    "http://host/a b": "plain ASCII URL",
    "gguf:///models/small.gguf": "names a model file",
    "gguf://models/small.gguf": "must name a file",
    "http://169.254.169.254/v1": "link-local or metadata address, which no route may lead to",
    "http://100.100.100.200/v1": "metadata address",
    "http://168.63.129.16/v1": "metadata address",
    "http://[fe80::1]/v1": "link-local address",
    "http://[fd00:ec2::254]/v1": "metadata address",
    "http://[::ffff:169.254.169.254]/v1": "link-local or metadata address",
    "http://[64:ff9b::a9fe:a9fe]/v1": "link-local or metadata address",
    "http://0.0.0.0:8000/v1": "unspecified address",
    "https://224.0.0.1/v1": "multicast address",
}


@pytest.mark.guarantee("U2")
@pytest.mark.parametrize("url", REFUSED)
def test_a_base_url_that_leads_nowhere_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(Unresolvable, match=REFUSED[url]) as raised:
        resolve(stored(), record(config={"OPENAI_BASE_URL": url}))
    text = raised.value.text
    assert text.startswith("the OPENAI_BASE_URL of provider prod ")
    assert "pointsman provider update prod --config OPENAI_BASE_URL=URL" in text
    assert "hunter22" not in text
    assert "api_key_env" not in text


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:11434", "http://10.0.0.8:8000/v1", "http://[::1]:9/v1", "https://vllm.internal/v1"]
)
def test_private_and_loopback_addresses_and_names_may_be_named(url: str) -> None:
    assert resolve(stored(), record(config={"OPENAI_BASE_URL": url})).base_url == url


def test_what_cannot_be_resolved_is_an_invalid_argument() -> None:
    assert issubclass(Unresolvable, InvalidRequest)
    assert Unresolvable.code == "INVALID_ARGUMENT"


def test_a_resolved_route_does_not_show_its_key() -> None:
    found = resolve(stored(), record())
    assert KEY not in f"{found} {found!r} {found.candidate()!r}"
