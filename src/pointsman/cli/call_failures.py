"""What a call that failed means for whoever typed the command: one line that ends in what to do. Pure."""

from dataclasses import dataclass

from pointsman.core.gateway_address import GatewayAddress
from pointsman.events.printable import printable
from pointsman.rpc.connection_cause import connection_cause, was_lost, was_not_made

_LONGEST_TEXT = 2000


@dataclass(frozen=True, slots=True)
class TokenOrigin:
    """Where a token is from, for messages."""

    path: str
    """The file that was, or would have been, looked into; empty where there is no default."""
    missing: str = ""
    """Why there is no token; empty when one was sent."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A gRPC status that is not OK."""

    code: str
    """Its name, such as UNAVAILABLE."""
    details: str
    waited_seconds: float


def failure_text(failure: Failure, gateway: GatewayAddress, token: TokenOrigin) -> str:
    """One line for the operator."""
    details = printable(" ".join(failure.details.split()), _LONGEST_TEXT)
    where = f"the gateway at {gateway.url}"
    match failure.code:
        case "UNAVAILABLE":
            return _unavailable(details, gateway)
        case "CANCELLED":  # by a gateway that was told to end; we cancel nothing that we wait for
            return _unavailable("", gateway)
        case "DEADLINE_EXCEEDED":
            return (
                f"{where} did not answer within {failure.waited_seconds:g} s; look at its log, or whether another "
                "program listens there"
            )
        case "UNAUTHENTICATED":
            return _unauthenticated(where, token)
        case "PERMISSION_DENIED":
            reason = f": {details}" if details else "; only the admin token may do everything"
            return f"{where} does not let the token in {token.path} do this{reason}"
        case "UNIMPLEMENTED":
            return f"{where} does not know this call; it is older than this command, or not a Pointsman gateway"
        case "UNKNOWN" | "INTERNAL" | "DATA_LOSS":
            return f"{where} failed; its log says why" + (
                f" ({details})" if failure.code != "UNKNOWN" and details else ""
            )
    return details or f"{where} refused with {failure.code} and no reason; its log says why"


def _unavailable(details: str, gateway: GatewayAddress) -> str:
    if was_not_made(details):
        return f"cannot reach the gateway at {gateway.url}{_cause(details, gateway)}"
    if was_lost(details):
        return (
            f"the connection to the gateway at {gateway.url} broke before it answered; see whether it runs and what "
            "it has, then try again"
        )
    return details


def _cause(details: str, gateway: GatewayAddress) -> str:
    """What kept the connection from being made, and the next step."""
    if cause := connection_cause(details, tls=gateway.tls):
        return f": {cause}"
    return "; start it with 'pointsman gateway', or name another with --gateway"


def _unauthenticated(where: str, token: TokenOrigin) -> str:
    if not token.path:
        return f"{where} wants a token; name the file that holds it with --token-file"
    if token.missing:
        problem = f"wants a token, and {token.path} gave none: {token.missing}"
    else:
        problem = f"does not accept the token in {token.path}: it is another gateway's, or not valid any more"
    return f"{where} {problem}; the admin token is admin.token in its data directory, name it with --token-file"
