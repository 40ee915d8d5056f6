"""What grpc's own words for a connection that is not there mean, and what to do about it. Pure.

Those words are the only sign of who speaks: everything else that comes as UNAVAILABLE is the gateway's own text.
"""

import re

_NOISE = re.compile(r"^(?:[A-Z_]+: )?(?:ipv[46]:\S+: )?|(?:: OK)?$")
"""A status' name and the address, which is told anyway, before what matters; a status' name behind it."""

_CAUSES = (
    ("certificate has expired", "its certificate has expired; renew it"),
    ("certificate is not yet valid", "its certificate is not valid yet; compare the clocks of both machines"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted; give its authority's by --gateway-ca"),
    ("Hostname Verification Check failed", "its certificate is for another name; name the host that is in it"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS there; write http:// on its own machine, or check the port"),
    (
        "Failed to create security handshaker",
        "the files of --gateway-ca, --gateway-cert and --gateway-key cannot be used; check that they are PEM and "
        "belong together",
    ),
    ("Failed parsing HTTP/2", "what listens there is not a gRPC server; name the gateway's gRPC listener"),
    (
        "timed out before receiving SETTINGS",
        "something listens there and says nothing; see whether the gateway hangs, or another program has its port",
    ),
    ("Domain name not found", "there is no such host; check the name in --gateway"),
    ("address lookup failed", "its name cannot be looked up; check --gateway and the name service"),
)

_NOT_MADE = (
    "failed to connect to all addresses",
    "errors resolving ",
    "DNS resolution failed",
    "empty address list",
)
_LOST = (
    "Socket closed",
    "recvmsg:",
    "sendmsg:",
    "Connection reset",
    "Stream removed",
    "GOAWAY received",
    "Cancelling all calls",  # a server that ends, and whose grace is over
)


def connection_cause(details: str, *, tls: bool) -> str:
    """The cause and the next step, or nothing for what is not known. `tls`: whether we spoke it."""
    if cause := next((cause for words, cause in _CAUSES if words in details), ""):
        return cause
    if not (was_not_made(details) and "Socket closed" in details):
        return ""
    if tls:
        return "it ended the handshake; it may want a certificate, give --gateway-cert and --gateway-key"
    return "it closed the connection; it may speak TLS, write https:// and --gateway-ca"


def plain_details(details: str) -> str:
    """The words themselves, without what only grpc's authors need."""
    return _NOISE.sub("", details.rpartition("last error: ")[2].strip())


def was_not_made(details: str) -> bool:
    """Whether a status that says this means that nothing was ever sent."""
    return details.startswith(_NOT_MADE)


def was_lost(details: str) -> bool:
    """Whether it means that the connection broke before an answer: what was asked for may have been done."""
    return not details or details.startswith(_LOST)
