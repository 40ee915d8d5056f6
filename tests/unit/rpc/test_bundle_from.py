"""A gateway's answer becomes a bundle; what cannot be used of it is left out, and the rest serves."""

from typing import Any

import pytest

from pointsman.core.endpoint import parse_endpoint
from pointsman.core.secret import Secret
from pointsman.rpc.convert import bundle_from
from pointsman.rpc.gen import inference_pb2
from tests.support.scripted_gateway import Message, resolved

URL = "https://api.example.com/v1"


def test_bundle_from_converts_all_fields() -> None:
    route = resolved(
        URL,
        protocols=[" OpenAI_Chat_Completions ", "openai_chat_completions", "model_discovery"],
        api_key="key-1",
        model_id="large",
        provider_type="anthropic",
        timeout_secs=90,
    )
    received = bundle_from(Message(routes=[route], revision="r7"))
    (candidate,) = received.bundle.routes
    assert (received.bundle.revision, received.left_out) == ("r7", ())
    assert candidate.route == "inference.local"
    assert candidate.endpoint == parse_endpoint(URL)
    assert candidate.protocols == ("openai_chat_completions", "model_discovery")
    assert (candidate.api_key, candidate.model) == (Secret("key-1"), "large")
    assert (candidate.provider_type, candidate.timeout_seconds) == ("anthropic", 90.0)


def test_bundle_from_handles_an_empty_bundle_and_an_empty_key() -> None:
    assert bundle_from(Message()).bundle.routes == ()
    assert bundle_from(Message(routes=[resolved(URL, api_key="")])).bundle.routes[0].api_key is None


def test_bundle_from_preserves_names_and_segregates_the_system_route() -> None:
    names = ["inference.local", "sandbox-system", "fast"]
    bundle = bundle_from(Message(routes=[resolved(URL, name=name) for name in names])).bundle
    assert [each.route for each in bundle.routes] == ["inference.local", "fast"]
    assert [each.route for each in bundle.system_routes] == ["sandbox-system"]


LONG = "a" * 9000
UNUSABLE: dict[str, dict[str, Any]] = {
    "no URL": {"base_url": "no URL"},
    "an empty URL": {"base_url": ""},
    "another scheme": {"base_url": "ftp://api.example.com/v1"},
    "a user in the URL": {"base_url": "https://sk-canary-1@api.example.com/v1"},
    "a query in the URL": {"base_url": "https://api.example.com/v1?key=sk-canary-1"},
    "metadata": {"base_url": "http://169.254.169.254/v1"},
    "metadata in disguise": {"base_url": "http://[::ffff:169.254.169.254]/v1"},
    "an ambiguous address": {"base_url": "http://2852039166/v1"},
    "a file of this machine": {"base_url": "gguf:///etc/passwd"},
    "no name": {"name": ""},
    "a name of two lines": {"name": "a\nb"},
    "a long name": {"name": LONG},
    "almost the system route": {"name": "Sandbox_System"},
    "almost the system route, in two words": {"name": "sandbox system"},
    "almost the system route, in wide letters": {"name": "\uff33andbox-system"},
    "the system route with a soft hyphen's look-alike": {"name": "sandbox\u2010system"},
    "no protocols": {"protocols": []},
    "blank protocols": {"protocols": ["  "]},
    "no model": {"model_id": ""},
    "a model of two lines": {"model_id": "a\r\nb"},
    "a long model": {"model_id": LONG},
    "a long type": {"provider_type": LONG},
    "a key of two lines": {"api_key": "sk-canary-1\r\nx-evil: 1"},
    "a key with a space": {"api_key": "sk-canary-1 b"},
    "a key beyond ASCII": {"api_key": "sk-canary-1é"},
    "a long key": {"api_key": LONG},
    "an endless timeout": {"timeout_secs": 2**64 - 1},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_route_that_cannot_be_used_is_left_out_with_a_reason_that_repeats_nothing(name: str) -> None:
    bad = resolved(**{"base_url": URL, "name": "bad", **UNUSABLE[name]})
    received = bundle_from(Message(routes=[resolved(URL), bad, resolved(URL, name="last")], revision="r"))
    assert [each.route for each in received.bundle.routes] == ["inference.local", "last"]
    assert received.bundle.system_routes == ()
    (left_out,) = received.left_out
    assert left_out.route == bad.name
    assert left_out.reason.startswith("it")
    assert "canary" not in left_out.reason
    assert len(left_out.reason) < 150


@pytest.mark.parametrize(
    ("field", "limit"), [("name", 253), ("model_id", 512), ("provider_type", 64), ("api_key", 8192)]
)
def test_texts_may_have_their_limits(field: str, limit: int) -> None:
    for size in (limit, limit + 1):
        received = bundle_from(Message(routes=[resolved(URL, **{field: "a" * size})]))
        assert len(received.bundle.routes) == (size == limit)


@pytest.mark.parametrize("count", [32, 33])
def test_a_route_may_list_so_many_protocols(count: int) -> None:
    received = bundle_from(Message(routes=[resolved(URL, protocols=[f"dialect-{n}" for n in range(count)])]))
    assert len(received.bundle.routes) == (count == 32)


@pytest.mark.parametrize("seconds", [86_400, 86_401])
def test_a_timeout_may_have_a_day(seconds: int) -> None:
    assert len(bundle_from(Message(routes=[resolved(URL, timeout_secs=seconds)])).left_out) == (seconds > 86_400)


def test_nothing_of_a_message_is_needed() -> None:
    received = bundle_from(Message(routes=[inference_pb2.ResolvedRoute()]))
    assert (received.bundle.routes, len(received.left_out)) == ((), 1)
