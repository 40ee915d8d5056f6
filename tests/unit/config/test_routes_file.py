"""What a route file's text means, and what is said of one that means nothing."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.config.problems import Problem
from pointsman.config.route_entry import KEYS, LONGEST_NAME, LONGEST_TIMEOUT
from pointsman.config.routes_file import SMALLEST_FILE
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import Endpoint
from pointsman.core.secret import Secret
from tests.unit.config.route_text import CANARY, OPENAI, one, outcome, parse, problem, problems_of, route, text_of

# What is accepted


def test_the_example_of_the_design_is_read() -> None:
    text = """\
        routes:
          - route: inference.local
            endpoint: http://localhost:1234/v1
            model: local-model
            protocols: [openai_chat_completions]
            api_key: lm-studio
            # Or reference an environment variable:
            # api_key_env: OPENAI_API_KEY
        """
    assert parse(textwrap.dedent(text)) == (
        Candidate(
            "inference.local",
            Endpoint("http", "localhost", 1234, "/v1"),
            "local-model",
            ("openai_chat_completions",),
            api_key=Secret("lm-studio"),
        ),
    )


def test_every_key_reaches_the_candidate() -> None:
    candidate = one(
        route="fast",
        endpoint="https://api.openai.com/v1/",
        model='"gpt-4.1"',
        protocols="[ OpenAI_Responses , openai_responses, model_discovery]",
        provider_type="OpenAI",
        api_key=None,
        api_key_env="OPENAI_API_KEY",
        timeout="12.5",
        ca_bundle="ca.pem",
    )
    assert candidate == Candidate(
        "fast",
        Endpoint("https", "api.openai.com", 443, "/v1"),
        "gpt-4.1",
        ("openai_responses", "model_discovery"),
        "openai",
        Secret(CANARY),
        12.5,
        "/etc/pointsman/ca.pem",
    )


def test_router_resolves_routes_from_config_in_the_files_order() -> None:
    text = f"routes:\n{''.join(route(model=name).removeprefix('routes:') for name in ('one', 'two', 'three'))}"
    assert [candidate.model for candidate in parse(text)] == ["one", "two", "three"]


def test_an_empty_list_of_routes_is_valid() -> None:
    assert parse("routes: []\n") == ()


def test_the_smallest_file_that_errors_show_is_valid() -> None:
    assert parse(SMALLEST_FILE)[0].model == "local-model"


@pytest.mark.parametrize(
    ("given_names", "expected"),
    [
        ({}, "inference.local"),
        ({"route": "fast"}, "fast"),
        ({"name": "fast"}, "fast"),
        ({"name": "fast", "route": "fast"}, "fast"),
        ({"route": "sandbox-system"}, "sandbox-system"),
        ({"route": "~"}, "inference.local"),
        ({"name": "' my route '"}, "my route"),
        ({"name": "a" * LONGEST_NAME}, "a" * LONGEST_NAME),
    ],
)
def test_route_and_name_are_both_the_routes_name(given_names: dict[str, str], expected: str) -> None:
    assert one(**given_names).route == expected


@pytest.mark.parametrize(
    ("changes", "protocols"),
    [
        ({"provider_type": "openai"}, OPENAI),
        ({"provider_type": "nvidia"}, OPENAI),
        ({"provider_type": " Anthropic "}, ("anthropic_messages", "model_discovery")),
    ],
)
def test_without_protocols_the_profiles_are_used(changes: dict[str, str], protocols: tuple[str, ...]) -> None:
    assert one(protocols=None, **changes).protocols == protocols


def test_protocols_that_are_given_win_over_the_profiles() -> None:
    assert one(provider_type="openai").protocols == ("openai_chat_completions",)


@pytest.mark.parametrize("name", ["openai", "anthropic", "nvidia", "openai_compatible", "lm-studio", "vllm", "google"])
def test_known_and_unknown_provider_types_are_accepted(name: str) -> None:
    assert one(provider_type=name).provider_type == name


def test_a_protocol_of_openshell_that_is_not_served_is_kept() -> None:
    assert one(protocols="[aws_bedrock_invoke]").protocols == ("aws_bedrock_invoke",)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("1", 1.0), ("0.5", 0.5), ("120", 120.0), (str(LONGEST_TIMEOUT), 86400.0), ("~", 0.0)],
)
def test_a_timeout_is_a_number_of_seconds_and_0_the_default(text: str, seconds: float) -> None:
    assert one(timeout=text).timeout_seconds == seconds
    assert one().timeout_seconds == 0.0


# Local models


def test_a_gguf_endpoint_is_a_local_model_with_its_files_name_and_all_it_serves() -> None:
    (candidate,) = parse("routes: [{endpoint: 'gguf:///models/small.Q4.gguf'}]")
    assert candidate == Candidate(
        "inference.local",
        Endpoint("gguf", "", 0, "/models/small.Q4.gguf"),
        "small.Q4",
        (
            "openai_chat_completions",
            "openai_completions",
            "openai_responses",
            "anthropic_messages",
            "model_discovery",
        ),
        "local_gguf",
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("small.gguf", "/etc/pointsman/small.gguf"),
        ("../m/s.gguf", "/etc/pointsman/../m/s.gguf"),
        ("/m/s.gguf", "/m/s.gguf"),
        ("/m/grüße 1.gguf", "/m/grüße 1.gguf"),
        ("/m/50%.gguf", "/m/50%.gguf"),
    ],
)
def test_a_model_path_starts_at_the_files_directory_and_becomes_an_endpoint(path: str, expected: str) -> None:
    (candidate,) = parse(f"routes: [{{provider_type: local_gguf, model_path: '{path}', model: small}}]")
    assert candidate.endpoint == Endpoint("gguf", "", 0, expected)
    assert candidate.provider_type == "local_gguf"
    assert candidate.model == "small"


def test_a_local_model_takes_fewer_protocols_where_they_are_given() -> None:
    (candidate,) = parse("routes: [{endpoint: 'gguf:///m.gguf', protocols: [openai_responses]}]")
    assert candidate.protocols == ("openai_responses",)


def test_a_local_model_takes_no_key() -> None:
    (candidate,) = parse(f"routes: [{{endpoint: 'gguf:///m.gguf', api_key: {CANARY}}}]")
    assert candidate.api_key is None


@pytest.mark.parametrize(
    ("entry", "reason", "next_step"),
    [
        ("provider_type: local_gguf", "names no model file", "add model_path"),
        ("provider_type: local_gguf, endpoint: 'http://h'", "has a network endpoint", "model_path"),
        ("provider_type: openai, endpoint: 'gguf:///m.gguf'", "is of provider_type local_gguf", "write that"),
        ("model_path: m.gguf, model: m", "belongs to local models", "provider_type: local_gguf"),
        ("model_path: m.gguf, provider_type: local_gguf, endpoint: 'gguf:///m.gguf'", "both given", "keep one"),
        ("provider_type: local_gguf, model_path: 4", "read as a number", "quotes"),
        ('provider_type: local_gguf, model_path: "a\\0b"', "control", "again"),
        ("endpoint: 'gguf://m.gguf'", "absolute path", "gguf:///"),
        ("endpoint: 'gguf:///a%20b.gguf'", "percent-encoded", "model_path"),
        ("endpoint: 'gguf:///m.gguf', protocols: [openai_embeddings]", "does not serve openai_embeddings", "use"),
        ("endpoint: 'gguf:///m.gguf', model: ''", "model is empty", "remove the line"),
    ],
)
def test_a_local_model_that_contradicts_itself_is_told_so(entry: str, reason: str, next_step: str) -> None:
    shown = [text_of(each) for each in problems_of(f"routes: [{{{entry}}}]")]
    assert any(reason in each and next_step in each for each in shown), shown
    assert not any("a route has no key" in each for each in shown) or "'http" in entry or "openai" in entry


def test_the_line_is_the_one_of_the_key() -> None:
    found = problem(route="a", timeout="soon")
    assert found == Problem(
        6 + 1, "timeout is not a plain number of seconds", "write timeout: 120, or 0 for the default", "timeout"
    )
    assert text_of(found) == "f:7: timeout is not a plain number of seconds; write timeout: 120, or 0 for the default"


def test_every_problem_of_every_route_is_reported_at_once_in_the_order_of_the_lines() -> None:
    text = """\
        routes:
          - route: sandbox_system
            endpoint: http://169.254.169.254
            model: 4
            protocols: [nonsense, openai_chat_completion]
            api_key: k
            api_key_env: K
            timeout: soon
            ca_bundle: ca.pem
            colour: red
          - just text
          - endpoint: http://localhost/v1
        route: []
        """
    found = problems_of(textwrap.dedent(text))
    assert [each.line for each in found] == [2, 3, 4, 5, 5, 7, 8, 10, 11, 12, 12, 12, 13]
    assert len({each.field for each in found}) >= 8


def test_a_route_that_is_an_alias_reports_its_problems_once() -> None:
    text = "routes:\n  - &r {endpoint: 'http://h', model: m, protocols: [x-y], api_key: k}\n  - *r\n"
    assert [each.line for each in problems_of(text)] == [2]


def test_shared_settings_may_be_kept_under_an_x_key_and_merged() -> None:
    text = """\
        x-defaults: &defaults
          endpoint: http://localhost:1234/v1
          protocols: [openai_chat_completions]
          api_key_env: OPENAI_API_KEY
        routes:
          - {<<: *defaults, model: a}
          - {<<: *defaults, model: b, endpoint: "http://localhost:1235/v1"}
        """
    candidates = parse(textwrap.dedent(text))
    assert [(each.model, each.endpoint.port) for each in candidates] == [("a", 1234), ("b", 1235)]
    assert {each.api_key for each in candidates} == {Secret(CANARY)}


# The file as a whole


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 0, "the file is empty"),
        ("# nothing\n", 0, "the file is empty"),
        ("~\n", 1, "the file is nothing, not a mapping"),
        ("- a\n", 1, "the file is a list, not a mapping"),
        ("text\n", 1, "the file is text, not a mapping"),
        ("{}\n", 0, "there is no routes list"),
        ("routes:\n", 1, "routes has no value"),
        ("routes: {}\n", 1, "routes is a mapping, not a list"),
        ("\nroutes: none\n", 2, "routes is text, not a list"),
    ],
)
def test_a_file_without_a_list_of_routes_is_answered_with_an_example(text: str, line: int, reason: str) -> None:
    (found,) = problems_of(text)
    assert (found.line, found.reason) == (line, reason)
    assert SMALLEST_FILE in found.next_step
    assert "\n" not in text_of(found)


def test_an_unknown_key_at_the_top_names_routes() -> None:
    first, second = problems_of("route: []\n")
    assert (first.line, first.reason) == (0, "there is no routes list")
    assert (second.line, second.reason, second.next_step) == (1, "unknown key route", "did you mean routes?")
    assert problems_of("routes: []\nversion: 1\n")[0].next_step == "the only key at this level is routes"


def test_load_from_file_invalid_yaml_is_one_line_with_its_place() -> None:
    (found,) = problems_of("routes:\n  - endpoint: [\n")
    assert found.line == 3
    assert found.reason.startswith("is not valid YAML")


def test_a_route_with_a_key_twice_is_refused() -> None:
    (found,) = problems_of(route() + "    model: n\n")
    assert found.reason == "gives model twice, first in line 3"


# Any text


WORDS = st.sampled_from(
    [
        *KEYS,
        "http://h/v1",
        "mock://x",
        "gguf:///m.gguf",
        "openai",
        "local_gguf",
        "mock",
        "openai_responses",
        "4",
        "~",
        "on",
    ]
)
VALUES = st.recursive(
    WORDS | st.text(max_size=6).map(repr) | st.floats().map(str) | st.integers().map(str),
    lambda inner: st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]"),
    max_leaves=4,
)
ENTRIES = st.lists(st.tuples(WORDS, VALUES), max_size=8).map(
    lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + f", api_key: {CANARY}" + "}"
)


@given(
    st.lists(ENTRIES, max_size=3).map(lambda entries: "routes: [" + ", ".join(entries) + "]")
    | st.tuples(st.text(max_size=30), st.text(max_size=30)).map(
        lambda pair: f"{pair[0]}{route(api_key=CANARY)}{pair[1]}"
    )
    | st.text(max_size=100)
)
def test_any_text_gives_candidates_or_a_route_file_error_and_never_the_key(text: str) -> None:
    candidates, told = outcome(text)
    assert CANARY not in told
    for candidate in candidates:
        assert candidate.model
        assert candidate.protocols
        assert candidate.route
        assert 0 <= candidate.timeout_seconds <= LONGEST_TIMEOUT
        assert candidate.api_key is not None or candidate.endpoint.scheme in ("mock", "gguf")


@given(
    st.fixed_dictionaries(
        {
            "model": st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20),
            "key": st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40),
            "timeout": st.floats(0, LONGEST_TIMEOUT).map(lambda seconds: round(seconds, 3)),
        }
    )
)
def test_load_from_file_valid_yaml_round_trip(values: dict[str, str | float]) -> None:
    def quoted(text: object) -> str:
        return "'" + str(text).replace("'", "''") + "'"

    environ = {"SOME_KEY": str(values["key"])}
    text = route(
        model=quoted(values["model"]), api_key=None, api_key_env="SOME_KEY", timeout=f"{values['timeout']:.3f}"
    )
    (candidate,) = parse(text, environ)
    assert candidate.model == values["model"]
    assert candidate.api_key == Secret(str(values["key"]))
    assert candidate.timeout_seconds == values["timeout"]
