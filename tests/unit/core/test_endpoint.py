"""Base URLs, taken apart strictly."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.endpoint import Endpoint, parse_endpoint


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:1234/v1", Endpoint("http", "localhost", 1234, "/v1")),
        ("https://api.openai.com/v1", Endpoint("https", "api.openai.com", 443, "/v1")),
        ("http://host", Endpoint("http", "host", 80, "")),
        ("http://host/", Endpoint("http", "host", 80, "")),
        ("https://host/v1///", Endpoint("https", "host", 443, "/v1")),
        ("  HTTPS://API.Example.COM/V1 ", Endpoint("https", "api.example.com", 443, "/V1")),
        ("http://127.0.0.1:1/a/b", Endpoint("http", "127.0.0.1", 1, "/a/b")),
        ("http://[::1]:65535/v1", Endpoint("http", "::1", 65535, "/v1")),
        ("http://[FD00::1]", Endpoint("http", "fd00::1", 80, "")),
        ("http://host./v1", Endpoint("http", "host.", 80, "/v1")),
        ("http://my_model-server:80", Endpoint("http", "my_model-server", 80, "")),
        ("http://10.0.0.1.example", Endpoint("http", "10.0.0.1.example", 80, "")),
        ("http://1password.com", Endpoint("http", "1password.com", 80, "")),
        ("http://0xfeed.example", Endpoint("http", "0xfeed.example", 80, "")),
        ("http://host/a%20b", Endpoint("http", "host", 80, "/a%20b")),
        ("mock://", Endpoint("mock", "", 0, "")),
        ("mock://anything/at?all#here", Endpoint("mock", "anything", 0, "")),
        ("gguf:///models/small.gguf", Endpoint("gguf", "", 0, "/models/small.gguf")),
    ],
)
def test_a_base_url_is_taken_apart(url: str, expected: Endpoint) -> None:
    assert parse_endpoint(url) == expected


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://host", "host"),
        ("http://host:80", "host"),
        ("http://host:443", "host:443"),
        ("https://host:443", "host"),
        ("https://host:80", "host:80"),
        ("http://[::1]", "[::1]"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_the_authority_is_what_a_host_header_carries(url: str, authority: str) -> None:
    assert parse_endpoint(url).authority == authority


@pytest.mark.guarantee("U2", "U8")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "not a URL"),
        ("localhost:1234/v1", "not a URL"),
        ("http:/host", "not a URL"),
        ("//host", "not a URL"),
        ("ftp://host", "unknown scheme"),
        ("file:///etc/passwd", "unknown scheme"),
        ("http://", "no valid host"),
        ("http:///v1", "no valid host"),
        ("http://-host", "no valid host"),
        ("http://host-", "no valid host"),
        ("http://a..b", "no valid host"),
        ("http://.", "no valid host"),
        ("http://ho%73t", "no valid host"),
        ("http://::1/v1", "no valid host"),
        ("http://[::1", "IPv6"),
        ("http://[]", "IPv6"),
        ("http://[127.0.0.1]", "IPv6"),
        ("http://[1:2:3]", "IPv6"),
        ("http://[::1%eth0]", "IPv6"),
        ("http://[::1]8000", "port"),
        ("http://host:", "port"),
        ("http://host:0", "port"),
        ("http://host:08", "port"),
        ("http://host:65536", "port"),
        ("http://host:99999", "port"),
        ("http://host:123456", "port"),
        ("http://host:http", "port"),
        ("http://user@host", "user name"),
        ("http://user:secret@host", "user name"),
        ("mock://user:secret@host", "user name"),
        ("http://host?a=b", "query"),
        ("http://host/v1#top", "query"),
        ("gguf:///model.gguf?a", "query"),
        ("http://host/../v1", "dot segments"),
        ("http://host/./v1", "dot segments"),
        ("http://host/%2e%2E/v1", "dot segments"),
        ("http://host/a%2f..%2fb", "dot segments"),
        ('http://host/"', "characters"),
        ("http://host/a b", "ASCII"),
        ("http://host\\@evil", "ASCII"),
        ("http://h\u00f6st", "ASCII"),
        ("http://ho\r\nst", "ASCII"),
        ("http://host/\x00", "ASCII"),
        ("gguf://model.gguf", "absolute path"),
        ("gguf://host/model.gguf", "absolute path"),
        ("gguf:///", "absolute path"),
        ("gguf:///a%20model.gguf", "model_path"),
    ],
)
def test_anything_else_is_refused_with_a_reason(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_endpoint(url)


AMBIGUOUS = (
    "2130706433 0x7f000001 0X7F000001 127.1 127.0.1 0177.0.0.1 127.0.0.01 127.0.0.0x1 0x7f.1 256.1.1.1 1.2.3.4.5 "
    "127.0.0.1. 0x example.1 0"
)


@pytest.mark.guarantee("U2")
@pytest.mark.parametrize("host", AMBIGUOUS.split())
def test_an_ambiguous_spelling_of_an_ipv4_address_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        parse_endpoint(f"http://{host}:8000/v1")


def test_a_label_of_63_characters_is_the_longest() -> None:
    assert parse_endpoint(f"http://{'a' * 63}.example").host.startswith("aaa")
    with pytest.raises(ValueError, match="63"):
        parse_endpoint(f"http://{'a' * 64}.example")


def test_a_host_name_of_253_characters_is_the_longest_without_its_last_dot() -> None:
    name = ".".join(["a" * 49] * 5) + "." + "b" * 3
    assert len(name) == 253
    assert parse_endpoint(f"http://{name}").host == name
    assert parse_endpoint(f"http://{name}.").host == name + "."
    with pytest.raises(ValueError, match="253"):
        parse_endpoint(f"http://{name}b")


def test_a_url_of_2048_characters_is_the_longest() -> None:
    url = "http://host/".ljust(2048, "a")
    assert len(parse_endpoint(url).path) == 2048 - len("http://host")
    with pytest.raises(ValueError):
        parse_endpoint(url + "a")


@pytest.mark.guarantee("K1")
@pytest.mark.parametrize(
    "url", ["http://user:sk-canary-77@host", "sk-canary-77", "sk-canary-77://x", "http://h?k=sk-canary-77"]
)
def test_a_refusal_repeats_nothing_of_the_url(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_endpoint(url)
    assert "canary" not in str(caught.value)


@given(st.text(st.sampled_from(string.printable + "\u00f6\ud800"), max_size=60) | st.text(max_size=60))
def test_any_text_is_an_endpoint_or_a_value_error(text: str) -> None:
    for url in (text, f"http://{text}", f"http://{text}/v1", f"http://host/{text}"):
        try:
            endpoint = parse_endpoint(url)
        except ValueError:
            continue
        assert endpoint.scheme in ("http", "https", "mock", "gguf")
        assert endpoint.path.isascii()
        assert " " not in endpoint.path
        assert not endpoint.path.endswith("/") or endpoint.scheme == "gguf"
        if endpoint.scheme in ("http", "https"):
            assert parse_endpoint(f"{endpoint.scheme}://{endpoint.authority}{endpoint.path}") == endpoint
