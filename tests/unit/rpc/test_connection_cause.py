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
    assert connection_cause(details) == ""


def test_a_known_cause_comes_with_its_next_step() -> None:
    assert connection_cause("…CERTIFICATE_VERIFY_FAILED: certificate has expired: OK").endswith("; renew it")
