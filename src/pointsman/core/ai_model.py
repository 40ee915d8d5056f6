"""A model that an account has registered: on one of its runners, or at an address of its own choosing."""

import itertools
import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from pointsman.core.context_options import ContextOptions
from pointsman.core.control_errors import InvalidRequest
from pointsman.core.provider import LONGEST_NAME, check_name
from pointsman.core.route import LONGEST_MODEL, RESERVED_NAMES

EndpointType = Literal["direct", "runner"]
DIRECT: EndpointType = "direct"
"""The gateway calls `api_endpoint` itself."""
RUNNER: EndpointType = "runner"
"""Only the runner calls it; the gateway never does."""
LONGEST_LABEL = 256
"""Characters of a model's name for people (ours)."""
MOST_MODELS = 4096
"""Of one account, of all kinds (ours): whatever is made of them is made of all at once."""
_NOT_IN_ALIASES = re.compile(r"[^A-Za-z0-9._-]+")
_EDGES = "._-"
_LONGEST_OWNER = 64
"""Characters of a runner's name that an alias has."""
_NAMELESS = "model"
"""The alias of a model whose identifier has no character that an alias may have."""


@dataclass(frozen=True, slots=True)
class AiModel:
    """One registration. Whether it can be called now is not kept: that is its runner's presence."""

    id: str
    """128 random bits in hexadecimal."""
    account: str
    name: str
    """For people."""
    alias: str
    """What clients give as their model: unique among the routes and the models of the account."""
    endpoint_type: EndpointType
    runner_id: str | None
    """Of a runner's model; it stays when the runner is deleted, as history. None for a direct one."""
    api_endpoint: str
    """A base URL in its one spelling (`core.runner_endpoint`, `core.endpoint`)."""
    model_identifier: str
    """What its server calls it."""
    created_at: float
    """Seconds since the epoch."""
    context: ContextOptions | None = None
    """What is taken out of its conversations."""

    @property
    def binding(self) -> tuple[str | None, str, str]:
        """What a registration is recognised by: the same runner, address and identifier are the same model."""
        return self.runner_id, self.api_endpoint, self.model_identifier


def check_model(name: str, model_identifier: str) -> None:
    """Raises InvalidRequest for what cannot name a model, to people or to its server."""
    for what, text, most in (
        ("name", name, LONGEST_LABEL),
        ("model_identifier", model_identifier, LONGEST_MODEL),
    ):
        if not text.strip() or text != text.strip():
            raise InvalidRequest(f"the {what} is empty, or has space around it")
        if len(text) > most:
            raise InvalidRequest(f"the {what} has {len(text)} characters; at most {most}")
        if not text.isprintable():
            raise InvalidRequest(f"the {what} holds a control character; write it again")


def check_alias(alias: str) -> None:
    """Raises InvalidRequest for what cannot be given as a model by clients."""
    if alias in RESERVED_NAMES:
        raise InvalidRequest(f"{alias} is for sandboxes; choose another alias")
    check_name(alias, "alias")


def default_alias(model_identifier: str, runner_name: str, taken: Container[str]) -> str:
    """The identifier in the letters of an alias; where that is taken the runner's name behind it, then a number.

    `taken` is the account's routes and models; it has an end, so there is one that is not.
    """
    plain = _as_alias(model_identifier) or _NAMELESS
    if plain not in taken and plain not in RESERVED_NAMES:
        return plain
    owner = f"-{runner_name[:_LONGEST_OWNER]}".rstrip(_EDGES)
    for number in itertools.count(1 if owner else 2):
        end = owner + (f"-{number}" if number > 1 else "")
        alias = plain[: LONGEST_NAME - len(end)] + end
        if alias not in taken:
            return alias
    raise AssertionError("numbers have no end")


def _as_alias(text: str) -> str:
    return _NOT_IN_ALIASES.sub("-", text)[:LONGEST_NAME].strip(_EDGES)
