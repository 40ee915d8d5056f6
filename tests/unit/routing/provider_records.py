"""Provider records and routes for tests of what is made of them."""

from collections.abc import Mapping
from dataclasses import replace

from pointsman.core.provider import Provider
from pointsman.core.route import Route
from pointsman.core.secret import Secret
from tests.support.canary import KEY


def record(
    kind: str = "openai", credentials: Mapping[str, str] | None = None, config: Mapping[str, str] | None = None
) -> Provider:
    keys = {"OPENAI_API_KEY": KEY} if credentials is None else credentials
    secrets = {name: Secret(value) for name, value in keys.items()}
    return Provider("id-1", "default", "prod", kind, secrets, config or {}, 1.0, 2.0)


def in_file(kind: str = "openai", config: Mapping[str, str] | None = None) -> Provider:
    """The same from a configuration file, with its key in a file of its own."""
    return replace(record(kind, {}, {"KEY_FILE": "/run/secrets/prod_api_key", **(config or {})}), from_file=True)


def stored(name: str = "inference.local", model: str = "gpt-x", timeout: int = 0) -> Route:
    return Route("default", name, "prod", model, timeout, 1)
