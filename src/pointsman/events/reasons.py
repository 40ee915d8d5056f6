"""Why something happened, in one stable word: an event's `status_code`, an operation line's `reason`."""

import re
from functools import lru_cache

from pointsman.core.errors import RouterError

REASONS = {
    "rate_limit": "the upstream answered 429",
    "auth_error": "the upstream answered 401, 402 or 403: it does not take the route's key",
    "model_unavailable": "the upstream answered 404 or 410",
    "request_rejected": "the upstream answered another 4xx: it does not like the request",
    "server_error": "the upstream answered 3xx or 5xx",
    "upstream_unavailable": "no connection, no TLS, or no response head in time",
    "upstream_protocol": "what the upstream sent is not an HTTP response",
    "stream_truncated": "the response body was cut, or an event stream ended without its last event",
    "exhausted": "nobody of a chain was left: all had no room, or failed before a byte of theirs reached the client",
    "runner_offline": "the runner of the model is not connected, or went while it answered",
    "runner_busy": "the runner of the model answers as many requests as it may",
    "runner_model_not_allowed": "the runner's own allowlist has no such model, or with another address or name",
    "runner_proxy_timeout": "the runner sent no frame in time, or the exchange took too long as a whole",
    "runner_request_too_large": "the request body exceeds what is sent to runners",
    "runner_frame_too_large": "the model answered with more at once than one frame may hold",
    "runner_response_limit": "the model's answer is longer than a runner's may be",
    "runner_proxy_error": "what the runner sent is no frame, or none of this request",
    "runner_upstream_error": "the model's server refused the request, or sent what is no completion",
    "runner_upstream_unavailable": "the runner cannot reach the model's server",
    "runner_upstream_read_error": "the model's server broke off its answer",
    "not_configured": "there is no route at all",
    "overloaded": "more connections, or more of all request bodies together, than their limit",
    "no_compatible_route": "no route speaks the client's dialect",
    "internal_error": "a bug of ours",
    "client_gone": "the client closed its connection",
    "client_stalled": "the client took no byte for too long",
    "shutting_down": "the proxy was told to stop",
    "pipelined_too_much": "the client sent too much behind a request in progress",
    "not_inference": "not a target, method or path that is served",
    "unknown_path": "not a path that the data listener serves",
    "no_model": "the route sends the client's model, and the request names none that can be sent",
    "no_such_model": "`model` names no route of the caller's",
    "insufficient_quota": "a hard budget has no room for the request",
    "budget_uncounted": "a hard budget cannot be counted: the counters' disk is full, or their database gone or held",
    "invalid_key": "no key of the data listener's, or none that is valid",
    "model_not_authorized": "the key or sandbox token may not use the route that `model` names",
    "policy_blocked": "a rule of the account's policy refuses the request or its answer",
    "policy_unsearchable": "a policy applies, and the body is too large to be searched, or names something twice",
    "account_halted": "the account is halted; a request in progress was ended when that was done",
    "source_not_allowed": "the key may be used from some networks alone, and this address is in none of them",
    "loop_detected": "the request has been through this gateway before",
    "malformed_request": "broken HTTP, or a body that is not what it claims to be",
    "request_timeout": "the client stopped sending in the middle of a request or a CONNECT",
    "body_too_large": "the request body exceeds its limit",
    "head_too_large": "the request head, or a CONNECT, exceeds its limit",
    "target_too_long": "the request line exceeds its limit",
    "encoded_body": "the request body has a Content-Encoding",
    "expectation_failed": "an Expect other than 100-continue",
    "gateway_unreachable": "no connection to the gateway, or no TLS",
    "gateway_timeout": "the gateway did not answer in time",
    "gateway_error": "the gateway answered with an error of its own",
    "token_refused": "the gateway does not take the sandbox's token, nor what is in its file now",
    "token_unreadable": "the gateway does not take the sandbox's token, and its file cannot be used",
    "certificate_unreadable": "a certificate or key file for the line to the gateway cannot be used any more",
    "not_permitted": "the gateway takes the token, but not for a bundle",
    "bundle_too_large": "the gateway's answer exceeds its limit, in bytes or routes",
    "route_unusable": "a route in the gateway's answer is not what a route must be",
    "ca_not_trusted": "the client does not trust the proxy's CA",
    "wrong_name": "the client asked TLS for another host than inference.local",
    "not_tls": "the client sent something other than TLS into the tunnel",
    "tls_version": "the client and the proxy have no TLS version or cipher in common",
    "handshake_timeout": "the TLS handshake took too long",
    "handshake_ended": "the client closed the connection in the middle of the handshake",
    "handshake_error": "another TLS error",
}
"""`status_code` of an event: why, in one stable word."""


def reason_of(error: RouterError) -> str:
    """The word for an error: its own, or else the name of its class in snake case."""
    return error.reason or _snake_case(type(error).__name__)


@lru_cache(maxsize=64)
def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def reason_of_status(status: int) -> str:
    """The word for an upstream's answer that is not a success."""
    if status == 429:
        return "rate_limit"
    if status in (401, 402, 403):
        return "auth_error"
    if status in (404, 410):
        return "model_unavailable"
    return "request_rejected" if 400 <= status < 500 else "server_error"
