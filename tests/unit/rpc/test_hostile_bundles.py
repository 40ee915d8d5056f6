"""Whatever a gateway puts into a route: it is left out, or all that is made of it stays whole lines."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.core.candidate import Candidate
from pointsman.core.event_kinds import INFER_COMPLETED, ROUTE_LEFT_OUT, UPSTREAM_FAILED
from pointsman.events.human_line import human_line
from pointsman.events.ocsf import ocsf_line
from pointsman.events.record import Record, RoutesState
from pointsman.routing.rewrite import RequestTemplate, base_path
from pointsman.rpc.convert import bundle_from
from pointsman.rpc.gen import inference_pb2
from pointsman.wire.request import FieldValues

ANY = st.text(alphabet=st.characters(codec="utf-8"), max_size=30)
WORDS = st.one_of(st.just("m"), st.sampled_from(["mé", "x y", "a\r\nb", "\x1b[31m", "\u202e"]), ANY)
KEYS = st.one_of(st.sampled_from(["", "sk-1", "sk-1\r\nx: y", "sk-1\0", "sk-é"]), ANY)
HOSTS = st.one_of(
    st.sampled_from(["h", "a.example:8", "[::1]:9", "[::ffff:1.2.3.4]", "A_b.", "0x7f.1", "1.2.3.4:0080", "h\r\nx: y"]),
    st.from_regex(r"\A[a-z0-9.:_-]{1,20}\Z"),
)
URLS = st.one_of(
    st.just("https://a.example/v1"),
    st.builds(
        "{}://{}{}".format,
        st.sampled_from(["http", "https", "mock", "HTTP", "gguf", "file"]),
        HOSTS,
        st.from_regex(r"\A(/[a-zA-Z0-9%._~-]{0,5}){0,4}\Z"),
    ),
    ANY,
)
ROUTES = st.fixed_dictionaries(
    {  # each half of the time what is fine, so that every other field is looked at
        "name": st.one_of(st.sampled_from(["inference.local", "sandbox-system"]), WORDS),
        "base_url": URLS,
        "protocols": st.lists(WORDS, min_size=1, max_size=3),
        "api_key": KEYS,
        "model_id": WORDS,
        "provider_type": st.one_of(st.sampled_from(["", "openai", "anthropic"]), WORDS),
        "timeout_secs": st.one_of(st.integers(0, 90_000), st.just(2**64 - 1)),
    }
)


@settings(max_examples=400)
@given(ROUTES)
def test_a_route_is_left_out_or_all_that_is_made_of_it_is_whole(fields: dict[str, Any]) -> None:
    route = inference_pb2.ResolvedRoute(**fields)
    received = bundle_from(inference_pb2.GetInferenceBundleResponse(routes=[route], revision=fields["model_id"]))
    bundle = received.bundle
    assert len(received.left_out) + len(bundle.routes) + len(bundle.system_routes) == 1
    told = RoutesState(ROUTE_LEFT_OUT, 1.0, bundle, "gateway", "host")
    for each in received.left_out:
        told.route, told.detail = each.route, each.reason
    assert human_line(ROUTE_LEFT_OUT, told).isprintable()
    assert "\n" not in ocsf_line(ROUTE_LEFT_OUT, told)
    for candidate in (*bundle.routes, *bundle.system_routes):
        check_request(candidate)
        record = Record("id", 1.0, "POST", "/v1/chat/completions", "openai_chat_completions")
        record.candidate = candidate
        for kind in (INFER_COMPLETED, UPSTREAM_FAILED):
            assert human_line(kind, record).isprintable()
            assert "\n" not in ocsf_line(kind, record)


def check_request(candidate: Candidate) -> None:
    key = candidate.api_key.reveal() if candidate.api_key else ""
    template = RequestTemplate(candidate, key, candidate.endpoint.authority)
    (request,) = template.encode("GET", "/v1/models", FieldValues(), ())
    lines = bytes(request).split(b"\r\n")
    assert lines[0] == f"GET {base_path(candidate).join('/v1/models')} HTTP/1.1".encode()
    assert len(lines) <= 6  # host, key, the profile's version, and the end
    assert not any(separator in line for line in lines for separator in (b"\r", b"\n", b"\0"))
