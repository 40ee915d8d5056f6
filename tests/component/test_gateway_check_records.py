"""`pointsman gateway --check` with a file that defines providers and chains: what it shows, and what it never shows."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.canary import KEY as CANARY
from tests.support.processes import POINTSMAN

YAML = """
secrets_dir: {directory}
providers:
  - {{name: groq, type: openai_compatible, base_url: 'https://groq.example/v1', model: llama, daily_request_limit: 5,
     error_mappings: [{{http_status: 429, category: rate_limit}}]}}
  - {{name: nearby, type: openai_compatible, base_url: 'http://127.0.0.1:1/v1', model: tiny, api_key: none}}
routes:
  - {{name: fast, candidates: [{{provider: groq, model: other}}], strategy: least_used, fallback: nearby}}
"""
JSON = '{"Providers": [{"Name": "a", "BaseUrl": "https://a.example/v1"}] // one\n, "FinalFallback": {MODEL}}'


def check(directory: Path, name: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (directory / name).write_text(text)
    command = [POINTSMAN, "gateway", "--config", name, "--check", *options]
    environ = {"PATH": os.environ["PATH"], "HOME": str(directory)}
    return subprocess.run(command, cwd=directory, env=environ, text=True, capture_output=True, timeout=60)


def test_providers_and_chains_are_shown_without_any_key(tmp_path: Path) -> None:
    (tmp_path / "groq_api_key").write_text(CANARY)
    done = check(tmp_path, "p.yaml", YAML.format(directory=tmp_path))
    (tmp_path / "groq_api_key").unlink()  # or the search that ends every run finds what was planted here
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["groq", "openai_compatible", "llama", str(tmp_path / "groq_api_key")] in lines
    assert ["nearby", "openai_compatible", "tiny", "none"] in lines
    assert ["fast", "least_used", "groq=other", "nearby"] in lines
    assert CANARY not in done.stdout + done.stderr


def test_programs_are_shown_every_entry(tmp_path: Path) -> None:
    done = check(tmp_path, "p.yaml", YAML.format(directory=tmp_path), "-o", "json")
    shown = json.loads(done.stdout)
    assert shown["ok"]
    assert shown["providers"][0]["config"]["ERROR_MAPPINGS"] == [
        {"http_status": 429, "error_code": "", "category": "rate_limit"}
    ]
    assert shown["providers"][1]["credentials"] == {"OPENAI_API_KEY": "REDACTED"}
    assert shown["routes"] == [
        {
            "name": "fast",
            "kind": "chain",
            "candidates": [{"provider": "groq", "model": "other"}],
            "strategy": "least_used",
            "fallback": "nearby",
            "request_timeout_seconds": 0,
        }
    ]


@pytest.mark.parametrize("options", [(), ("--allow-degraded",)])
def test_a_local_model_that_is_missing_is_fatal_unless_that_is_allowed(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    model = '"Name": "l", "Type": "LocalGguf", "ModelPath": "none.gguf"'
    done = check(tmp_path, "appsettings.json", JSON.replace("MODEL", model), *options)
    assert done.returncode == (0 if options else 1)
    assert "appsettings.json:2: provider l: ModelPath" in done.stdout
    assert done.stdout.startswith("warning: " if options else "appsettings.json")
