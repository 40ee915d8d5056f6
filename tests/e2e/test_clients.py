"""curl, git and pip behind the door, told nothing: what they reach, and how what they may not reach is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import run_sandboxed

MOCK = """
routes:
  - route: inference.local
    endpoint: mock://canned
    model: mock-model
    protocols: [openai_chat_completions, model_discovery]
"""
CHAT = "https://inference.local/v1/chat/completions"
ASK = ("-d", '{"model": "any", "messages": []}')


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def denied(events: Path) -> list[str]:
    """What the log says was refused."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in events.read_text().splitlines()]
    return [str(each["status_detail"]) for each in lines if each["class_uid"] == 4001 and each.get("action_id") == 2]


def sandboxed(tmp_path: Path, events: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    return run_sandboxed(MOCK, tmp_path, argv, None, "--ocsf-log", str(events))


def test_curl_in_a_sandbox_reaches_the_door_and_nothing_else(tmp_path: Path, events: Path) -> None:
    script = f"curl -sS {CHAT} -d '{{}}' && ! curl -sS https://example.com/ && ! curl -sS http://example.org/ -f"
    finished = sandboxed(tmp_path, events, "sh", "-c", script)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["model"] == "mock-model"
    assert "CONNECT tunnel failed, response 403" in finished.stderr
    assert "403" in finished.stderr.splitlines()[-1]
    refused = denied(events)
    assert len(refused) == 2
    assert "example.com" in refused[0]


def test_curl_without_the_proxy_variables_still_comes_to_the_door(tmp_path: Path, events: Path) -> None:
    finished = sandboxed(
        tmp_path,
        events,
        "env",
        "-u",
        "HTTPS_PROXY",
        "-u",
        "https_proxy",
        "-u",
        "ALL_PROXY",
        "-u",
        "all_proxy",
        "curl",
        "-sS",
        CHAT,
        *ASK,
    )
    assert json.loads(finished.stdout)["model"] == "mock-model", finished.stderr


def test_git_trusts_the_door_and_is_told_that_it_is_not_a_repository(tmp_path: Path, events: Path) -> None:
    finished = sandboxed(tmp_path, events, "git", "ls-remote", "https://inference.local/x")
    assert finished.returncode == 128
    assert "The requested URL returned error: 403" in finished.stderr
    assert "SSL" not in finished.stderr
    assert len(denied(events)) == 1


def test_git_clone_is_refused_at_once_and_recorded(tmp_path: Path, events: Path) -> None:
    finished = sandboxed(tmp_path, events, "git", "clone", "https://github.com/git/git", "copy")
    assert finished.returncode == 128
    assert "CONNECT tunnel failed, response 403" in finished.stderr
    assert "github.com" in denied(events)[0]
    assert not (tmp_path / "copy").exists()


def test_pip_is_refused_and_says_so(tmp_path: Path, events: Path) -> None:
    finished = sandboxed(
        tmp_path,
        events,
        sys.executable,
        "-m",
        "pip",
        "download",
        "--retries",
        "0",
        "--no-deps",
        "--index-url",
        "https://packages.example/simple",
        "attrs",
    )
    assert finished.returncode == 1
    assert "No matching distribution found for attrs" in finished.stderr
    assert "packages.example" in denied(events)[0]
