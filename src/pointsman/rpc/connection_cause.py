"""What grpc's own words for a connection that could not be made mean, and what to do about it. Pure."""

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
    ("Domain name not found", "there is no such host; check the name in --gateway"),
    ("address lookup failed", "its name cannot be looked up; check --gateway and the name service"),
)


def connection_cause(details: str) -> str:
    """The cause and the next step, or nothing for what is not known."""
    return next((cause for words, cause in _CAUSES if words in details), "")


def plain_details(details: str) -> str:
    """The words themselves, without what only grpc's authors need."""
    return _NOISE.sub("", details.rpartition("last error: ")[2].strip())
