"""Providers and chains of pointsman.yaml: the records they become, and all that is said of those that cannot."""

import json
import uuid
from pathlib import Path

import pytest

from pointsman.config.gateway_records import FileRecords
from pointsman.config.problems import SettingsError
from pointsman.config.settings import Settings, load_settings
from pointsman.core.context_options import ContextOptions
from pointsman.core.route import Route, RouteCandidate
from tests.support.canary import KEY as CANARY

HOME = {"HOME": "/home/op"}
FILE = "pointsman.yaml"
GROQ = "{name: groq, type: openai_compatible, base_url: 'https://groq.example/v1', model: llama}"
LOCAL = "{name: local, type: local_gguf, model_path: m.gguf}"
CHAIN = "{name: fast, candidates: [{provider: groq}], fallback: local}"


def load(directory: Path, text: str, environ: dict[str, str] | None = None, *, degraded: bool = False) -> Settings:
    (directory / FILE).write_text(text)
    (directory / "m.gguf").write_bytes(b"GGUF...")
    return load_settings(directory / FILE, {**HOME, **(environ or {})}, allow_degraded=degraded)


def records(directory: Path, text: str, environ: dict[str, str] | None = None) -> FileRecords:
    return load(directory, text, environ).records


def told(directory: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(directory, text)
    lines = str(caught.value).replace(f"{directory}/", "").splitlines()
    assert all("; " in line for line in lines), "a line without a next step"
    assert CANARY not in f"{caught.value} {caught.value!r} {caught.value.problems!r}"
    return lines


def file(providers: str = f"{GROQ}, {LOCAL}", routes: str = CHAIN) -> str:
    return f"providers: [{providers}]\nroutes: [{routes}]\n"


def warned(directory: Path, text: str) -> list[str]:
    return [line.replace(f"{directory}/", "") for line in load(directory, text).warnings]


def test_the_published_example_becomes_records(tmp_path: Path) -> None:
    text = """
secrets_dir: /keys
providers:
  - {name: groq, type: openai_compatible, base_url: 'https://groq.example/v1', model: llama, daily_request_limit: 14400,
     requests_per_minute: 30, reset_timezone: Europe/Budapest, error_code_path: error.code,
     error_mappings: [{http_status: 429, error_code: spent, category: rate_limit}]}
  - {name: gemini, type: openai, model: g}
  - {name: local, type: local_gguf, model_path: m.gguf}
routes:
  - {name: fast, kind: chain, candidates: [{provider: groq}, {provider: gemini, model: other}], strategy: least_used,
     fallback: local, request_timeout: 250, context: 'drop-duplicates,most-tokens=60000'}
"""
    settings = load(tmp_path, text)
    groq, gemini, local = settings.records.providers
    assert json.loads(groq.config["ERROR_MAPPINGS"]) == [
        {"http_status": 429, "error_code": "spent", "category": "rate_limit"}
    ]
    assert {key: value for key, value in groq.config.items() if key != "ERROR_MAPPINGS"} == {
        "BASE_URL": "https://groq.example/v1",
        "MODEL": "llama",
        "DAILY_REQUEST_LIMIT": "14400",
        "REQUESTS_PER_MINUTE": "30",
        "RESET_TIMEZONE": "Europe/Budapest",
        "ERROR_CODE_PATH": "error.code",
        "KEY_FILE": "/keys/groq_api_key",
    }
    assert (groq.name, groq.type, groq.account, dict(groq.credentials)) == ("groq", "openai_compatible", "default", {})
    assert groq.from_file
    assert gemini.config == {"MODEL": "g", "KEY_FILE": "/keys/gemini_api_key"}
    assert local.config == {"MODEL_PATH": str(tmp_path / "m.gguf")}
    assert settings.records.routes == (
        Route(
            "default",
            "fast",
            "",
            "",
            version=1,
            kind="chain",
            candidates=(RouteCandidate("groq"), RouteCandidate("gemini", "other")),
            strategy="least_used",
            fallback="local",
            request_timeout_seconds=250,
            context=ContextOptions(drop_duplicates=True, most_tokens=60_000),
            from_file=True,
        ),
    )
    assert settings.warnings == ()
    assert not settings.records.stats_on_data


def test_the_same_name_has_the_same_id_in_every_run(tmp_path: Path) -> None:
    first, second = records(tmp_path, file()).providers, records(tmp_path, file()).providers
    assert [each.id for each in first] == [each.id for each in second]
    assert len({uuid.UUID(each.id) for each in first}) == 2


def test_a_variable_names_another_key_file(tmp_path: Path) -> None:
    groq = records(tmp_path, file(), {"GROQ_API_KEY_FILE": "/k/groq"}).providers[0]
    assert groq.config["KEY_FILE"] == "/k/groq"


def test_a_base_url_of_a_known_type_stands_under_that_types_key(tmp_path: Path) -> None:
    text = file("{name: groq, type: anthropic, base_url: 'https://a.example/v1', model: m}, " + LOCAL)
    assert records(tmp_path, text).providers[0].config["ANTHROPIC_BASE_URL"] == "https://a.example/v1"


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("{type: mock}", "a provider: it has no name; add name"),
        ("{name: 'a b', type: mock}", "a provider: name cannot name a record; use at most 253 of letters"),
        ("{name: 7, type: mock}", "a provider: name is read as a number; put it in quotes"),
        ("{name: p}", "provider p: it has no type; the types are anthropic, nvidia, openai, openai_compatible, local"),
        ("{name: p, type: opnai}", "provider p: unknown type opnai; did you mean openai?"),
        ("{name: p, type: zzz}", "provider p: unknown type zzz; the types are "),
        ("{name: p, type: openai_compatible}", "provider p: it has no base_url; add base_url: http://host:port/v1"),
        ("{name: p, type: openai, base_url: nohost}", "provider p: base_url is not a URL; write it as https://host/v1"),
        (
            "{name: p, type: openai, base_url: 'http://169.254.169.254/v1'}",
            "provider p: base_url is a link-local or metadata address, which no route may lead to; name the model",
        ),
        ("{name: p, type: openai, base_url: 'mock://x'}", "provider p: base_url does not fit its type; mock://"),
        ("{name: p, type: openai, base_url: 'gguf:///x'}", "provider p: base_url names a model file; use type local"),
        ("{name: p, type: openai, model_path: x}", "provider p: model_path belongs to local models; remove it"),
        ("{name: p, type: local_gguf}", "provider p: it names no model file; add model_path"),
        ("{name: p, type: local_gguf, model_path: none.gguf}", "provider p: model_path none.gguf: no such file; fetch"),
        (f"{{name: p, type: local_gguf, model_path: {FILE}}}", f"provider p: model_path {FILE} is no GGUF file; fetch"),
        ("{name: p, type: mock, daily_request_limit: -1}", "provider p: daily_request_limit is negative; write 0 or"),
        ("{name: p, type: mock, requests_per_minute: -1}", "provider p: requests_per_minute is negative; write 0 or"),
        ("{name: p, type: mock, requests_per_minute: 1.5}", "provider p: requests_per_minute is not a plain whole num"),
        ("{name: p, type: mock, daily_request_limit: 1000000001}", "provider p: daily_request_limit is larger than"),
        ("{name: p, type: mock, reset_timezone: Europe/Budapst}", "time zone of this system; did you mean Europe/Bud"),
        ("{name: p, type: mock, reset_timezone: ../etc}", "reset_timezone is no time zone of this system; write an"),
        ("{name: p, type: mock, error_code_path: a..b}", "provider p: error_code_path is no dotted path; write error"),
        ("{name: p, type: mock, error_mappings: x}", "provider p: error_mappings is text, not a list; write"),
        ("{name: p, type: mock, error_mappings: [x]}", "provider p: error_mappings holds text, not a mapping; write"),
        ("{name: p, type: mock, error_mappings: [{category: rate_limit}]}", "a mapping: it has no http_status; write"),
        ("{name: p, type: mock, error_mappings: [{http_status: 429}]}", "a mapping: it has no category; they are rate"),
        (
            "{name: p, type: mock, error_mappings: [{http_status: 99, category: rate_limit}]}",
            "a mapping: http_status is smaller than 100; check it",
        ),
        (
            "{name: p, type: mock, error_mappings: [{http_status: 600, category: rate_limit}]}",
            "a mapping: http_status is larger than 599; check it",
        ),
        (
            "{name: p, type: mock, error_mappings: [{http_status: 400, category: rate_limits}]}",
            "a mapping: unknown category rate_limits; did you mean rate_limit?",
        ),
        (
            "{name: p, type: mock, daily_limits: 3}",
            "provider p: unknown key daily_limits; did you mean daily_reque",
        ),
        ("{name: p, type: mock, rpm: 3}", "provider p: unknown key rpm; did you mean requests_per_minute?"),
        (f"{{name: p, type: openai, api_key: {CANARY}}}", "provider p: a key does not belong into this file; put it"),
        ("x", "providers holds text, not a mapping; write {…}"),
    ],
)
def test_what_is_wrong_with_a_provider_is_told_with_its_line(provider: str, said: str, tmp_path: Path) -> None:
    (line,) = told(tmp_path, f"\nproviders: [{provider}]\n")
    assert line.startswith(f"{FILE}:2: ")
    assert said in line


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("{candidates: [groq]}", "a route: it has no name; add name"),
        ("{name: inference.local, candidates: [groq]}", "route inference.local: its name is reserved; take another"),
        ("{name: Sandbox_System, candidates: [groq]}", "route Sandbox_System: its name is reserved; take another"),
        ("{name: r}", "route r: it has no candidates; list its providers in candidates"),
        ("{name: r, candidates: []}", "route r: it has no candidates; list"),
        ("{name: r, candidates: groq}", "route r: candidates is text, not a list; write"),
        ("{name: r, candidates: [grok]}", "route r: there is no provider grok in this file; did you mean groq?"),
        ("{name: r, candidates: [zzz]}", "route r: there is no provider zzz in this file; add it to providers"),
        ("{name: r, candidates: [{model: m}]}", "route r: a candidate: it names no provider; add provider: NAME"),
        ("{name: r, candidates: [{providr: groq}]}", "a candidate: unknown key providr; did you mean provider?"),
        ("{name: r, candidates: [[groq]]}", "route r: has a list where a candidate belongs; write"),
        ("{name: r, candidates: [groq, groq]}", "route r: lists groq twice with the same model; keep one"),
        ("{name: r, candidates: [{runner: lap}]}", "route r: has a runner in a chain; chains hold providers"),
        ("{name: r, candidates: ['runner:lap']}", "route r: has a runner in a chain; chains hold providers"),
        ("{name: r, candidates: [groq], fallback: 'runner:lap'}", "route r: has a runner in a chain; chains hold"),
        ("{name: r, candidates: [groq], fallback: groq}", "route r: fallback is one of its candidates too; keep it"),
        ("{name: r, candidates: [groq], fallback: loca}", "there is no provider loca in this file; did you mean loc"),
        ("{name: r, candidates: [bare]}", "route r: provider bare has no model, and the route gives none; add model"),
        ("{name: r, kind: runner}", "route r: this version does not know routes to runners yet; remove it"),
        ("{name: r, kind: direct}", "route r: a direct route is not made in a file; use 'pointsman route create'"),
        ("{name: r, kind: chian}", "route r: unknown kind chian; write kind: chain"),
        ("{name: r, candidates: [groq], request_timeout: 86401}", "route r: request_timeout is larger than 86400"),
        ("{name: r, candidates: [groq], context: less}", "route r: context is not understood; 'less' is none of its"),
        ("{name: r, candidates: [groq], strategi: weighted}", "route r: unknown key strategi; did you mean strategy?"),
    ],
)
def test_what_is_wrong_with_a_route_is_told_with_its_line(route: str, said: str, tmp_path: Path) -> None:
    bare = "{name: bare, type: openai}"
    lines = [line for line in told(tmp_path, file(f"{GROQ}, {LOCAL}, {bare}", route)) if f"{FILE}:2: " in line]
    assert any(said in line for line in lines), lines


def test_names_are_unique_whatever_their_case(tmp_path: Path) -> None:
    text = f"providers:\n- {GROQ}\n- {GROQ.replace('groq', 'GROQ')}\nroutes:\n- {{name: a, candidates: [groq]}}\n"
    text += "- {name: A, candidates: [groq]}\n"
    assert told(tmp_path, text) == [
        f"{FILE}:3: provider GROQ: another provider has this name, in line 2; "
        "give each a name of its own; case does not count",
        f"{FILE}:6: route A: another route has this name, in line 5; give each a name of its own; case does not count",
    ]


def test_everything_that_is_wrong_is_told_at_once_settings_and_records(tmp_path: Path) -> None:
    text = "listen: {data: x}\nproviders:\n- {name: a, type: x1}\n- {name: b, type: mock, rpn: 1}\n"
    text += "routes:\n- {name: c}\n"
    assert [int(line.split(":")[1]) for line in told(tmp_path, text)] == [1, 3, 4, 6]


def test_a_route_says_nothing_of_a_provider_that_is_broken_itself(tmp_path: Path) -> None:
    (line,) = told(tmp_path, file("{name: groq, type: openai, rpm: 1}, " + LOCAL))
    assert "unknown key rpm" in line


def test_a_missing_model_file_is_a_warning_if_that_is_allowed(tmp_path: Path) -> None:
    text = file(f"{GROQ}, {LOCAL.replace('m.gguf', 'none.gguf')}")
    (warning,) = load(tmp_path, text, degraded=True).warnings
    assert "provider local: model_path " in warning
    assert "no such file" in told(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (file(routes="{name: r, candidates: [groq]}"), "route r: it has no fallback: when all providers fail, so does"),
        (
            file(routes="{name: r, candidates: [groq], fallback: local, strategy: wieghted}"),
            "route r: unknown strategy wieghted, so that in_order is used; did you mean weighted?",
        ),
        (
            file(routes="{name: r, candidates: [groq], fallback: local, strategy: weighted}"),
            "route r: all its providers have daily_request_limit 0, so that weighted gives them nothing",
        ),
        (
            file("{name: groq, type: openai_compatible, base_url: 'http://127.0.0.1:1/v1', model: m}, " + LOCAL),
            "provider groq: there is no /run/secrets/groq_api_key, so that it is asked without a key; add api_key",
        ),
        (
            file(
                "{name: groq, type: mock, error_mappings: [{http_status: 429, category: rate_limit}, "
                "{http_status: 429, category: auth_error}]}, " + LOCAL
            ),
            "a mapping: it is never used: line 1 has the same status and code; remove it",
        ),
        (file() + "default_route: fats\n", "default_route fats is no route of this file; did you mean fast?"),
        (file() + "default_route: zzz\n", "default_route zzz is no route of this file; make it with 'pointsman route"),
    ],
)
def test_what_deserves_a_word_is_a_warning(text: str, said: str, tmp_path: Path) -> None:
    lines = warned(tmp_path, text)
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("in_order", "in_order"),
        ("ChainOfResponsibility", "in_order"),
        ("weighted", "weighted"),
        ("WeightedRoundRobin", "weighted"),
        ("LeastUsed", "least_used"),
        ("leastused", "least_used"),
        ("nonsense", "in_order"),
    ],
)
def test_both_spellings_of_a_strategy_are_known(written: str, meant: str, tmp_path: Path) -> None:
    route = f"{{name: r, candidates: [groq], fallback: local, strategy: {written}}}"
    assert records(tmp_path, file(routes=route)).routes[0].strategy == meant


def test_a_server_that_wants_no_key_says_so(tmp_path: Path) -> None:
    (groq, _) = records(tmp_path, file(GROQ.replace("}", ", api_key: none}") + ", " + LOCAL)).providers
    assert "KEY_FILE" not in groq.config
    assert [secret.reveal() for secret in groq.credentials.values()] == ["none"]


def test_a_local_server_in_clear_text_with_a_key_file_is_asked_with_the_key(tmp_path: Path) -> None:
    (tmp_path / "groq_api_key").write_text("k")
    text = file("{name: groq, type: openai_compatible, base_url: 'http://127.0.0.1:1/v1', model: m}, " + LOCAL)
    groq = records(tmp_path, text + f"secrets_dir: {tmp_path}\n").providers[0]
    assert groq.config["KEY_FILE"] == str(tmp_path / "groq_api_key")


@pytest.mark.parametrize("key", ["providers", "routes"])
def test_lists_of_records_are_lists_of_a_file(key: str, tmp_path: Path) -> None:
    (line,) = told(tmp_path, f"{key}: x")
    assert line == f"{FILE}:1: {key} is text, not a list; write {key}: [{{…}}]"
    with pytest.raises(SettingsError, match="records stand in a file"):
        load(tmp_path, "", {f"POINTSMAN_{key.upper()}": "x"})
    assert load(tmp_path, f"{key}:\n").records == FileRecords()
