"""The gateway's records in words and as JSON. Pure; no credential's value is in either, whatever the gateway sent."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pointsman.cli.show import block, heading, moment, told
from pointsman.cli.table import table
from pointsman.core.candidate import INFERENCE_LOCAL, SANDBOX_SYSTEM
from pointsman.core.limits import DEFAULT_LIMITS, DEFAULT_RUNNER_LIMITS
from pointsman.core.provider import REDACTED
from pointsman.core.route import ALIAS, CHAIN, DEFAULT_REQUEST_TIMEOUT_SECONDS, DEFAULT_TIMEOUT_SECONDS, MODEL, RUNNER

if TYPE_CHECKING:
    from pointsman.rpc.gen.control_pb2 import Account, Key, Route, RouteChange, SandboxToken
    from pointsman.rpc.gen.datamodel_pb2 import Provider
    from pointsman.rpc.gen.inference_pb2 import ValidatedEndpoint

_PROVIDER_HEAD = ("NAME", "TYPE", "CREDENTIAL_KEYS", "CONFIG_KEYS", "SOURCE")
_ROUTE_HEAD = ("NAME", "KIND", "PROVIDER", "MODEL", "TIMEOUT", "VERSION", "SOURCE", "PROBLEM")
_TOKEN_HEAD = ("NAME", "STATE", "ROUTE", "CREATED", "EXPIRES")
_KEY_HEAD = ("NAME", "STATE", "USER", "PERMISSIONS", "ROUTES", "FROM", "CREATED", "EXPIRES")
_ACCOUNT_HEAD = ("NAME", "STATE", "CREATED")
NOT_CONFIGURED = "  Not configured"
_RUNNERS = "runner:"
_NOUNS = {INFERENCE_LOCAL: "Gateway inference", SANDBOX_SYSTEM: "System inference"}


def provider_lines(provider: "Provider") -> list[str]:
    """One record: what it is, and which keys it has."""
    return block(
        "Provider:",
        (
            ("Id", provider.id),
            ("Name", provider.name),
            ("Type", provider.type),
            ("Credential keys", _keys(provider.credentials)),
            ("Config", ", ".join(f"{key}={value}" for key, value in sorted(provider.config.items())) or "none"),
            *_file_pair(provider),
        ),
    )


def _file_pair(record: "Provider | Route") -> list[tuple[str, str]]:
    return [("Source", "the gateway's configuration file")] if record.from_file else []


def _source_cell(record: "Provider | Route") -> str:
    return "file" if record.from_file else "store"


def _keys(mapping: Any) -> str:
    return ", ".join(sorted(mapping)) or "none"


def provider_rows(providers: Sequence["Provider"]) -> list[str]:
    """A table of records."""
    return _rows(
        _PROVIDER_HEAD,
        [
            (each.name, each.type, str(len(each.credentials)), str(len(each.config)), _source_cell(each))
            for each in providers
        ],
    )


def provider_json(provider: "Provider") -> dict[str, Any]:
    """One record."""
    return {
        "id": provider.id,
        "name": provider.name,
        "type": provider.type,
        "credentials": dict.fromkeys(sorted(provider.credentials), REDACTED),
        "config": dict(sorted(provider.config.items())),
        "from_file": provider.from_file,
    }


def noun(route_name: str) -> str:
    """What a route is called in a heading."""
    return _NOUNS.get(route_name) or f"Route {route_name}"


def timeout_words(seconds: int) -> str:
    """A stored timeout; 0 stands for the default."""
    return _seconds(seconds, DEFAULT_TIMEOUT_SECONDS)


def _seconds(given: int, default: int) -> str:
    return f"{given}s" if given else f"{default}s (default)"


def _timeout(route: "Route") -> str:
    """What bounds the wait for an answer to begin, of a runner's model also the whole; an alias has none of its own."""
    if route.kind == ALIAS:
        return "-"
    if route.kind == MODEL:
        return f"{DEFAULT_LIMITS.response_header_seconds:g}s"
    if route.kind == RUNNER:
        return f"{DEFAULT_RUNNER_LIMITS.idle_seconds:g}s, {DEFAULT_RUNNER_LIMITS.lifetime_seconds:g}s in all"
    if route.kind == CHAIN:
        return _seconds(route.request_timeout_secs, DEFAULT_REQUEST_TIMEOUT_SECONDS)
    return timeout_words(route.timeout_secs)


def change_lines(change: "RouteChange", done: str) -> list[str]:
    """What a route is after a change; `done` says which change."""
    route = change.route
    lines = block(f"{noun(route.name)} {done}:", (("Route", route.name), *_route_pairs(route)))
    if change.validated_endpoints:  # of a model file nothing is asked
        lines += ["  Validated Endpoints:"]
        lines += [f"    - {_endpoint(each)}" for each in change.validated_endpoints]
    return lines


def _endpoint(endpoint: "ValidatedEndpoint") -> str:
    if endpoint.url.startswith(_RUNNERS):  # its model was not asked
        return f"{told(endpoint.url)} (connected)"
    return f"{told(endpoint.url)} ({told(endpoint.protocol)})"


def route_lines(route_name: str, route: "Route | None") -> list[str]:
    """One route, or that there is none."""
    if route is None:
        return [heading(f"{noun(route_name)}:"), "", NOT_CONFIGURED]
    return block(f"{noun(route_name)}:", _route_pairs(route))


def _route_pairs(route: "Route") -> list[tuple[str, str]]:
    if route.kind == ALIAS:
        pairs = [("Leads to", f"route {route.target}"), ("Version", str(route.version))]
    elif route.kind == CHAIN:
        pairs = [
            ("Candidates", ", ".join(_candidates(route))),
            ("Strategy", route.strategy),
            ("Fallback", route.fallback or "none"),
            ("Version", str(route.version)),
            ("Request timeout", _timeout(route)),
            *((("Timeout", f"{route.timeout_secs}s"),) if route.timeout_secs else ()),
        ]
    else:
        pairs = [
            ("Provider", route.provider_name),
            ("Model", route.model),
            *((("Version", str(route.version)),) if route.version else ()),
            ("Timeout", _timeout(route)),
        ]
    if route.via_gateway:
        pairs.append(("Through", "the gateway"))
    if route.context:
        pairs.append(("Context", route.context))
    pairs += _file_pair(route)
    return [*pairs, ("Problem", route.problem)] if route.problem else pairs


def _candidates(route: "Route") -> list[str]:
    return [f"{each.provider_name}={each.model}" if each.model else each.provider_name for each in route.candidates]


def _provider_cell(route: "Route") -> str:
    """Where a route leads, in a table's column of providers."""
    if route.kind == ALIAS:
        return f"→ {route.target}"
    if route.kind == CHAIN:
        return ",".join((*_candidates(route), *((f"then {route.fallback}",) if route.fallback else ())))
    return route.provider_name or "-"


def route_rows(routes: Sequence["Route"]) -> list[str]:
    """A table of routes."""
    return _rows(
        _ROUTE_HEAD,
        [
            (
                each.name,
                each.kind,
                _provider_cell(each),
                each.model or "-",
                _timeout(each),
                str(each.version or "-"),
                _source_cell(each),
                each.problem or "-",
            )
            for each in routes
        ],
    )


def route_json(route: "Route") -> dict[str, Any]:
    """One route; a timeout of 0 stands for the default."""
    return {
        "name": route.name,
        "kind": route.kind,
        "provider_name": route.provider_name,
        "model": route.model,
        "timeout_seconds": route.timeout_secs,
        "candidates": [{"provider_name": each.provider_name, "model": each.model} for each in route.candidates],
        "strategy": route.strategy,
        "fallback": route.fallback,
        "request_timeout_seconds": route.request_timeout_secs,
        "target": route.target,
        "via_gateway": route.via_gateway,
        "context": route.context,
        "from_file": route.from_file,
        "version": route.version,
        "problem": route.problem or None,
    }


def change_json(change: "RouteChange") -> dict[str, Any]:
    """A route after a change, and what a verification reached."""
    return {
        **route_json(change.route),
        "verified": change.verified,
        "validated_endpoints": [{"url": each.url, "protocol": each.protocol} for each in change.validated_endpoints],
    }


def token_state(token: "SandboxToken | Key", now: float) -> str:
    """valid, expired or revoked."""
    if token.revoked_at_ms:
        return "revoked"
    return "expired" if token.expires_at_ms and token.expires_at_ms <= now * 1000 else "valid"


def token_rows(tokens: Sequence["SandboxToken"], now: float) -> list[str]:
    """A table of tokens."""
    return _rows(
        _TOKEN_HEAD,
        [
            (
                each.name,
                token_state(each, now),
                each.route or INFERENCE_LOCAL,
                moment(each.created_at_ms) or "-",
                moment(each.expires_at_ms) or "never",
            )
            for each in tokens
        ],
    )


def token_json(token: "SandboxToken", now: float) -> dict[str, Any]:
    """What may be known of a token; an empty route is the one that all share."""
    return {
        "name": token.name,
        "account": token.account,
        "state": token_state(token, now),
        "route": token.route,
        "created_at": moment(token.created_at_ms),
        "expires_at": moment(token.expires_at_ms),
        "revoked_at": moment(token.revoked_at_ms),
    }


def key_rows(keys: Sequence["Key"], now: float) -> list[str]:
    """A table of keys."""
    return _rows(
        _KEY_HEAD,
        [
            (
                each.name,
                token_state(each, now),
                each.user or "-",
                ",".join(each.permissions),
                ",".join(each.routes) or "all",
                ",".join(each.networks) or "anywhere",
                moment(each.created_at_ms) or "-",
                moment(each.expires_at_ms) or "never",
            )
            for each in keys
        ],
    )


def key_json(key: "Key", now: float) -> dict[str, Any]:
    """What may be known of a key; without routes it may use all of its account."""
    return {
        "name": key.name,
        "account": key.account,
        "state": token_state(key, now),
        "permissions": list(key.permissions),
        "routes": list(key.routes),
        "created_at": moment(key.created_at_ms),
        "expires_at": moment(key.expires_at_ms),
        "revoked_at": moment(key.revoked_at_ms),
        "networks": list(key.networks),
        "user": key.user or None,
    }


def account_rows(accounts: Sequence["Account"]) -> list[str]:
    """A table of accounts."""
    return _rows(
        _ACCOUNT_HEAD, [(each.name, account_state(each), moment(each.created_at_ms) or "-") for each in accounts]
    )


def account_state(account: "Account") -> str:
    """In one word."""
    return "halted" if account.halted_at_ms else "active"


def account_json(account: "Account") -> dict[str, Any]:
    """One account."""
    return {
        "name": account.name,
        "state": account_state(account),
        "created_at": moment(account.created_at_ms),
        "halted_at": moment(account.halted_at_ms),
    }


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return table(head, [tuple(told(cell) for cell in row) for row in rows])
