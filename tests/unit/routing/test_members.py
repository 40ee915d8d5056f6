"""From a chain route and its providers' records to what can be tried."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pointsman.core.attempts import ErrorCategory as E
from pointsman.core.attempts import ErrorMapping, Member
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import Endpoint, parse_endpoint
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.core.provider import Provider
from pointsman.core.quota import Quota
from pointsman.core.route import CHAIN, Route, RouteCandidate
from pointsman.core.secret import Secret
from pointsman.routing.members import MOST_MAPPINGS, MOST_REQUESTS, chain_of, member_of, target_of
from pointsman.routing.resolve import NoSuchProvider, Unresolvable
from tests.support.canary import KEY
from tests.unit.routing.provider_records import in_file, record

HERE = {"BASE_URL": "http://127.0.0.1:8000/v1", "MODEL": "own"}


def compatible(**config: str) -> Provider:
    return record("openai_compatible", config={**HERE, **config})


def refusal(config: Mapping[str, str], kind: str = "openai_compatible") -> str:
    with pytest.raises(Unresolvable) as raised:
        member_of(in_file(kind, {**HERE, **config} if kind == "openai_compatible" else config), "")
    return raised.value.text


def test_a_record_with_everything_becomes_a_member() -> None:
    mappings = json.dumps([{"http_status": 429, "error_code": "day", "category": "rate_limit"}])
    provider = compatible(
        DAILY_REQUEST_LIMIT="14400",
        REQUESTS_PER_MINUTE=" 30 ",
        RESET_TIMEZONE="America/New_York",
        ERROR_CODE_PATH="error.details.0.code",
        ERROR_MAPPINGS=mappings,
    )
    member = member_of(provider, "chosen", "fast")
    assert (member.provider, member.candidate.route, member.candidate.model) == ("prod", "fast", "chosen")
    assert member.candidate.endpoint == parse_endpoint("http://127.0.0.1:8000/v1")
    assert (member.candidate.provider_type, member.candidate.api_key) == ("openai_compatible", Secret(KEY))
    assert P.EMBEDDINGS in member.candidate.protocols
    assert member.quota == Quota(14400, 30, "America/New_York")
    assert member.error_mappings == (ErrorMapping(429, E.RATE_LIMIT, "day"),)
    assert (member.error_code_path, member.key_file) == ("error.details.0.code", "")


def test_a_record_without_chain_settings_has_no_limits_and_its_own_model() -> None:
    member = member_of(compatible(), "")
    assert member.candidate.model == "own"
    assert (member.quota, member.error_mappings, member.error_code_path) == (Quota(), (), "error.code")


def test_a_key_file_takes_the_place_of_a_key_and_none_is_needed() -> None:
    for credentials in ({}, {"OPENAI_API_KEY": Secret(KEY)}):
        member = member_of(replace(in_file(), credentials=credentials), "m")
        assert (member.key_file, member.candidate.api_key) == ("/run/secrets/prod_api_key", None)


def test_a_stored_record_leads_to_no_file_whatever_it_says() -> None:
    provider = replace(in_file(), from_file=False)
    with pytest.raises(Unresolvable, match="prod has no usable key"):
        member_of(provider, "m")
    with pytest.raises(Unresolvable, match="prod has no usable key"):
        target_of(direct(), {"prod": provider})
    kept = replace(provider, credentials={"OPENAI_API_KEY": Secret(KEY)})
    assert (member_of(kept, "m").key_file, member_of(kept, "m").candidate.api_key) == ("", Secret(KEY))


def test_without_a_key_or_a_key_file_the_next_step_is_to_add_one() -> None:
    with pytest.raises(Unresolvable, match="prod has no usable key"):
        member_of(record("openai", {}), "m")


def test_a_model_file_becomes_a_local_member_that_serves_four_dialects_and_needs_no_key() -> None:
    provider = record(" Local_GGUF ", {}, {"MODEL_PATH": "/models/small v1.gguf", "KEY_FILE": "/unused"})
    member = member_of(provider, "")
    assert member.candidate.endpoint == Endpoint("gguf", "", 0, "/models/small v1.gguf")
    assert (member.candidate.model, member.candidate.provider_type) == ("small v1", "local_gguf")
    assert {P.CHAT_COMPLETIONS, P.COMPLETIONS, P.RESPONSES, P.MESSAGES} < set(member.candidate.protocols)
    assert P.EMBEDDINGS not in member.candidate.protocols
    assert (member.candidate.api_key, member.key_file) == (None, "")


@pytest.mark.parametrize(
    ("config", "label"), [({}, ""), ({"BASE_URL": "mock://canned"}, "canned"), ({"BASE_URL": " "}, "")]
)
def test_a_mock_speaks_every_dialect_and_needs_no_key(config: dict[str, str], label: str) -> None:
    member = member_of(record("mock", {}, config), "m")
    assert member.candidate.endpoint == Endpoint("mock", label, 0, "")
    assert set(member.candidate.protocols) == set(P)
    assert (member.candidate.provider_type, member.candidate.api_key) == ("mock", None)


@pytest.mark.parametrize("url", ["http://host/v1", "canned", "mock:/canned"])
def test_a_mock_with_a_real_url_is_refused(url: str) -> None:
    assert "BASE_URL of provider prod is no mock:// URL" in refusal({"BASE_URL": url, "MODEL": "m"}, "mock")


@pytest.mark.parametrize("kind", ["", "claude", "openai-compatible", "pointsman"])
def test_a_type_that_no_chain_can_use_is_refused_by_naming_those_that_it_can(kind: str) -> None:
    text = refusal({"MODEL": "m"}, kind)
    assert all(name in text for name in ("prod", "openai_compatible", "local_gguf", "mock"))


COUNTS = ["-1", "+1", "1.5", "1e3", "ten", "0x10", "1_000", "١٤", str(MOST_REQUESTS + 1), "9" * 5000]


@pytest.mark.parametrize("key", ["DAILY_REQUEST_LIMIT", "REQUESTS_PER_MINUTE"])
@pytest.mark.parametrize("value", COUNTS)
def test_a_limit_that_is_no_count_is_refused_by_its_key(key: str, value: str) -> None:
    assert refusal({key: value}) == (
        f"{key} of provider prod is not a whole number from 0 to 1000000000; write it as 14400, or 0 for no limit"
    )


@pytest.mark.parametrize(("value", "count"), [("", 0), ("0", 0), ("007", 7), (str(MOST_REQUESTS), MOST_REQUESTS)])
def test_a_limit_up_to_the_largest_is_taken(value: str, count: int) -> None:
    assert member_of(compatible(DAILY_REQUEST_LIMIT=value, REQUESTS_PER_MINUTE=value), "").quota == Quota(count, count)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "/etc/passwd", "../../etc/passwd", "Europe", "utc+1", "x" * 5000])
def test_a_time_zone_that_nobody_knows_is_refused(zone: str) -> None:
    assert "RESET_TIMEZONE of provider prod is no time zone" in refusal({"RESET_TIMEZONE": zone})


@pytest.mark.parametrize("path", [".", "a.", ".a", "a..b", "a b", "$.a[0]", "é", ".".join("a" * 17), "a" * 65])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    assert refusal({"ERROR_CODE_PATH": path}).endswith("write it as error.code")


@pytest.mark.parametrize("path", [".".join("a" * 16), "a" * 64, "code", "0.error.@type"])
def test_a_path_up_to_the_limits_is_taken(path: str) -> None:
    assert member_of(compatible(ERROR_CODE_PATH=path), "").error_code_path == path


GOOD = {"http_status": 503, "category": "rate_limit"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{}", "ERROR_MAPPINGS of provider prod is no JSON list"),
        ("[", "is no JSON list"),
        ("[" * 4000, "is no JSON list"),
        (json.dumps([GOOD] * (MOST_MAPPINGS + 1)), f"has {MOST_MAPPINGS + 1} entries; write at most {MOST_MAPPINGS}"),
        ("[429]", "entry 1 of ERROR_MAPPINGS of provider prod is no object"),
        (json.dumps([GOOD, {**GOOD, "status": 1}]), "entry 2 of ERROR_MAPPINGS of provider prod has the unknown key"),
        (json.dumps([{"category": "rate_limit"}]), "has no http_status from 300 to 599"),
        (json.dumps([{**GOOD, "http_status": 299}]), "has no http_status"),
        (json.dumps([{**GOOD, "http_status": 600}]), "has no http_status"),
        (json.dumps([{**GOOD, "http_status": "429"}]), "has no http_status"),
        (json.dumps([{**GOOD, "http_status": True}]), "has no http_status"),
        (json.dumps([{**GOOD, "error_code": [], "x": 1}]), "unknown key 'x'"),
        (json.dumps([{**GOOD, "error_code": {"a": 1}}]), "has an error_code"),
        (json.dumps([{**GOOD, "error_code": "x" * 129}]), "has an error_code that is no text of at most 128"),
        (json.dumps([{"http_status": 429}]), "has no known category; use one of rate_limit, server_error"),
        (json.dumps([{**GOOD, "category": "slow"}]), "has no known category"),
        (json.dumps([{**GOOD, "category": 3}]), "has no known category"),
    ],
)
def test_a_mapping_that_cannot_be_read_is_refused_by_its_place(value: str, words: str) -> None:
    assert words in refusal({"ERROR_MAPPINGS": value})


@pytest.mark.parametrize(
    ("item", "mapping"),
    [
        (GOOD, ErrorMapping(503, E.RATE_LIMIT)),
        ({**GOOD, "http_status": 300, "error_code": None}, ErrorMapping(300, E.RATE_LIMIT)),
        ({**GOOD, "http_status": 599, "error_code": "x" * 128}, ErrorMapping(599, E.RATE_LIMIT, "x" * 128)),
        ({**GOOD, "error_code": 1113}, ErrorMapping(503, E.RATE_LIMIT, "1113")),
        ({**GOOD, "category": "RateLimit"}, ErrorMapping(503, E.RATE_LIMIT)),
        ({**GOOD, "category": "ModelUnavailable"}, ErrorMapping(503, E.MODEL_UNAVAILABLE)),
        ({**GOOD, "category": "ServerError"}, ErrorMapping(503, E.SERVER_ERROR)),
        ({**GOOD, "category": "AuthError"}, ErrorMapping(503, E.AUTH_ERROR)),
        ({**GOOD, "category": "UnknownError"}, ErrorMapping(503, E.UNKNOWN)),
        ({**GOOD, "category": "request_rejected"}, ErrorMapping(503, E.REQUEST_REJECTED)),
    ],
)
def test_a_mapping_in_either_spelling_is_read(item: dict[str, object], mapping: ErrorMapping) -> None:
    assert member_of(compatible(ERROR_MAPPINGS=json.dumps([item] * MOST_MAPPINGS)), "").error_mappings == (
        (mapping,) * MOST_MAPPINGS
    )


@pytest.mark.parametrize("key", ["KEY_FILE", "MODEL_PATH"])
@pytest.mark.parametrize("path", ["secrets/key", "~/key", "key\u200b", "/" + "x" * 4096])
def test_a_path_that_is_not_absolute_is_refused(key: str, path: str) -> None:
    kind = "local_gguf" if key == "MODEL_PATH" else "openai_compatible"
    assert f"{key} of provider prod is not the absolute path of a file" in refusal({key: path}, kind)


def test_a_local_model_without_a_file_is_refused() -> None:
    assert refusal({}, "local_gguf") == (
        "provider prod names no model file; set it with 'pointsman provider update prod --config MODEL_PATH=FILE'"
    )


@pytest.mark.parametrize("kind", ["openai", "mock"])
def test_a_member_needs_a_model_unless_the_clients_is_forwarded(kind: str) -> None:
    provider = record(kind)
    with pytest.raises(Unresolvable, match="prod has no model of its own; name one, prod=MODEL"):
        member_of(provider, " ")
    assert member_of(provider, "", forwards_model=True).candidate.model == ""


@pytest.mark.parametrize(("length", "taken"), [(255, True), (256, True), (257, False)])
def test_a_model_has_at_most_256_characters(length: int, taken: bool) -> None:
    if taken:
        assert member_of(compatible(), "m" * length).candidate.model == "m" * length
    else:
        with pytest.raises(Unresolvable, match="MODEL of provider prod has over 256 characters"):
            member_of(compatible(), "m" * length)


def test_no_refusal_repeats_a_value_that_may_be_a_secret() -> None:
    for key in ("DAILY_REQUEST_LIMIT", "RESET_TIMEZONE", "ERROR_CODE_PATH", "ERROR_MAPPINGS", "KEY_FILE"):
        assert KEY not in refusal({key: f" {KEY} é"})


# Chains


def route(*candidates: str | tuple[str, str], fallback: str = "") -> Route:
    listed = tuple(RouteCandidate(each) if isinstance(each, str) else RouteCandidate(*each) for each in candidates)
    return Route("default", "fast", "", "", 0, 1, CHAIN, listed, "least_used", fallback)


def named(name: str, provider: Provider) -> Provider:
    return replace(provider, name=name)


RECORDS = {
    name: named(name, provider)
    for name, provider in {
        "a": compatible(),
        "b": compatible(DAILY_REQUEST_LIMIT="5"),
        "broken": compatible(DAILY_REQUEST_LIMIT="many"),
        "local": record("local_gguf", {}, {"MODEL_PATH": "/models/small.gguf"}),
        "lab": record("runner"),
    }.items()
}


def test_a_chain_keeps_the_operators_order_and_its_fallback_apart() -> None:
    chain = chain_of(route("b", ("a", "big"), ("a", "small"), fallback="local"), RECORDS)
    assert [(each.provider, each.candidate.model) for each in chain.members] == [
        ("b", "own"),
        ("a", "big"),
        ("a", "small"),
    ]
    assert chain.fallback is not None
    assert chain.fallback.provider == "local"
    assert {each.candidate.route for each in (*chain.members, chain.fallback)} == {"fast"}
    assert (chain.account, chain.name, chain.strategy) == ("default", "fast", "least_used")
    assert (chain.request_timeout_seconds, chain.forwards_model) == (300.0, False)


def test_a_chain_without_a_fallback_is_allowed() -> None:
    assert chain_of(route("a"), RECORDS).fallback is None


def test_a_chain_has_the_routes_timeouts_and_may_forward_the_clients_model() -> None:
    given = replace(route("a"), timeout_seconds=5, request_timeout_seconds=7, forwards_model=True)
    chain = chain_of(given, RECORDS)
    assert (chain.request_timeout_seconds, chain.forwards_model) == (7.0, True)
    assert [each.candidate.timeout_seconds for each in chain.members] == [5.0]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (route(), "chain fast has no candidates; name at least one provider"),
        (route("a", "nobody"), "provider 'nobody' not found; create it first: pointsman provider create --name NAME"),
        (route("a", fallback="nobody"), "provider 'nobody' not found"),
        (route("lab"), "names lab, a runner"),
        (route("a", fallback="lab"), "names lab, a runner"),
        (route("a", fallback="runner:lab"), "names runner:lab, a runner"),
        (route("a", "Runner:lab"), "a runner"),
        (route("a", "local"), "provider local is a local model, which no strategy chooses; make it the fallback"),
        (route("a", "b", fallback="b"), "provider b is the fallback of chain fast and one of its candidates"),
        (route("a", "a"), "names provider a twice with the same model"),
        (route("a", ("a", "own")), "names provider a twice with the same model"),
        (route("a", "broken"), "DAILY_REQUEST_LIMIT of provider broken"),
        (route("a", fallback="broken"), "DAILY_REQUEST_LIMIT of provider broken"),
    ],
)
def test_a_chain_that_cannot_be_right_is_refused_with_its_reason(bad: Route, words: str) -> None:
    with pytest.raises(Unresolvable) as raised:
        chain_of(bad, RECORDS)
    assert words in raised.value.text


def test_what_does_not_exist_yet_is_told_apart_from_what_cannot_be() -> None:
    with pytest.raises(Unresolvable) as raised:
        chain_of(route("a"), {})
    assert (raised.value.code, raised.value.http_status) == ("FAILED_PRECONDITION", 409)
    with pytest.raises(Unresolvable) as raised:
        chain_of(route("lab"), RECORDS)
    assert (raised.value.code, raised.value.http_status) == ("INVALID_ARGUMENT", 400)


def test_a_fallback_alone_is_a_chain() -> None:
    chain = chain_of(route(fallback="local"), RECORDS)
    assert (chain.members, chain.all_members) == ((), (chain.fallback,))


def direct(timeout: int = 0) -> Route:
    return Route("default", "only", "prod", "m", timeout, 1)


def test_a_direct_route_leads_to_one_candidate_and_settings_for_chains_do_not_count() -> None:
    target = target_of(direct(timeout=9), {"prod": compatible(DAILY_REQUEST_LIMIT="many")})
    assert isinstance(target, Candidate)
    assert (target.route, target.model, target.provider, target.timeout_seconds) == ("only", "m", "prod", 9.0)
    assert target.api_key == Secret(KEY)


def test_a_direct_route_to_a_key_in_a_file_leads_to_where_it_is_read() -> None:
    target = target_of(direct(), {"prod": in_file()})
    assert isinstance(target, Member)
    assert (target.provider, target.key_file) == ("prod", "/run/secrets/prod_api_key")
    assert (target.candidate.model, target.candidate.api_key) == ("m", None)
    with pytest.raises(Unresolvable, match="KEY_FILE of provider prod is not the absolute path"):
        target_of(direct(), {"prod": in_file(config={"KEY_FILE": "keys/prod"})})


def test_a_direct_route_needs_its_provider() -> None:
    with pytest.raises(NoSuchProvider, match="provider 'prod' not found"):
        target_of(direct(), {})


def test_a_chain_in_use_outlives_broken_records_which_are_told() -> None:
    told: list[str] = []
    chain = chain_of(route("broken", "a", "gone", fallback="lab"), RECORDS, left_out=lambda name, _: told.append(name))
    assert [each.provider for each in chain.members] == ["a"]
    assert chain.fallback is None
    assert told == ["broken", "gone", "lab"]


def test_a_chain_in_use_may_live_on_its_fallback_alone_but_not_on_nothing() -> None:
    told: list[str] = []
    chain = chain_of(route("gone", fallback="local"), RECORDS, left_out=lambda name, _: told.append(name))
    assert chain.members == ()
    assert chain.fallback is not None
    with pytest.raises(NoSuchProvider, match="provider 'gone' not found"):
        chain_of(route("gone", "broken"), RECORDS, left_out=lambda name, _: told.append(name))
