"""The page of the control API, from its OpenAPI document."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pointsman.core.secret import Secret
from pointsman.core.version import VERSION
from pointsman.gateway.app import make_control_plane
from pointsman.gateway.provider_health import targets_of_records
from pointsman.gateway.rest import build_api, document
from pointsman.gateway.watching import Sources, watching
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import open_store

_PREFIX = "#/components/schemas/"
_HEAD = """# Control API

{description}

Listens where `listen.control` says, by default on `127.0.0.1:8781`. The OpenAPI document is at `/api/v1/openapi.json`.
[How to use it](../howto/use-the-rest-api.md).

* `Authorization: Bearer TOKEN`: the admin's token is in `admin.token` in the gateway's data directory.
* `x-pointsman-account: NAME`: the account that is worked on; `default` when it is left out.
* `HEAD` answers as `GET` does, without the body.

An error is `{{"error": {{"code": CODE, "message": TEXT}}}}`; the text ends in what to do next.

| status | when |
|---|---|
"""


async def _document() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        store = await open_store(StoreSettings(file_url(path / "records.db"), path / "key"))
        try:
            control = make_control_plane(store, Secret(""), lambda _: None)
            sources = Sources(targets_of_records(store), control.healthy, lambda: 0)
            with watching(path / "operations", lambda _: None, sources) as watched:
                return document(build_api(control, VERSION, lambda _: None, watching=watched), VERSION)
        finally:
            await store.close()


def rest_page() -> str:
    """Every path, every shape."""
    made = asyncio.run(_document())
    components = made["components"]
    parts = [_HEAD.format(description=made["info"]["description"])]
    parts += [f"| {name[1:]} | {each['description']} |\n" for name, each in sorted(components["responses"].items())]
    parts.append("\n## Paths\n\n| request | query | body | answer | what it does |\n|---|---|---|---|---|\n")
    for path, operations in made["paths"].items():
        parts += [_operation_row(method, path, each) for method, each in operations.items()]
    parts.append("\n## Shapes\n\nA field marked • is required. Unknown fields are refused.\n")
    for name, schema in sorted(components["schemas"].items()):
        if "properties" in schema:
            parts += _shape(name, schema)
    return "".join(parts)


def _operation_row(method: str, path: str, operation: dict[str, Any]) -> str:
    query = [f"`{each['name']}`" for each in operation.get("parameters", []) if each.get("in") == "query"]
    body = (
        _type(operation["requestBody"]["content"]["application/json"]["schema"]) if "requestBody" in operation else ""
    )
    answers = [f"{status} {_content(each['content'])}" for status, each in _own(operation)]
    what = " ".join(operation["description"].split())
    return f"| `{method.upper()} {path}` | {', '.join(query)} | {body} | {', '.join(answers)} | {what} |\n"


def _own(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Answers that are no error."""
    return ((status, each) for status, each in operation["responses"].items() if "$ref" not in each)


def _content(content: dict[str, Any]) -> str:
    """The shape of JSON, the type of anything else."""
    [(media_type, each)] = content.items()
    return _type(each["schema"]) if media_type == "application/json" else f"`{media_type}`"


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"\n### {name}\n\n{schema['description']}\n\n| field | type | default | note |\n|---|---|---|---|\n"
    required = schema.get("required", [])
    for field, each in schema["properties"].items():
        default = f"`{str(each['default']).lower()}`" if each.get("default") not in (None, "", {}) else ""
        note = " ".join(part for part in (each.get("description", ""), _bounds(each)) if part)
        yield f"| `{field}`{' •' if field in required else ''} | {_type(each)} | {default} | {note} |\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_PREFIX)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object":
        return "object of strings"
    return str(schema.get("format", schema["type"]))


def _bounds(schema: dict[str, Any]) -> str:
    """The bounds of a value, as words."""
    for each in (schema, *schema.get("anyOf", ())):
        if "maxLength" in each:
            return f"At most {each['maxLength']:,} characters."
        if "maxProperties" in each:
            keys, values = each["propertyNames"]["maxLength"], each["additionalProperties"]["maxLength"]
            return f"At most {each['maxProperties']} entries, keys of {keys} and values of {values:,} characters."
        if "maximum" in each:
            return f"{int(each['minimum']):,} to {int(each['maximum']):,}."
    return ""
