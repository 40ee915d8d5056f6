"""The doctor's pure parts: what a client reads, what its words mean, what would mend it."""

from dataclasses import replace

import pytest

from pointsman.sandbox.doctor.agents import config_paths, judge_agent
from pointsman.sandbox.doctor.client import (
    Bypass,
    Client,
    Kind,
    Situation,
    bypass,
    leads_to,
    no_proxy_covers,
    reads_environment_proxy,
)
from pointsman.sandbox.doctor.door_facts import CaFile, is_loopback
from pointsman.sandbox.doctor.environment_findings import seems_inside
from pointsman.sandbox.doctor.mend import NODE_TOO_OLD, Mend, effective, export, lasting, mend_for
from pointsman.sandbox.doctor.reading import Finished, Outcome, Reading, read_output, scrubbed

DOOR = "http://127.0.0.1:3128"
LED = {"HTTPS_PROXY": DOOR, "https_proxy": DOOR, "NO_PROXY": "127.0.0.1,localhost,::1"}
SITUATION = Situation(LED, DOOR, "/ca/pointsman-ca.pem", "/ca/ca-bundle.pem")
NODE = Client(Kind.NODE, "/usr/bin/node", "24.1.0")
OLD_NODE = replace(NODE, version="20.20.2")
AIOHTTP = Client(Kind.PYTHON, "/usr/bin/python3", "3.12", "aiohttp")
JAVA = Client(Kind.JAVA, "/usr/bin/java", "17.0.1")
WGET = Client(Kind.WGET, "/usr/bin/wget", "1.21")
CURL = Client(Kind.CURL, "/usr/bin/curl", "8.1")


@pytest.mark.parametrize("value", ["*", "inference.local", "local", ".local", "*.local", "a, INFERENCE.LOCAL:443"])
def test_exceptions_that_some_client_applies_to_the_door_cover_it(value: str) -> None:
    assert no_proxy_covers(value)


@pytest.mark.parametrize("value", ["", "127.0.0.1,localhost,::1", "nference.local", "x.inference.local", "cal", ","])
def test_other_exceptions_do_not(value: str) -> None:
    assert not no_proxy_covers(value)


@pytest.mark.parametrize(
    ("version", "reads"),
    [("22.20.9", False), ("22.21.0", True), ("23.11.0", False), ("24.0.0", True), ("20.20.2", False), ("", False)],
)
def test_node_reads_proxy_variables_from_the_releases_that_brought_it(version: str, reads: bool) -> None:
    assert reads_environment_proxy(version) is reads


def test_a_proxy_variable_leads_to_the_door_by_host_and_port_not_by_spelling() -> None:
    assert leads_to("127.0.0.1:3128", DOOR)
    assert leads_to("http://localhost:3128/", DOOR)
    assert not leads_to("http://127.0.0.1:3129", DOOR)
    assert not leads_to("http://127.0.0.1:x", DOOR)
    assert not leads_to("", DOOR)


@pytest.mark.parametrize(
    ("client", "change", "why"),
    [
        (CURL, {}, None),
        (WGET, {"HTTPS_PROXY": DOOR, "https_proxy": ""}, Bypass.UNSET),
        (CURL, {"https_proxy": ""}, None),
        (CURL, {"https_proxy": "http://proxy.example:1"}, Bypass.OTHER),
        (CURL, {"no_proxy": "*"}, Bypass.EXEMPT),
        (WGET, {"NO_PROXY": "*"}, None),
        (OLD_NODE, {"NODE_USE_ENV_PROXY": "1"}, Bypass.NO_VARIABLES),
        (NODE, {}, Bypass.NOT_SWITCHED_ON),
        (NODE, {"NODE_USE_ENV_PROXY": "1"}, None),
        (AIOHTTP, {}, Bypass.NOT_SWITCHED_ON),
        (JAVA, {}, Bypass.NO_VARIABLES),
        (JAVA, {"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128"}, None),
        (JAVA, {"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=31280"}, Bypass.NO_VARIABLES),
    ],
)
def test_whether_a_client_uses_the_proxy_is_known_from_what_it_reads(
    client: Client, change: dict[str, str], why: Bypass | None
) -> None:
    assert bypass(client, {**LED, **change}, DOOR, ()) is why


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ("HTTP/1.1 403 Forbidden\nx-pointsman-request-id: 4de-1\n", Outcome.ANSWERED),
        ("HTTP/1.1 200 OK\ncontent-type: text/html\n", Outcome.STRANGER),
        ("curl: (60) SSL certificate problem: unable to get local issuer certificate", Outcome.UNTRUSTED),
        ("ERROR: The certificate of 'inference.local' doesn't have a known issuer.", Outcome.UNTRUSTED),
        ("fatal: server certificate verification failed. CAfile: none CRLfile: none", Outcome.UNTRUSTED),
        ("TypeError fetch failed\nError SELF_SIGNED_CERT_IN_CHAIN self-signed certificate in", Outcome.UNTRUSTED),
        ("TypeError client error: invalid peer certificate: UnknownIssuer", Outcome.UNTRUSTED),
        ("javax.net.ssl.SSLHandshakeException: PKIX path building failed", Outcome.UNTRUSTED),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", Outcome.UNTRUSTED),
        ("ERROR: The certificate of 'inference.local' has expired.", Outcome.EXPIRED),
        ("verify error:num=10:certificate has expired", Outcome.EXPIRED),
        ("curl: (77) error setting certificate file: /nope", Outcome.CA_FILE),
        ("OSError Could not find a suitable TLS CA certificate bundle, invalid path: /n", Outcome.CA_FILE),
        ("curl: (6) Could not resolve host: inference.local", Outcome.BYPASSED),
        ("Error EAI_AGAIN getaddrinfo EAI_AGAIN inference.local", Outcome.BYPASSED),
        ("java.net.UnknownHostException: inference.local", Outcome.BYPASSED),
        ("Connecting to 127.0.0.1:1... failed: Connection refused.", Outcome.PROXY_DOWN),
        ("curl: (5) Could not resolve proxy: nowhere", Outcome.PROXY_DOWN),
        ("curl: (56) CONNECT tunnel failed, response 403", Outcome.CONNECT_REFUSED),
        ("something new", Outcome.FAILED),
        ("", Outcome.FAILED),
    ],
)
def test_the_words_of_many_clients_mean_few_things(output: str, outcome: Outcome) -> None:
    assert read_output(Finished(1, output), None, {}).outcome is outcome


def test_a_refused_connection_of_a_client_that_bypasses_the_proxy_is_not_the_proxys_fault() -> None:
    reading = read_output(Finished(7, "Connection refused"), Bypass.EXEMPT, {})
    assert (reading.outcome, reading.bypass) == (Outcome.BYPASSED, Bypass.EXEMPT)


def test_a_client_that_was_cut_off_timed_out_unless_it_had_its_answer() -> None:
    assert read_output(Finished(-9, "", timed_out=True), None, {}).outcome is Outcome.TIMED_OUT
    answered = Finished(-9, "status 200\nx-pointsman-request-id: a-1", timed_out=True)
    assert read_output(answered, None, {}).outcome is Outcome.ANSWERED


def test_what_a_client_said_is_repeated_without_credentials_and_control_characters() -> None:
    environ = {"MY_TOKEN": "tok-canary-1", "OPENAI_API_KEY": "sk-canary-2", "HARMLESS": "failed"}
    text = scrubbed("failed tok-canary-1 \x1b[2Jsk-canary-2 http://u:pw@h/ " + "x" * 200, environ)
    assert text.startswith("failed *** ")
    assert not {"canary", "pw", "\x1b"} & {word for word in ("canary", "pw", "\x1b") if word in text}
    assert len(text) == 160


def next_mend(client: Client, reading: Reading, environ: dict[str, str] | None = None) -> Mend | None:
    return mend_for(client, reading, SITUATION, LED if environ is None else environ)


def test_node_is_switched_on_or_too_old() -> None:
    on = next_mend(NODE, Reading(Outcome.BYPASSED, bypass=Bypass.NOT_SWITCHED_ON))
    assert on == export(("NODE_USE_ENV_PROXY", "1"))
    old = next_mend(OLD_NODE, Reading(Outcome.BYPASSED, bypass=Bypass.NO_VARIABLES))
    assert old == Mend(NODE_TOO_OLD)
    assert not old.can_be_tried


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (NODE, "export NODE_EXTRA_CA_CERTS=/ca/pointsman-ca.pem"),
        (replace(NODE, kind=Kind.BUN), "export NODE_EXTRA_CA_CERTS=/ca/pointsman-ca.pem"),
        (replace(NODE, kind=Kind.DENO), "export DENO_CERT=/ca/pointsman-ca.pem"),
        (replace(AIOHTTP, library="requests"), "export REQUESTS_CA_BUNDLE=/ca/ca-bundle.pem"),
        (AIOHTTP, "export SSL_CERT_FILE=/ca/ca-bundle.pem"),
    ],
)
def test_trust_is_mended_by_the_variable_that_the_client_reads(client: Client, text: str) -> None:
    mend = next_mend(client, Reading(Outcome.UNTRUSTED))
    assert mend is not None
    assert mend.text == text
    assert mend.is_about_trust
    assert next_mend(client, Reading(Outcome.UNTRUSTED), mend.apply(LED)) is None, "it is no mend a second time"


def test_without_the_authority_on_this_machine_nobody_is_told_to_name_it() -> None:
    mend = mend_for(CURL, Reading(Outcome.UNTRUSTED), Situation(LED, DOOR), LED)
    assert mend is not None
    assert "nowhere to be found" in mend.text
    assert not mend.can_be_tried


def test_a_later_mend_of_the_same_variable_replaces_the_earlier() -> None:
    first, other, second = export(("A", "1")), export(("B", "1")), export(("A", "1 2"))
    assert effective([first, other, second]) == [other, second]


def test_a_mend_for_any_sandbox_names_variables_and_the_usual_port() -> None:
    environ = {"SSL_CERT_FILE": "/ca/ca-bundle.pem"}
    situation = Situation(environ, "http://127.0.0.1:40001", "/ca/pointsman-ca.pem", "/ca/ca-bundle.pem")
    text = lasting("x /ca/ca-bundle.pem /ca/pointsman-ca.pem 127.0.0.1:40001 -Dhttps.proxyPort=40001", situation, 3128)
    assert text == "x $SSL_CERT_FILE /ca/pointsman-ca.pem 127.0.0.1:3128 -Dhttps.proxyPort=3128"


@pytest.mark.parametrize(
    ("environ", "isolated", "inside"),
    [
        ({}, False, False),
        ({"HTTPS_PROXY": "http://127.0.0.1:8888"}, False, False),
        ({"HTTPS_PROXY": "http://127.0.0.1:8888"}, True, True),
        ({"HTTPS_PROXY": "http://proxy.example:8888"}, True, False),
        ({"HTTPS_PROXY": DOOR, "OPENAI_BASE_URL": "https://inference.local/v1"}, False, True),
        ({}, True, False),
    ],
)
def test_two_signs_of_four_make_a_sandbox(environ: dict[str, str], isolated: bool, inside: bool) -> None:
    assert seems_inside(environ, [], isolated=isolated) is inside


def test_a_ca_file_of_ours_is_a_sign_even_while_the_door_is_down() -> None:
    files = [CaFile("SSL_CERT_FILE", "/tmp/pointsman-ca-x/ca-bundle.pem")]
    assert seems_inside({"https_proxy": DOOR}, files, isolated=False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.1.2.3:80", "http://[::1]:9", "http://localhost:3128"])
def test_loopback_is_told_from_the_text_of_a_proxy_url(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize(
    "url", ["", "http://127.0.0.1", "http://10.0.0.1:1", "http://localhost.example:1", "http://x:y"]
)
def test_anything_else_is_not_dialled(url: str) -> None:
    assert not is_loopback(url)


def test_an_agent_that_reads_a_variable_is_judged_by_it() -> None:
    found = ("/usr/bin/claude", "2.1")
    assert judge_agent("claude", found, {"ANTHROPIC_BASE_URL": "https://inference.local/"}, {}, "/").configured
    other = judge_agent("claude", found, {}, {}, "/")
    assert (other.configured, other.mend) == (False, "export ANTHROPIC_BASE_URL=https://inference.local")


@pytest.mark.parametrize("name", ["codex", "opencode", "llm"])
def test_an_agent_that_reads_a_file_is_judged_by_what_the_file_names(name: str) -> None:
    environ = {"HOME": "/home/me"}
    paths = config_paths(name, environ, "/project")
    assert paths
    assert all("{" not in path for path in paths)
    found = ("/usr/bin/x", "1.0")
    good = judge_agent(name, found, environ, {paths[-1]: 'x = "https://inference.local/v1"'}, "/project")
    assert good.configured
    bad = judge_agent(name, found, environ, {paths[-1]: "x = 1"}, "/project")
    assert not bad.configured
    assert bad.mend.startswith(f"in {paths[0]}: ")
    assert "https://inference.local/v1" in bad.mend
