"""What variables and files say by themselves, and the names that a typing slip was meant for."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from pointsman.sandbox.authority import CertificateAuthority
from pointsman.sandbox.doctor.client import Situation
from pointsman.sandbox.doctor.diagnose import how_to_find
from pointsman.sandbox.doctor.door_facts import CaFile, DoorFacts, with_absolute_ca_paths
from pointsman.sandbox.doctor.environment_findings import Finding, State, judge_environment
from pointsman.sandbox.doctor.mend import NAME_THE_AUTHORITY
from pointsman.sandbox.environment import AUTHORITY_VARIABLES, BUNDLE_VARIABLES

DOOR = "http://127.0.0.1:3128"
OTHER = "http://127.0.0.1:9"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHOWN = x509.load_pem_x509_certificate(CertificateAuthority(NOW.timestamp).pem)
ANSWERED = DoorFacts("127.0.0.1:3128", certificate=SHOWN, marked=True, http_status=200)
DOWN = DoorFacts("127.0.0.1:3128", "nothing listens there")
ALIEN = "does not hold the door's certificate authority"
EVERY = [CaFile(name, "/old/ca-bundle.pem") for name in BUNDLE_VARIABLES] + [
    CaFile(name, "/old/pointsman-ca.pem", "no such file") for name in AUTHORITY_VARIABLES
]


def findings(situation: Situation, *files: CaFile, door: DoorFacts = ANSWERED) -> dict[str, Finding]:
    return {each.subject: each for each in judge_environment(situation, door, files, None, NOW)}


def test_many_variables_whose_right_value_is_unknown_are_one_line_that_names_both_ways_out() -> None:
    told = findings(Situation({}, DOOR), *EVERY)
    found = told[f"{len(EVERY)} CA variables"]
    assert (found.state, found.mend) == (State.MEND, NAME_THE_AUTHORITY)
    assert "--ca-dir" in found.mend
    bundles, authorities = ", ".join(BUNDLE_VARIABLES), ", ".join(AUTHORITY_VARIABLES)
    assert (
        found.detail == f"/old/ca-bundle.pem: {ALIEN} ({bundles}); /old/pointsman-ca.pem: no such file ({authorities})"
    )
    assert not {*BUNDLE_VARIABLES, *AUTHORITY_VARIABLES, "CA files"} & set(told)


def test_while_the_door_is_down_only_files_that_cannot_be_read_are_wrong() -> None:
    told = findings(Situation({}, DOOR), *EVERY, door=DOWN)
    assert told["CA files"].state is State.NOTE
    assert told["2 CA variables"].detail == "/old/pointsman-ca.pem: no such file (NODE_EXTRA_CA_CERTS, DENO_CERT)"
    assert {each.subject for each in told.values() if each.state is State.MEND} == {
        "door",
        "proxy variables",
        "2 CA variables",
    }


def test_many_variables_are_set_right_by_one_command() -> None:
    files = CaFile("SSL_CERT_FILE", "/old/x"), CaFile("PIP_CERT", "/old/x"), CaFile("DENO_CERT", "/old/y")
    told = findings(Situation({}, DOOR, "/ca/pointsman-ca.pem", "/ca/ca-bundle.pem"), *files)
    mend = "export SSL_CERT_FILE=/ca/ca-bundle.pem PIP_CERT=/ca/ca-bundle.pem DENO_CERT=/ca/pointsman-ca.pem"
    assert told["3 CA variables"].mend == mend


def test_a_single_wrong_variable_is_named_and_the_others_are_counted(tmp_path: Path) -> None:
    path = CertificateAuthority(NOW.timestamp).write(tmp_path, {}).authority
    good = CaFile("SSL_CERT_FILE", str(path), "", x509.load_pem_x509_certificate(path.read_bytes()), 1)
    told = findings(Situation({}, DOOR, str(path)), good, CaFile("PIP_CERT", "/old/x"))
    assert (told["PIP_CERT"].detail, told["PIP_CERT"].mend) == (f"/old/x: {ALIEN}", f"export PIP_CERT={path}")
    assert told["CA files"].detail == "1 variables name the door's authority"


@pytest.mark.parametrize(
    ("environ", "state"),
    [
        ({"HTTPS_PROXY": DOOR, "https_proxy": DOOR}, State.OK),
        ({"HTTPS_PROXY": DOOR}, State.NOTE),
        ({"https_proxy": DOOR, "HTTPS_PROXY": ""}, State.NOTE),
        ({"HTTPS_PROXY": DOOR, "https_proxy": OTHER}, State.MEND),
        ({"HTTPS_PROXY": OTHER}, State.MEND),
        ({}, State.MEND),
    ],
)
def test_one_of_two_proxy_variables_suffices_unless_the_other_leads_elsewhere(
    environ: dict[str, str], state: State
) -> None:
    assert findings(Situation(environ, DOOR))["proxy variables"].state is state


def test_only_certificate_variables_that_are_relative_are_completed() -> None:
    environ = {
        "SSL_CERT_FILE": "ca/ca-bundle.pem",
        "DENO_CERT": "./ca/x.pem",
        "PIP_CERT": "/ca/x",
        "CURL_CA_BUNDLE": "",
        "SSL_CERT_DIR": "certs:/etc/ssl/certs:",
        "PATH": "bin",
    }
    assert with_absolute_ca_paths(environ, "/home/me") == {
        **environ,
        "SSL_CERT_FILE": "/home/me/ca/ca-bundle.pem",
        "DENO_CERT": "/home/me/ca/x.pem",
        "SSL_CERT_DIR": "/home/me/certs:/etc/ssl/certs:",
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("crul", "did you mean curl?"),
        ("antropic", "did you mean anthropic?"),
        ("cluade", "did you mean claude?"),
        ("deno", "install it, or see whether it is on PATH"),
        ("frobnicate", "check the spelling, or whether it is on PATH"),
    ],
)
def test_a_name_that_is_not_found_is_a_slip_or_is_not_installed(name: str, told: str) -> None:
    assert how_to_find(name) == told
