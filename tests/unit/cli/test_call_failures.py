"""What a failed call means, in one line with a next step."""

import pytest

from pointsman.cli.call_failures import Failure, TokenOrigin, failure_text
from pointsman.core.gateway_address import GatewayAddress

PLAIN = GatewayAddress("127.0.0.1", 8782)
TLS = GatewayAddress("gateway.example", 8782, tls=True)
TOKEN = TokenOrigin("/data/admin.token")


def text(
    code: str, details: str = "", *, gateway: GatewayAddress = PLAIN, token: TokenOrigin = TOKEN, seconds: float = 30
) -> str:
    said = failure_text(Failure(code, details, seconds), gateway, token)
    assert "\n" not in said
    return said


CANNOT = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:8782: "


def test_nothing_listens() -> None:
    assert text("UNAVAILABLE", f"{CANNOT}Failed to connect to remote host: Connection refused") == (
        "cannot reach the gateway at http://127.0.0.1:8782; start it with 'pointsman gateway', or name another with "
        "--gateway"
    )


@pytest.mark.parametrize(
    ("details", "gateway", "said"),
    [
        (
            f"{CANNOT}CERTIFICATE_VERIFY_FAILED: self signed certificate: OK",
            TLS,
            "is not trusted; give its authority's",
        ),
        (f"{CANNOT}CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", TLS, "has expired; renew it"),
        (f"{CANNOT}UNAUTHENTICATED: Hostname Verification Check failed.", TLS, "is for another name; name the host"),
        (f"{CANNOT}WRONG_VERSION_NUMBER: ", TLS, "it does not speak TLS there"),
        (f"{CANNOT}Failed to create security handshaker.", TLS, "cannot be used; check that they are PEM"),
        (f"{CANNOT}Failed parsing HTTP/2 (Expected SETTINGS", PLAIN, "is not a gRPC server; name the gateway's gRPC"),
        (f"{CANNOT}Socket closed", PLAIN, "it may speak TLS, write https://"),
        (f"{CANNOT}Socket closed", TLS, "it may want a certificate, give --gateway-cert"),
        (
            f"{CANNOT}connection attempt timed out before receiving SETTINGS frame",
            PLAIN,
            "something listens there and says nothing; see whether the gateway hangs",
        ),
        ("errors resolving x:1: [… Domain name not found]", TLS, "there is no such host"),
    ],
)
def test_what_kept_a_connection_from_being_made_has_its_own_next_step(
    details: str, gateway: GatewayAddress, said: str
) -> None:
    line = text("UNAVAILABLE", details, gateway=gateway)
    assert line.startswith(f"cannot reach the gateway at {gateway.url}: ")
    assert said in line


@pytest.mark.parametrize("details", ["", "Socket closed", "recvmsg:Connection reset by peer", "Cancelling all calls"])
def test_a_connection_that_breaks_leaves_open_what_was_done(details: str) -> None:
    assert "broke before it answered; see whether it runs and what it has" in text("UNAVAILABLE", details)


def test_a_gateway_that_ends_leaves_open_what_was_done() -> None:
    assert "broke before it answered; see whether it runs and what it has" in text("CANCELLED", "")


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"])
def test_the_gateways_own_text_is_passed_on_as_it_is(code: str) -> None:
    assert text(code, "the database is held by another process; try again") == (
        "the database is held by another process; try again"
    )


def test_a_text_from_far_away_cannot_command_the_terminal_or_fill_it() -> None:
    assert text("FAILED_PRECONDITION", "a\nb\x1b[2J") == "a b\\x1b[2J"
    assert len(text("FAILED_PRECONDITION", "x" * 10_000)) == 2000


def test_a_refused_token_is_named_by_its_file() -> None:
    assert text("UNAUTHENTICATED", "it expired") == (
        "the gateway at http://127.0.0.1:8782 does not accept the token in /data/admin.token: it is another "
        "gateway's, or not valid any more; the admin token is admin.token in its data directory, name it with "
        "--token-file"
    )


def test_a_token_that_was_not_there_is_said_to_be_missing() -> None:
    missing = TokenOrigin("/data/admin.token", "no such file or directory")
    assert "and /data/admin.token gave none: no such file or directory; the admin" in text(
        "UNAUTHENTICATED", token=missing
    )
    assert text("UNAUTHENTICATED", gateway=TLS, token=TokenOrigin("")) == (
        "the gateway at https://gateway.example:8782 wants a token; name the file that holds it with --token-file"
    )


def test_a_token_that_may_not_do_it_is_named_with_the_reason() -> None:
    assert text("PERMISSION_DENIED", "this token is a sandbox's; use the admin token") == (
        "the gateway at http://127.0.0.1:8782 does not let the token in /data/admin.token do this: this token is a "
        "sandbox's; use the admin token"
    )
    assert "only the admin token" in text("PERMISSION_DENIED")


def test_the_other_codes_end_in_a_next_step_too() -> None:
    assert "did not answer within 30 s; look at its log" in text("DEADLINE_EXCEEDED", "Deadline Exceeded")
    assert "older than this command, or not a Pointsman gateway" in text("UNIMPLEMENTED", "Method not found!")
    assert text("UNKNOWN", "Exception calling application: x") == (
        "the gateway at http://127.0.0.1:8782 failed; its log says why"
    )
    assert text("INTERNAL", "why") == "the gateway at http://127.0.0.1:8782 failed; its log says why (why)"
    assert text("OUT_OF_RANGE").endswith("refused with OUT_OF_RANGE and no reason; its log says why")
