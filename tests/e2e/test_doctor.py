"""`pointsman doctor` as its user runs it: outside, and inside a real sandbox. Needs root, as CI has."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.canary import KEY
from tests.support.processes import POINTSMAN, kept

ROUTES = """
routes:
  - route: inference.local
    endpoint: mock://canned
    model: mock-model
    protocols: [openai_chat_completions, model_discovery]
"""
PATH = f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"


@pytest.fixture
def routes(tmp_path: Path) -> Path:
    path = tmp_path / "routes.yaml"
    path.write_text(ROUTES)
    return path


def doctor(
    *arguments: str,
    before: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
    directory: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    return kept(
        subprocess.run(
            [*before, POINTSMAN, "doctor", *arguments],
            capture_output=True,
            text=True,
            timeout=55,
            env={"PATH": PATH, "HOME": "/nonexistent", "OPENAI_API_KEY": KEY, **(environ or {})},
            check=False,
            cwd=directory,
        )
    )


def inside(routes: Path, *prefix: str) -> tuple[str, ...]:
    return (POINTSMAN, "sandbox", "run", "--inference-routes", str(routes), "--", *prefix)


def test_inside_a_sandbox_the_ordinary_clients_need_nothing(routes: Path) -> None:
    finished = doctor("-o", "json", "curl", "git", "openssl", "urllib", before=inside(routes))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    told = json.loads(finished.stdout)
    assert told["inside"] is True
    assert {each["kind"] for each in told["clients"]} == {"curl", "git", "openssl", "python"}
    assert all(each["uses_door"] and each["trusts_authority"] for each in told["clients"])
    findings = {each["subject"]: each["state"] for each in told["findings"]}
    assert {findings[name] for name in ("door", "route", "certificate", "proxy variables", "CA files")} == {"ok"}


def test_inside_without_any_certificate_variable_the_mend_is_found_and_tried(routes: Path) -> None:
    finished = doctor("curl", before=inside(routes, "env", "-u", "CURL_CA_BUNDLE", "-u", "SSL_CERT_FILE"))
    assert finished.returncode == 1
    pattern = r"curl +[\d.]+ +yes +no +export CURL_CA_BUNDLE=/\S+/ca-bundle\.pem +\(tried: it works\)"
    assert re.search(pattern, finished.stdout), finished.stdout
    assert finished.stdout.rstrip().endswith("to mend: curl")


def test_outside_it_predicts_with_a_throwaway_door_and_looks_at_the_host() -> None:
    finished = doctor("curl", "wget", environ={"HTTPS_PROXY": "http://192.0.2.1:9", "SSL_CERT_DIR": "/etc/ssl/certs"})
    assert finished.returncode == 1
    assert finished.stdout.startswith("outside a sandbox: ")
    assert re.search(r"curl +[\d.]+ +yes +yes +-\n", finished.stdout), finished.stdout
    assert "wget --ca-certificate=$SSL_CERT_FILE …" in finished.stdout
    assert re.search(r"ok +isolation as root ", finished.stdout) or os.geteuid() != 0
    assert finished.stdout.rstrip().endswith("to mend: wget")
    assert KEY not in finished.stdout + finished.stderr
    assert finished.stderr == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes a capability away from root")
def test_root_without_the_capability_to_isolate_has_something_to_mend() -> None:
    lesser = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    finished = doctor("--outside", "curl", before=lesser)
    assert finished.returncode == 1
    assert re.search(r"mend +isolation as root .* give it CAP_SYS_ADMIN ", finished.stdout), finished.stdout
    assert finished.stdout.rstrip().endswith("to mend: isolation as root")


def test_the_hosts_of_a_route_file_are_reached_only_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(
        "routes:\n  - endpoint: http://127.0.0.1:9/v1\n    model: m\n"
        "    protocols: [openai_chat_completions]\n    api_key_env: OPENAI_API_KEY\n"
    )
    finished = doctor("--outside", "--inference-routes", str(file), "-o", "json", "curl")
    assert finished.returncode == 1
    (endpoint,) = json.loads(finished.stdout)["endpoints"]
    assert (endpoint["endpoint"], endpoint["failure"]) == ("http://127.0.0.1:9", "refused")
    assert endpoint["mend"] == "start the model server, or correct the port"
    assert KEY not in finished.stdout
    assert json.loads(doctor("--outside", "-o", "json", "curl").stdout)["endpoints"] == []


def test_no_program_on_the_path_sees_a_key_of_the_route_file_whatever_its_variable_is_called(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(
        "routes:\n  - endpoint: http://127.0.0.1:9/v1\n    model: m\n"
        "    protocols: [openai_chat_completions]\n    api_key_env: PROVIDER_ONE\n"
        "  - endpoint: http://127.0.0.1:9/v1\n    model: m\n"
        "    protocols: [anthropic_messages]\n    api_key_env: PROVIDER_TWO\n"
    )
    bin_directory, record = tmp_path / "bin", tmp_path / "record"
    names = ("curl", "git", "node", "opencode", "python3", "bwrap")
    script = f'env >>{record}\necho "ran=$(basename "$0")" >>{record}\ngrep "core file" /proc/$PPID/limits >>{record}\n'
    spies(bin_directory, f"{script}echo 8.1.2\n", *names)
    environ = {
        "PATH": f"{bin_directory}:{PATH}",
        "PROVIDER_ONE": KEY,
        "PROVIDER_TWO": "short",  # too short to be looked for in values
        "COPY": f"see {KEY}",
        "ORDINARY": "kept",
    }
    doctor("--outside", "--inference-routes", str(file), environ=environ)
    seen = record.read_text()
    assert {f"ran={name}" for name in names if name != "bwrap"} <= set(seen.splitlines())
    assert "ran=bwrap" not in seen, "an entry of PATH may be a directory that an earlier command wrote to"
    limits = [line.split()[4] for line in seen.splitlines() if "core file" in line]
    assert limits
    assert set(limits) == {"0"}, "the doctor itself is closed to them too"
    assert "ORDINARY=kept" in seen
    assert KEY not in seen
    assert "PROVIDER_" not in seen


def test_a_pipe_named_like_a_configuration_file_is_not_waited_for(tmp_path: Path) -> None:
    spies(tmp_path / "bin", "echo 1.2.3\n", "opencode")
    os.mkfifo(tmp_path / "opencode.json")
    finished = doctor("--outside", "opencode", environ={"PATH": f"{tmp_path}/bin:{PATH}"}, directory=tmp_path)
    assert finished.returncode == 1
    assert "1.2.3" in finished.stdout


def test_trials_run_outside_the_directory_that_the_operator_stands_in(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    record = tmp_path / "record"
    spies(tmp_path / "bin", f"pwd >>{record}\necho curl 8.1.2\n", "curl")
    environ = {"PATH": f"{tmp_path}/bin:{PATH}", "TMPDIR": str(tmp_path / "tmp")}
    doctor("--outside", "curl", environ=environ, directory=tmp_path)
    places = record.read_text().split()
    assert len(places) >= 2
    assert not [place for place in places if Path(place).is_relative_to(tmp_path)]


def spies(directory: Path, script: str, *names: str) -> None:
    """Programs that note what they are given."""
    directory.mkdir()
    for name in names:
        path = directory / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)


def test_what_cannot_be_is_said_and_not_guessed(tmp_path: Path) -> None:
    unknown = doctor("--outside", "crul")
    assert unknown.returncode == 1
    assert "not found on this machine; did you mean curl?" in unknown.stdout
    for output in ("text", "json"):
        bad = doctor("--inference-routes", str(tmp_path / "absent.yaml"), "-o", output)
        assert (bad.returncode, bad.stdout) == (1, "")
        assert "no such file" in bad.stderr
    assert doctor("--inside", "--inference-routes", "x").returncode == 2
    assert doctor("--timeout", "0.9").returncode == 2
