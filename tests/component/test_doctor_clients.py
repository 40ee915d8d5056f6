"""The doctor against real clients in broken environments: the mend it names, and that the mend mends."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman.sandbox.authority import CertificateAuthority
from pointsman.sandbox.doctor.client import Kind
from pointsman.sandbox.doctor.diagnose import Diagnosis, Task, diagnose
from pointsman.sandbox.doctor.environment_findings import Finding, State
from pointsman.sandbox.doctor.examine import Examination
from pointsman.sandbox.doctor.mend import START_AGAIN
from pointsman.sandbox.doctor.reading import Outcome
from pointsman.sandbox.environment import Door as DoorPaths
from pointsman.sandbox.environment import sandbox_environment
from tests.support.door import Door, candidate

DAY = 86_400.0
MODELS = "https://inference.local/v1/models"
PYTHON = os.path.dirname(sys.executable)
COMMANDS = {
    "curl": ["curl", "-sS", "-o", "/dev/null", MODELS],
    "wget": ["wget", "-q", "-O", "/dev/null", MODELS],
    "git": ["git", "ls-remote", "https://inference.local/nothing"],
    "openssl": ["openssl", "s_client", "-proxy", "PROXY", "-connect", "inference.local:443", "-verify_return_error"],
    "urllib": [sys.executable, "-c", f"import urllib.request as r; r.urlopen({MODELS!r})"],
    "openai": [sys.executable, "-c", "import openai; openai.OpenAI(max_retries=0).models.list()"],
}


@dataclass(frozen=True)
class Surroundings:
    """A door, and the environment that leads to it."""

    url: str
    bundle: str
    environ: dict[str, str]


def surroundings(door: Door, directory: Path) -> Surroundings:
    files = door.authority.write(directory, {})
    url = f"http://127.0.0.1:{door.tunnel_address[1]}"
    base = {"PATH": f"{PYTHON}:/usr/bin", "HOME": str(directory)}
    environ = sandbox_environment(base, DoorPaths(url, str(files.authority), str(files.bundle)))
    return Surroundings(url, str(files.bundle), environ)


@pytest.fixture
def open_door() -> Iterator[Door]:
    with Door(candidate("mock://doctor")) as door:
        yield door


@pytest.fixture
def here(open_door: Door, tmp_path: Path) -> Surroundings:
    return surroundings(open_door, tmp_path / "ca")


@pytest.fixture
def wrong_ca(tmp_path: Path) -> str:
    return str(CertificateAuthority(time.time).write(tmp_path / "wrong", {}).authority)


def examined(environ: Mapping[str, str], *only: str, directory: str = "/") -> Diagnosis:
    task = Task(dict(environ), directory, inside=True, only=only, seconds=40)
    return asyncio.run(diagnose(task, lambda done, count: None))


def one(environ: Mapping[str, str], name: str) -> Examination:
    """What was found of this client; of Python, in the interpreter that runs this."""
    found = examined(environ, name).examinations
    return next(each for each in found if each.client.path.startswith(PYTHON) or each.client.kind is not Kind.PYTHON)


def finding(diagnosis: Diagnosis, subject: str) -> Finding:
    return next(each for each in diagnosis.findings if each.subject == subject)


def runs(name: str, here: Surroundings, environ: Mapping[str, str], before: str = "") -> bool:
    """Whether the client itself, in a shell where `before` was typed, comes through."""
    command = [here.url.removeprefix("http://") if word == "PROXY" else word for word in COMMANDS[name]]
    script = f'{before or ":"}\nexec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command],
        env={**environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    # There is no repository behind the door: git's success is that it was told so.
    return "returned error: 403" in done.stderr if name == "git" else done.returncode == 0


@pytest.mark.parametrize("name", ["curl", "git", "openssl", "urllib"])
def test_a_client_in_a_sandboxes_environment_needs_no_mend(here: Surroundings, name: str) -> None:
    found = one(here.environ, name)
    assert (found.is_good, found.uses_door, found.trusts_authority, found.mends) == (True, True, True, ())
    assert runs(name, here, here.environ)


def without(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}


NO_CA = {
    "curl": ("CURL_CA_BUNDLE", ("CURL_CA_BUNDLE", "SSL_CERT_FILE")),
    "git": ("GIT_SSL_CAINFO", ("GIT_SSL_CAINFO",)),
    "openssl": ("SSL_CERT_FILE", ("SSL_CERT_FILE",)),
    "urllib": ("SSL_CERT_FILE", ("SSL_CERT_FILE",)),
}


def expect_mend(here: Surroundings, environ: Mapping[str, str], name: str, text: str) -> Examination:
    """The doctor names exactly this mend, saw it work, and typing it makes the client itself work."""
    assert not runs(name, here, environ)
    found = one(environ, name)
    assert [mend.text for mend in found.mends] == [text]
    assert found.is_proven
    assert not found.is_good
    assert runs(name, here, environ, before=text)
    return found


@pytest.mark.parametrize("name", NO_CA)
def test_without_a_ca_variable_the_one_that_this_client_reads_is_named(here: Surroundings, name: str) -> None:
    variable, absent = NO_CA[name]
    found = expect_mend(here, without(here.environ, *absent), name, f"export {variable}={here.bundle}")
    assert (found.uses_door, found.trusts_authority) == (True, False)
    assert found.first.outcome is Outcome.UNTRUSTED


@pytest.mark.parametrize("name", ["curl", "git", "openssl", "urllib"])
def test_a_variable_that_names_another_authority_is_set_right(here: Surroundings, wrong_ca: str, name: str) -> None:
    variable = NO_CA[name][0]
    expect_mend(here, {**here.environ, variable: wrong_ca}, name, f"export {variable}={here.bundle}")


@pytest.mark.parametrize("name", ["curl", "git"])
def test_a_variable_that_names_no_file_is_set_right(here: Surroundings, name: str) -> None:
    variable = NO_CA[name][0]
    environ = {**here.environ, variable: "/nowhere/ca.pem"}
    found = expect_mend(here, environ, name, f"export {variable}={here.bundle}")
    assert found.first.outcome is Outcome.CA_FILE
    told = finding(examined(environ, name), variable)
    assert (told.state, told.mend) == (State.MEND, f"export {variable}={here.bundle}")
    assert "no such file" in told.detail


def test_curl_that_looks_into_no_file_because_of_a_directory_is_told_to_unset_it(here: Surroundings) -> None:
    environ = {**without(here.environ, "CURL_CA_BUNDLE"), "SSL_CERT_DIR": "/etc/ssl/certs"}
    expect_mend(here, environ, "curl", "unset SSL_CERT_DIR")


def test_wget_is_given_the_option_that_is_its_only_way_to_trust(here: Surroundings) -> None:
    assert not runs("wget", here, here.environ)
    found = one(here.environ, "wget")
    option = found.mends[0].text.removesuffix(" …")
    assert found.mends[0].text == f"wget --ca-certificate={here.bundle} …"
    assert found.is_proven
    assert subprocess.run([*option.split(), *COMMANDS["wget"][1:]], env=here.environ, check=False).returncode == 0


NO_PROXY_MEND = "export NO_PROXY=127.0.0.1,localhost,::1 no_proxy=127.0.0.1,localhost,::1"


@pytest.mark.parametrize(("name", "value"), [("curl", "*"), ("git", "localhost,.local"), ("urllib", "inference.local")])
def test_exceptions_that_cover_the_door_are_taken_back(here: Surroundings, name: str, value: str) -> None:
    environ = {**here.environ, "NO_PROXY": value, "no_proxy": value}
    found = expect_mend(here, environ, name, NO_PROXY_MEND)
    assert (found.uses_door, found.trusts_authority) == (False, True)
    assert finding(examined(environ, name), "proxy exceptions").mend == NO_PROXY_MEND


@pytest.mark.parametrize("name", ["curl", "git", "urllib"])
def test_proxy_variables_that_are_not_set_or_lead_elsewhere_are_set(here: Surroundings, name: str) -> None:
    mend = f"export HTTPS_PROXY={here.url} https_proxy={here.url}"
    some = without(here.environ, "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    expect_mend(here, some, name, mend)
    expect_mend(here, {**some, "HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}, name, mend)


def test_an_sdk_without_base_url_and_key_is_given_both(here: Surroundings) -> None:
    environ = without(here.environ, "OPENAI_BASE_URL", "OPENAI_API_KEY")
    found = one(environ, "openai")
    mends = [mend.text for mend in found.mends]
    key = "unused-the-door-adds-the-real-key"
    assert mends == [f"export OPENAI_API_KEY={key}", "export OPENAI_BASE_URL=https://inference.local/v1"]
    assert found.is_proven
    assert runs("openai", here, environ, before="\n".join(mends))


def test_two_faults_get_two_mends_that_work_together(here: Surroundings) -> None:
    environ = {**without(here.environ, "GIT_SSL_CAINFO"), "NO_PROXY": "*", "no_proxy": "*"}
    found = one(environ, "git")
    assert [mend.text for mend in found.mends] == [NO_PROXY_MEND, f"export GIT_SSL_CAINFO={here.bundle}"]
    assert found.is_proven
    assert runs("git", here, environ, before="\n".join(mend.text for mend in found.mends))
    assert (found.uses_door, found.trusts_authority) == (False, False)


@pytest.mark.parametrize("name", ["curl", "git", "urllib", "openssl"])
def test_an_expired_authority_is_mended_by_starting_again(tmp_path: Path, name: str) -> None:
    door = Door(candidate("mock://doctor"))
    door.authority = CertificateAuthority(lambda: time.time() - 400 * DAY)
    with door:
        diagnosis = examined(surroundings(door, tmp_path / "old").environ, name)
        told = finding(diagnosis, "certificate")
        assert (told.state, told.mend) == (State.MEND, START_AGAIN)
        assert "expired" in told.detail
        assert [mend.text for mend in diagnosis.examinations[0].mends] == [START_AGAIN]
        assert not diagnosis.examinations[0].is_proven
    with Door(candidate("mock://doctor")) as again:
        assert examined(surroundings(again, tmp_path / "new").environ, name).is_good


def test_paths_that_start_where_the_operator_stands_are_good_and_are_told_in_full(
    here: Surroundings, tmp_path: Path
) -> None:
    relative = {
        name: str(Path(value).relative_to(tmp_path)) if value.startswith(f"{tmp_path}/ca/") else value
        for name, value in here.environ.items()
    }
    assert relative["SSL_CERT_FILE"] == "ca/ca-bundle.pem"
    clients = ("curl", "git", "openssl", "urllib")
    told = examined(relative, *clients, directory=str(tmp_path))
    assert told.is_good, told
    assert len({each.client.kind for each in told.examinations}) == len(clients)
    less = examined(without(relative, "GIT_SSL_CAINFO"), "git", directory=str(tmp_path))
    assert [mend.text for mend in less.examinations[0].mends] == [f"export GIT_SSL_CAINFO={here.bundle}"]
    assert less.examinations[0].is_proven
    assert finding(examined(relative, "git", directory="/nowhere"), "16 CA variables").state is State.MEND


def test_the_upper_case_proxy_variable_suffices_but_for_the_client_that_does_not_read_it(here: Surroundings) -> None:
    environ = without(here.environ, *(name for name in here.environ if name.lower().endswith("_proxy")))
    environ["HTTPS_PROXY"] = here.url
    told = examined(environ, "curl", "git", "openssl", "urllib")
    assert told.is_good, told
    note = finding(told, "proxy variables")
    assert (note.state, note.mend) == (State.NOTE, f"export https_proxy={here.url}")
    assert not one(environ, "wget").is_good


def test_a_proxy_that_is_down_is_said_once_and_no_client_is_asked(tmp_path: Path) -> None:
    with Door(candidate("mock://doctor")) as door:
        environ = surroundings(door, tmp_path / "ca").environ
    diagnosis = examined(environ, "curl")
    told = finding(diagnosis, "door")
    assert (told.state, told.mend) == (State.MEND, START_AGAIN)
    assert "nothing listens there" in told.detail
    assert diagnosis.examinations == ()
    assert not diagnosis.is_good


def test_nothing_but_the_doors_proxy_is_ever_asked_for_on_a_machine_with_a_network(
    here: Surroundings, tmp_path: Path
) -> None:
    programs, record = tmp_path / "bin", tmp_path / "record"
    programs.mkdir()
    spy = programs / "curl"
    spy.write_text(f'#!/bin/sh\necho "$https_proxy|$no_proxy|$*" >>{record}\necho curl 8.0.0\n')
    spy.chmod(0o755)
    for change in (
        {"HTTPS_PROXY": "http://192.0.2.1:3128", "https_proxy": "http://192.0.2.1:3128"},
        {"HTTPS_PROXY": "", "https_proxy": ""},
        {"NO_PROXY": "*", "no_proxy": "*"},
    ):
        examined({**here.environ, **change, "PATH": f"{programs}:/usr/bin:/bin"}, "curl")
    asked = [line for line in record.read_text().splitlines() if MODELS in line]
    assert len(asked) == 3
    assert {line.split("|")[0] for line in asked} == {here.url}
    assert {line.split("|")[1] for line in asked} == {"127.0.0.1,localhost,::1"}
