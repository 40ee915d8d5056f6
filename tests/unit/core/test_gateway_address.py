"""A gateway's address: what is taken, and the next step in what is refused."""

import pytest

from pointsman.core.gateway_address import GatewayAddress, is_loopback, read_gateway_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:8782", GatewayAddress("127.0.0.1", 8782)),
        ("127.0.0.1:8782", GatewayAddress("127.0.0.1", 8782)),
        (" localhost:1/ ", GatewayAddress("localhost", 1)),
        ("http://[::1]:8782", GatewayAddress("::1", 8782)),
        ("[::1]:8782", GatewayAddress("::1", 8782)),
        ("https://gateway.example:8782/", GatewayAddress("gateway.example", 8782, tls=True)),
        ("https://10.0.0.1:443", GatewayAddress("10.0.0.1", 443, tls=True)),
    ],
)
def test_an_address_is_a_url_or_host_and_port_on_this_machine(text: str, expected: GatewayAddress) -> None:
    assert read_gateway_address(text) == expected


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://[::1]:2", "https://a.example:3"])
def test_an_address_gives_its_url_back(url: str) -> None:
    assert read_gateway_address(url).url == url


@pytest.mark.parametrize(
    ("text", "next_step"),
    [
        ("http://10.0.0.1:8782", "https://"),
        ("gateway.example:8782", "https://"),
        ("http://localhost.example:8782", "https://"),
        ("http://[::ffff:10.0.0.1]:8782", "https://"),
        ("http://127.0.0.1", ":8782"),
        ("https://gateway.example", ":8782"),
        ("https://gateway.example:8782/v1", "for example"),
        ("https://gateway.example:0", "for example"),
        ("https://user:sk-canary-secret@gateway.example:8782", "for example"),
        ("grpc://gateway.example:8782", "for example"),
        ("mock://x:1", "for example"),
        ("gguf:///a", "for example"),
        ("https://gateway.example:8782?a=b", "for example"),
        ("http://2130706433:8782", "for example"),
        ("", "for example"),
        (":8782", "for example"),
    ],
)
def test_anything_else_is_refused_with_the_next_step_and_without_being_repeated(text: str, next_step: str) -> None:
    with pytest.raises(ValueError) as refusal:
        read_gateway_address(text)
    assert next_step in str(refusal.value)
    assert "sk-canary" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "files", "next_step"),
    [
        ("http://127.0.0.1:1", ("ca.pem", "", ""), "https://"),
        ("http://127.0.0.1:1", ("", "a.pem", "b.pem"), "https://"),
        ("https://a.example:1", ("", "a.pem", ""), "--gateway-key"),
        ("https://a.example:1", ("ca.pem", "", "b.pem"), "--gateway-cert"),
    ],
)
def test_files_that_do_not_go_together_are_refused(url: str, files: tuple[str, str, str], next_step: str) -> None:
    with pytest.raises(ValueError, match=next_step):
        read_gateway_address(url, *files)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("localhost.", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("128.0.0.1", False),
        ("::2", False),
        ("local", False),
    ],
)
def test_loopback_is_localhost_and_the_addresses_of_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("url", ["http://localhost.:8782", "https://LOCALHOST.:8782"])
def test_localhost_is_never_a_name_for_a_name_server(url: str) -> None:
    assert read_gateway_address(url).host == "localhost"
