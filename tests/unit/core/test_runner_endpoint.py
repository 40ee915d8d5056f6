"""A runner's endpoint has one spelling, and nothing but the runner's own loopback has any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.runner_endpoint import RunnerEndpoint, parse_runner_endpoint


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:11434/v1", "http://localhost:11434/v1"),
        ("http://localhost:11434/v1/", "http://localhost:11434/v1"),
        ("HTTP://LOCALHOST:011434/v1", "http://localhost:11434/v1"),
        ("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1"),
        ("http://[::1]:65535/v1", "http://[::1]:65535/v1"),
    ],
)
@pytest.mark.guarantee("S1")
def test_what_means_the_same_becomes_the_same(text: str, url: str) -> None:
    assert parse_runner_endpoint(text).url == url


@pytest.mark.parametrize(
    "text",
    [
        "https://localhost:11434/v1",
        "http://localhost/v1",
        "http://localhost:/v1",
        "http://localhost:0/v1",
        "http://localhost:65536/v1",
        "http://localhost:1٢/v1",
        "http://localhost.:11434/v1",
        "http://localhost:11434",
        "http://localhost:11434/",
        "http://localhost:11434/V1",
        "http://localhost:11434/v1//",
        "http://localhost:11434//v1",
        "http://localhost:11434/v1/chat",
        "http://localhost:11434/v1/../v1",
        "http://localhost:11434/%761",
        "http://localhost:11434/v1?",
        "http://localhost:11434/v1?x=1",
        "http://localhost:11434/v1#",
        "http://localhost:11434/v1 ",
        " http://localhost:11434/v1",
        "http://localhost:11434/v1\n",
        "http://localhost:11434\\/v1",
        "http://user@localhost:11434/v1",
        "http://user:password@localhost:11434/v1",
        "http://@localhost:11434/v1",
        "http://127.1:11434/v1",
        "http://127.0.0.2:11434/v1",
        "http://127.000.000.001:11434/v1",
        "http://2130706433:11434/v1",
        "http://0x7f000001:11434/v1",
        "http://0177.0.0.1:11434/v1",
        "http://①②⑦.0.0.1:11434/v1",
        "http://0.0.0.0:11434/v1",
        "http://0:11434/v1",
        "http://[::]:11434/v1",
        "http://[0:0:0:0:0:0:0:1]:11434/v1",
        "http://[::ffff:127.0.0.1]:11434/v1",
        "http://[::ffff:7f00:1]:11434/v1",
        "http://[::1%25lo]:11434/v1",
        "http://::1:11434/v1",
        "http://localhost.localdomain:11434/v1",
        "http://ⓛocalhost:11434/v1",
        "http://192.168.1.2:11434/v1",
        "http://169.254.169.254:80/v1",
        "http://example.com:80/v1",
        "file:///v1",
        "//localhost:11434/v1",
        "localhost:11434/v1",
        "",
        "http://localhost:" + "0" * 9999 + "1/v1",
    ],
)
@pytest.mark.guarantee("S1")
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not of the form|does not name|has a port"):
        parse_runner_endpoint(text)


@given(st.sampled_from(["localhost", "127.0.0.1", "[::1]"]), st.integers(1, 65535))
def test_an_endpoint_reads_its_own_spelling(host: str, port: int) -> None:
    endpoint = RunnerEndpoint(host, port)
    assert parse_runner_endpoint(endpoint.url) == endpoint


@given(st.text(max_size=60))
def test_any_text_is_an_endpoint_or_a_value_error(text: str) -> None:
    try:
        endpoint = parse_runner_endpoint(text)
    except ValueError:
        return
    assert parse_runner_endpoint(endpoint.url) == endpoint
