"""A gRPC channel to a gateway, and what every call on it carries.

Importing this imports grpc, which takes longer than all the rest of a start: whoever may do without a gateway imports
it late. What the calls are is the callers'.
"""

import os

import grpc
import grpc.aio

from pointsman.config.text_file import Unreadable, open_regular
from pointsman.core.account import ACCOUNT_FIELD
from pointsman.core.gateway_address import GatewayAddress, GatewayFileError
from pointsman.core.limits import MIB
from pointsman.core.secret import Secret

LARGEST_ANSWER = 4 * MIB
"""Bytes of one answer; gRPC's own default, written down."""
LARGEST_PEM_FILE = MIB
"""Bytes; all public authorities together take a quarter."""

_LONGEST_BACKOFF_MS = 1000
"""Between two attempts to connect: well below the five seconds between two polls."""
_LONGEST_CONNECT_MS = 4000
"""For one attempt, TLS included; the option's name says nothing of it."""

Metadata = tuple[tuple[str, str], ...]


class ChannelFileError(GatewayFileError):
    """A certificate or key file of a gateway cannot be used. The text says which, why and what to do."""


def call_metadata(token: Secret | None, account: str = "") -> Metadata:
    """What a call carries: who calls, and for which account (empty: the token's own, or `default`)."""
    metadata: list[tuple[str, str]] = []
    if token is not None:
        metadata.append(("authorization", f"Bearer {token.reveal()}"))
    if account:
        metadata.append((ACCOUNT_FIELD, account))
    return tuple(metadata)


def open_channel(gateway: GatewayAddress) -> grpc.Channel:
    """A channel for blocking calls; close it. Nothing is dialled yet. Raises ChannelFileError."""
    credentials = _credentials(gateway)
    options = _options(LARGEST_ANSWER)
    if credentials is None:
        return grpc.insecure_channel(_target(gateway), options)
    return grpc.secure_channel(_target(gateway), credentials, options)


def open_aio_channel(gateway: GatewayAddress, largest_answer: int = LARGEST_ANSWER) -> grpc.aio.Channel:
    """The same for the running event loop; an answer of over `largest_answer` bytes ends in RESOURCE_EXHAUSTED."""
    credentials = _credentials(gateway)
    options = _options(largest_answer)
    if credentials is None:
        return grpc.aio.insecure_channel(_target(gateway), options)
    return grpc.aio.secure_channel(_target(gateway), credentials, options)


def _target(gateway: GatewayAddress) -> str:
    # Named schemes: without one, gRPC takes the host of localhost:80 for a scheme of its own.
    if ":" in gateway.host:
        return f"ipv6:[{gateway.host}]:{gateway.port}"
    if gateway.host.rpartition(".")[2].isdecimal():
        return f"ipv4:{gateway.host}:{gateway.port}"
    return f"dns:///{gateway.host}:{gateway.port}"


def _options(largest_answer: int) -> list[tuple[str, int]]:
    return [
        # Proxy variables are for what leaves the machine on the operator's behalf; this carries keys.
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),  # TXT records of the name could change how calls are made
        ("grpc.use_local_subchannel_pool", 1),  # a channel made anew is to mean a connection made anew
        ("grpc.max_receive_message_length", largest_answer),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", _LONGEST_CONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _LONGEST_BACKOFF_MS),
    ]


def _credentials(gateway: GatewayAddress) -> grpc.ChannelCredentials | None:
    if not gateway.tls:
        return None
    return grpc.ssl_channel_credentials(
        _pem(gateway.ca_file, "--gateway-ca"),
        _pem(gateway.key_file, "--gateway-key"),
        _pem(gateway.certificate_file, "--gateway-cert"),
    )


def _pem(path: str, option: str) -> bytes | None:
    if not path:
        return None
    try:
        descriptor, _ = open_regular(path)  # a pipe that has taken its place must not hold up what runs
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(LARGEST_PEM_FILE + 1)
    except Unreadable as error:
        raise ChannelFileError(f"{option} {path}: {error.problem.reason}; {error.problem.next_step}") from None
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise ChannelFileError(f"{option} {path}: {reason}; check the disk") from None
    if len(data) > LARGEST_PEM_FILE:
        raise ChannelFileError(f"{option} {path}: has over {LARGEST_PEM_FILE} bytes; name a file of certificates alone")
    if b"-----BEGIN " not in data:
        raise ChannelFileError(f"{option} {path}: is no PEM file; convert it, or name another")
    return data
