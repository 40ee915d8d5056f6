"""How `pointsman gateway --check` shows the providers and chains of a file. No key of any of them."""

import json
from typing import Any

from pointsman.cli.table import table
from pointsman.config.gateway_records import FileRecords
from pointsman.core.provider import KEY_FILE, REDACTED, Provider
from pointsman.core.route import Route


def records_as_text(records: FileRecords) -> list[str]:
    """Two tables, each behind an empty line; nothing for a file without records."""
    lines: list[str] = []
    if records.providers:
        rows = [(each.name, each.type, each.config.get("MODEL", "-"), _key(each)) for each in records.providers]
        lines += ["", *table(("PROVIDER", "TYPE", "MODEL", "KEY"), rows)]
    if records.routes:
        chains = [(each.name, each.strategy, _members(each), each.fallback or "-") for each in records.routes]
        lines += ["", *table(("ROUTE", "STRATEGY", "CANDIDATES", "FALLBACK"), chains)]
    return lines


def records_as_json(records: FileRecords) -> dict[str, Any]:
    """The same for programs, with every config entry."""
    return {
        "providers": [
            {
                "name": each.name,
                "type": each.type,
                "config": {key: _parsed(key, value) for key, value in each.config.items()},
                "credentials": dict.fromkeys(each.credentials, REDACTED),
            }
            for each in records.providers
        ],
        "routes": [
            {
                "name": each.name,
                "kind": each.kind,
                "candidates": [{"provider": c.provider_name, "model": c.model or None} for c in each.candidates],
                "strategy": each.strategy,
                "fallback": each.fallback or None,
                "request_timeout_seconds": each.request_timeout_seconds,
            }
            for each in records.routes
        ],
    }


def _key(provider: Provider) -> str:
    return provider.config.get(KEY_FILE, "none")


def _members(route: Route) -> str:
    return ", ".join(f"{c.provider_name}={c.model}" if c.model else c.provider_name for c in route.candidates) or "-"


def _parsed(key: str, value: str) -> Any:
    return json.loads(value) if key == "ERROR_MAPPINGS" else value
