"""What grpc says of a connection, as an operator hears it."""

import pytest

from pointsman.rpc.connection_cause import connection_cause, plain_details


@pytest.mark.parametrize(
    ("details", "plain"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote "
            "host: Connection refused",
            "Failed to connect to remote host: Connection refused",
        ),
        ("last error: UNAVAILABLE: ipv6:%5B::1%5D:1: Socket closed", "Socket closed"),
        ("ipv4:10.0.0.1:1: Tls handshake failed: OK", "Tls handshake failed"),
        ("the store is locked", "the store is locked"),
        ("", ""),
    ],
)
def test_names_of_statuses_and_addresses_are_left_out(details: str, plain: str) -> None:
    assert plain_details(details) == plain
    assert connection_cause(details, tls=True) == ""


def test_a_known_cause_comes_with_its_next_step() -> None:
    assert connection_cause("…CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", tls=True).endswith("; renew it")


def test_a_handshake_that_is_ended_is_told_by_what_we_spoke_and_a_connection_that_was_is_not_one() -> None:
    details = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.1:1: Socket closed"
    assert "--gateway-cert and --gateway-key" in connection_cause(details, tls=True)
    assert "it may speak TLS, write https://" in connection_cause(details, tls=False)
    assert connection_cause("Socket closed", tls=True) == ""
