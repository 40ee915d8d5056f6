"""`pointsman sandbox routes check`: what it prints, and with which status it ends."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.cli.main import cli
from pointsman.config.yaml_positions import LARGEST_TEXT

CANARY = "sk-canary-81aa20"
GOOD = """\
routes:
  - endpoint: https://models.example:8443/private/v1
    model: big
    protocols: [openai_chat_completions, model_discovery]
    api_key_env: SOME_KEY
    timeout: 90.5
  - route: sandbox-system
    endpoint: mock://system
    model: s
    protocols: [openai_chat_completions]
"""
BAD = """\
routes:
  - endpoint: https://models.example/v1
    model: big
    protocols: [openai_chat_completion]
    api_key_env: NOT_SET_KEY
"""
ENVIRON = {"SOME_KEY": CANARY, "NOT_SET_KEY": None}


def check(*arguments: str, stdin: bytes = b"") -> Result:
    result = CliRunner().invoke(cli, ["sandbox", "routes", "check", *arguments], env=ENVIRON, input=stdin)
    assert CANARY not in result.output
    return result


@pytest.fixture
def good(tmp_path: Path) -> str:
    return written(tmp_path / "good.yaml", GOOD)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    return written(tmp_path / "bad.yaml", BAD)


def written(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_a_good_file_is_shown_as_a_table_of_its_routes(good: str) -> None:
    result = check(good)
    assert result.exit_code == 0
    first, head, *rows = result.stdout.splitlines()
    assert first == f"{good}: ok"
    assert head.split() == ["LINE", "ROUTE", "ENDPOINT", "MODEL", "DIALECTS", "KEY", "TIMEOUT"]
    dialects = "openai_chat_completions,model_discovery"
    assert [row.split() for row in rows] == [
        [
            "2",
            "inference.local",
            "https://models.example:8443",
            "big",
            dialects,
            "api_key_env",
            "SOME_KEY",
            "90.5",
            "s",
        ],
        ["7", "sandbox-system", "mock://system", "s", "openai_chat_completions", "-", "default"],
    ]


def test_every_problem_is_told_with_its_line_and_next_step_and_without_a_table(bad: str) -> None:
    result = check(bad)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{bad}:4: unknown protocol openai_chat_completion; did you mean openai_chat_completions?",
        f"{bad}:5: the environment variable NOT_SET_KEY named by api_key_env is not set; "
        "export it where pointsman is started",
        f"{bad}: 2 problems",
    ]


def test_a_warning_is_shown_and_is_no_failure(tmp_path: Path) -> None:
    file = written(tmp_path / "routes.yaml", GOOD.replace("model_discovery", "aws_bedrock_invoke"))
    result = check(file)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"warning: {file}:4: protocol aws_bedrock_invoke is kept")


def test_the_value_of_a_key_in_the_file_is_never_shown(tmp_path: Path) -> None:
    file = written(tmp_path / "routes.yaml", GOOD.replace("api_key_env: SOME_KEY", f"api_key: {CANARY}"))
    assert "api_key in this file" in check(file).stdout
    assert json.loads(check("-o", "json", file).stdout)["files"][0]["routes"][0]["key"] == "api_key in this file"


def test_several_files_are_all_checked_and_one_bad_one_decides(good: str, bad: str) -> None:
    result = check(bad, good)
    assert result.exit_code == 1
    assert f"{bad}: 2 problems" in result.stdout
    assert f"{good}: ok" in result.stdout


def test_json_says_the_same_in_fields(good: str, bad: str) -> None:
    result = check("-o", "json", good, bad)
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["ok"] is False
    first, second = document["files"]
    assert first["ok"] is True
    assert first["routes"][0] == {
        "line": 2,
        "route": "inference.local",
        "endpoint": "https://models.example:8443",
        "model": "big",
        "dialects": ["openai_chat_completions", "model_discovery"],
        "key": "api_key_env SOME_KEY",
        "timeout_seconds": 90.5,
    }
    assert second["file"] == bad
    assert second["problems"][1] == {
        "line": 5,
        "field": "api_key_env",
        "reason": "the environment variable NOT_SET_KEY named by api_key_env is not set",
        "next_step": "export it where pointsman is started",
    }


def test_a_dash_reads_standard_input() -> None:
    assert check("-", stdin=GOOD.encode()).stdout.startswith("<stdin>: ok\n")
    assert check("-", stdin=BAD.encode()).stdout.startswith("<stdin>:4: unknown protocol")


@pytest.mark.parametrize(("size", "status"), [(LARGEST_TEXT, 0), (LARGEST_TEXT + 1, 1)])
def test_standard_input_has_the_same_bound_as_a_file(size: int, status: int) -> None:
    assert check("-", stdin=GOOD.encode() + b"#" * (size - len(GOOD))).exit_code == status


def test_a_file_without_routes_says_what_that_means(tmp_path: Path) -> None:
    result = check(written(tmp_path / "routes.yaml", "routes: []\n"))
    assert result.exit_code == 0
    assert "every request is answered 503" in result.stdout


def test_a_missing_file_is_a_problem_and_no_file_at_all_a_usage_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "absent.yaml")
    assert check(missing).exit_code == 1
    assert check(missing).stdout.startswith(f"{missing}: no such file; check the path\n")
    assert check().exit_code == 2
    assert check("-o", "xml", missing).exit_code == 2
