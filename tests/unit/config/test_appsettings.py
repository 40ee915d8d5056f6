"""InferRouter's appsettings.json as it is: its spellings, its two shapes, and what is said of mistakes in it."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.config.appsettings import read_appsettings
from pointsman.config.problems import SettingsError
from pointsman.config.settings import Settings, load_settings
from pointsman.core.route import RouteCandidate
from pointsman.routing.members import member_of
from pointsman.routing.rewrite import base_path

HOME = {"HOME": "/home/op"}
FILE = "appsettings.json"
SHIPPED = """{
  // what every ASP.NET program has
  "Logging": { "LogLevel": { "Default": "Information", }, },
  "AllowedHosts": "*",
  /* two
     lines */
  "InferRouter": {
    "OperationLogPath": "/var/log/inferrouter", "RoutingStrategy": "LeastUsed",
    "HideModels": true,
\t"Providers": [
      { "Name": "Groq", "Type": "OpenAiCompatible", "BaseUrl": "https://groq.example/openai/v1", "Model": "llama",
        "DailyRequestLimit": 14400, "RequestsPerMinute": 30, "ErrorCodePath": "error.code",
        "ErrorMappings": [ { "HttpStatus": 429, "ErrorCode": "spent // really", "InternalCategory": "RateLimit" },
                           { "HttpStatus": 404, "InternalCategory": "ModelUnavailable" } ] },
      { "Name": "Gemini", "Type": "openai_compatible", "BaseUrl": "https://gemini.example/v1/", "Model": "g", },
    ],
    "FinalFallback": { "Name": "Local", "Type": "LocalGguf", "ModelPath": "m.gguf" }
  }
}
"""


def load(directory: Path, text: str) -> Settings:
    (directory / FILE).write_text(text)
    (directory / "m.gguf").write_bytes(b"GGUF...")
    return load_settings(directory / FILE, HOME)


def told(directory: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(directory, text)
    return str(caught.value).replace(f"{directory}/", "").splitlines()


def warned(directory: Path, text: str) -> list[str]:
    return [line.replace(f"{directory}/", "") for line in load(directory, text).warnings]


def test_the_file_as_it_is_shipped_becomes_one_chain_that_is_the_default(tmp_path: Path) -> None:
    settings = load(tmp_path, SHIPPED)
    (route,) = settings.records.routes
    groq, gemini, local = settings.records.providers
    assert (route.name, route.kind, route.strategy, route.fallback) == ("default", "chain", "least_used", "Local")
    assert route.candidates == (RouteCandidate("Groq"), RouteCandidate("Gemini"))
    assert settings.default_route == "default"
    assert settings.operation_log.dir == Path("/var/log/inferrouter")
    assert settings.records.stats_on_data
    assert not route.forwards_model
    assert json.loads(groq.config["ERROR_MAPPINGS"]) == [
        {"http_status": 429, "error_code": "spent // really", "category": "rate_limit"},
        {"http_status": 404, "error_code": "", "category": "model_unavailable"},
    ]
    assert groq.config["DAILY_REQUEST_LIMIT"] == "14400"
    assert groq.config["KEY_FILE"] == "/run/secrets/Groq_api_key"
    assert gemini.type == "openai_compatible"
    assert local.config == {"MODEL_PATH": str(tmp_path / "m.gguf")}
    assert settings.warnings == ()


def _section() -> str:
    return json.dumps(json.loads(_PLAIN)["InferRouter"])


_PLAIN = json.dumps(
    {
        "InferRouter": {
            "Providers": [{"Name": "a", "BaseUrl": "https://a.example/v1"}],
            "FinalFallback": {"Name": "l", "Type": "local_gguf", "ModelPath": "m.gguf"},
        }
    }
)


@pytest.mark.parametrize("prefix", ["", "\ufeff"])
def test_the_section_may_be_left_out_and_a_byte_order_mark_does_no_harm(prefix: str, tmp_path: Path) -> None:
    assert load(tmp_path, prefix + _section()).records == load(tmp_path, prefix + _PLAIN).records
    assert load(tmp_path, _PLAIN).records.providers[0].type == "openai_compatible"


@pytest.mark.parametrize(("text", "forwards"), [("true", False), ("false", True), ('"True"', False), ("null", True)])
def test_models_are_hidden_or_forwarded_as_the_file_says(text: str, forwards: bool, tmp_path: Path) -> None:
    section = _section().replace('"Providers"', f'"HideModels": {text}, "Providers"')
    if not forwards:
        section = section.replace('"BaseUrl"', '"Model": "m", "BaseUrl"')
    (route,) = load(tmp_path, section).records.routes
    assert route.forwards_model is forwards


def test_a_base_url_is_followed_by_chat_completions_at_once(tmp_path: Path) -> None:
    text = SHIPPED.replace("https://gemini.example/v1/", "https://models.example")
    groq, gemini = (member_of(each, "") for each in load(tmp_path, text).records.providers[:2])
    assert base_path(groq.candidate).join("/v1/chat/completions") == "/openai/v1/chat/completions"
    assert base_path(gemini.candidate).join("/v1/chat/completions") == "/chat/completions"


def test_hidden_models_need_a_model_of_each_provider(tmp_path: Path) -> None:
    section = _section().replace('"Providers"', '"HideModels": true, "Providers"')
    assert "provider a has no Model, and the route gives none; add Model to the provider" in told(tmp_path, section)[0]


def test_keys_are_known_in_any_case(tmp_path: Path) -> None:
    text = _section().replace("Providers", "providers").replace("BaseUrl", "baseURL").replace("Name", "NAME")
    assert load(tmp_path, text).records == load(tmp_path, _section()).records


def test_the_local_model_may_be_the_last_provider(tmp_path: Path) -> None:
    providers = [
        {"Name": "a", "BaseUrl": "https://a.example/v1"},
        {"Name": "l", "Type": "LocalGguf", "ModelPath": "m.gguf"},
    ]
    settings = load(tmp_path, json.dumps({"Providers": providers}))
    assert settings.records.routes[0].candidates == (RouteCandidate("a"),)
    assert settings.records.routes[0].fallback == "l"
    assert settings.warnings == ()
    assert "stands before other Providers" in warned(tmp_path, json.dumps({"Providers": providers[::-1]}))[0]
    alone = load(tmp_path, json.dumps({"Providers": providers[1:]})).records.routes[0]
    assert (alone.candidates, alone.fallback) == ((), "l")


def test_a_final_fallback_may_have_no_name_or_that_of_a_provider(tmp_path: Path) -> None:
    nameless = load(tmp_path, _section().replace('"Name": "l", ', ""))
    assert nameless.records.routes[0].fallback == "local"
    twice = load(tmp_path, _section().replace('"Name": "l"', '"Name": "A"'))
    assert twice.records.routes[0].fallback == "A-fallback"
    assert "FinalFallback has the name of a provider, so that it is called A-fallback here; " in twice.warnings[0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"HideModels"',
            '"HideModel"',
            ":9: unknown key HideModel in InferRouter is not used; did you mean HideModels?",
        ),
        (
            '"BaseUrl": "https://groq',
            '"Url": "", "BaseUrl": "https://groq',
            ":11: unknown key Url in a provider is",
        ),
        ('"LeastUsed"', '"Fastest"', ":8: route default: unknown RoutingStrategy Fastest, so that in_order is used"),
        (
            "FinalFallback",
            "Fallback",
            ":17: unknown key Fallback in InferRouter is not used; did you mean FinalFallback",
        ),
    ],
)
def test_what_is_not_understood_is_a_warning(old: str, new: str, said: str, tmp_path: Path) -> None:
    lines = warned(tmp_path, SHIPPED.replace(old, new, 1))
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("14400", "-1", ":12: provider Groq: DailyRequestLimit is negative; write 0 or more"),
        ('"Gemini"', '"GROQ"', ":15: provider GROQ: another provider has this name, in line 11; give each"),
        ('"Gemini"', '""', ":15: a provider: it has no name; add Name"),
        ('"openai_compatible"', '"Smoke"', ":15: provider Gemini: unknown Type smoke; the types are"),
        (
            '"InternalCategory": "RateLimit"',
            '"Category": "RateLimit"',
            ":13: provider Groq: a mapping: it has no InternalCat",
        ),
        ('"RateLimit"', '"RateLimits"', ":13: provider Groq: a mapping: unknown InternalCategory rate_limits; did you"),
        ("m.gguf", "none.gguf", ":17: provider Local: ModelPath none.gguf: no such file; fetch the model"),
        ('"BaseUrl": "https://gemini.example/v1/", ', "", ":15: provider Gemini: it has no BaseUrl; add BaseUrl"),
        ("true", '"maybe"', ":9: HideModels is neither true nor false; write true or false"),
        ('"Providers": [', '"Providers": [3, ', ":10: Providers holds a number, not a mapping; write"),
        ('"Providers": [', '"Providers": ]', ": is not valid JSON: "),
        ('"OperationLogPath"', '"HideModels": true, "OperationLogPath"', ":9: gives HideModels twice"),
        ('"OperationLogPath"', '"hidemodels": true, "OperationLogPath"', ":9: HideModels is given twice; keep one"),
    ],
)
def test_what_is_wrong_is_told_in_the_files_own_words(old: str, new: str, said: str, tmp_path: Path) -> None:
    lines = told(tmp_path, SHIPPED.replace(old, new, 1))
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is no JSON object"),
        ("[]", "the file is no JSON object"),
        ("{}", "there are no Providers; list at least one"),
        ('{"InferRouter": 3}', "InferRouter is a number, not an object"),
        ('{"Providers": {}}', "Providers is a mapping, not an array"),
        ('{"Providers": [], "FinalFallback": {"ModelPath": "m.gguf", "Type": "LocalGguf"}}', "there are no Providers"),
        ('{"Providers": [{"Name": "a", "Type": "mock"}], "FinalFallback": 3}', "FinalFallback is a number"),
        ('{"Providers": [{"Name": "a", "Type": "mock"}], "OperationLogPath": 3}', "OperationLogPath is a number"),
    ],
)
def test_a_file_of_another_shape_is_refused(text: str, said: str, tmp_path: Path) -> None:
    lines = told(tmp_path, text)
    assert any(said in line for line in lines), lines


_WORDS = '"Providers" "InferRouter" "Name" "Type" "FinalFallback" "LocalGguf" "ErrorMappings" "a" null true // /* */'
_PIECES = st.sampled_from(
    [*'{}[]:,/*"\\\n\t 3-&#!|%@`\x00\ufeff', *_WORDS.split(), '{"Providers":[{"Name":"a"}]}'],
)


@given(st.one_of(st.text(max_size=80), st.lists(_PIECES, max_size=40).map("".join)))
def test_any_text_is_read_or_is_told_to_be_wrong(text: str) -> None:
    found = read_appsettings(text)
    assert found.problems or found.records


_KEYS = (
    "InferRouter Providers FinalFallback HideModels RoutingStrategy OperationLogPath Name Type BaseUrl ModelPath "
    "ErrorMappings HttpStatus InternalCategory DailyRequestLimit"
)
_LEAVES = st.sampled_from(["", "a", "LocalGguf", "RateLimit", "http://h/v1", None, True, -1, 0, 429, 1.5])
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS.split()), inner, max_size=5),
    max_leaves=25,
)


@given(_VALUES)
def test_any_json_gives_settings_or_the_one_error(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.getbasetemp() / FILE
    path.write_text(json.dumps(value))
    with contextlib.suppress(SettingsError):
        load_settings(path, HOME)


def test_the_warning_of_a_server_that_is_asked_without_a_key_can_be_followed(tmp_path: Path) -> None:
    text = SHIPPED.replace("https://gemini.example/v1/", "http://127.0.0.1:11434/v1")
    (warning,) = warned(tmp_path, text)
    assert warning.endswith("so that it is asked without a key; add ApiKey: none if that is meant")
    assert warned(tmp_path, text.replace('"Model": "g"', '"Model": "g", "ApiKey": "none"')) == []
