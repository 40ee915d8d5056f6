"""What `/v1/models` lists: the names of the caller's routes, and what providers have where a route forwards names.

A chain that sends on the client's model (`HideModels: false`) has no names of its own to tell: its list is that of the
first of its providers that gives one, else what its records say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from pointsman.config.secrets import SecretUnreadable
from pointsman.core.attempts import Chain, Member
from pointsman.core.candidate import Candidate
from pointsman.core.errors import RouterError
from pointsman.core.limits import Limits
from pointsman.core.model_table import ModelTable
from pointsman.proxy.member_keys import MemberKeys
from pointsman.proxy.model_reception import not_served
from pointsman.proxy.router import BufferedResponse
from pointsman.wire.openai_error import openai_error_body

MODELS_PATH = "/v1/models"
"""Answered by the listener itself, and what lies below it."""
_MOST_ASKED = 8
"""Providers, the first of the chain; all at once, so that one that hangs does not keep the others' answers."""

Fetch = Callable[[Candidate, str], Awaitable[BufferedResponse]]
"""Reads a path of a provider. Raises RouterError."""


class ListedModels:
    """Answers `/v1/models` and what lies below it. `clock` tells seconds, for what is kept."""

    def __init__(self, fetch: Fetch, limits: Limits, clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._limits = limits
        self._clock = clock
        self._keys = MemberKeys(lambda problem: None)  # the attempt loop tells it
        self._kept: tuple[Chain, float, list[Any]] | None = None
        self._turn = asyncio.Lock()

    async def answer(self, table: ModelTable, path: str) -> tuple[int, bytes]:
        """Status and body."""
        listed = await self._listed(table)
        if path == MODELS_PATH:
            return 200, msgspec.json.encode({"object": "list", "data": listed})
        name = unquote(path.removeprefix(MODELS_PATH + "/"))
        found = next((each for each in listed if each.get("id") == name), None)
        if found is None and name in table.targets:
            found = _model(name)
        if found is not None:
            return 200, msgspec.json.encode(found)
        error = not_served(name, table)
        return error.status, openai_error_body(error.status, error.told, error.code)

    async def _listed(self, table: ModelTable) -> list[Any]:
        route = table.targets.get(table.default)
        if not isinstance(route, Chain) or not route.forwards_model:
            return [_model(name) for name in table.targets]
        others = [_model(name) for name in table.targets if name != table.default]
        return [*(await self._of_chain(route) or [_model(table.default)]), *others]

    async def _of_chain(self, chain: Chain) -> list[Any]:
        async with self._turn:
            kept = self._kept
            if kept is None or kept[0] is not chain or self._clock() >= kept[1]:
                found = await self._ask(chain)
                kept = chain, self._clock() + self._limits.models_kept_seconds, found or _of_records(chain)
                self._kept = kept
            return kept[2]

    async def _ask(self, chain: Chain) -> list[Any] | None:
        """The first list in the chain's order, of those that come in time."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._of_provider(each)) for each in _all(chain)[:_MOST_ASKED]]
            try:
                async with asyncio.timeout(self._limits.models_seconds):
                    for task in asked:
                        if (found := await task) is not None:
                            return found
            except TimeoutError:
                pass
            finally:
                for task in asked:
                    task.cancel()
        in_time = (task.result() for task in asked if not task.cancelled())
        return next((found for found in in_time if found is not None), None)

    async def _of_provider(self, member: Member) -> list[Any] | None:
        if member.candidate.endpoint.scheme not in ("http", "https"):
            return None
        try:
            response = await self._fetch(self._keys.candidate(member), MODELS_PATH)
        except (RouterError, SecretUnreadable):
            return None
        if response.status != 200 or len(response.body) > self._limits.models_bytes:
            return None
        try:
            models = msgspec.json.decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        found = models.get("data") if isinstance(models, dict) else None
        if not isinstance(found, list):
            return None
        return [each for each in found if isinstance(each, dict) and isinstance(each.get("id"), str)]


def _all(chain: Chain) -> Sequence[Member]:
    return chain.members if chain.fallback is None else (*chain.members, chain.fallback)


def _of_records(chain: Chain) -> list[Any]:
    named = {member.candidate.model: member.provider for member in reversed(_all(chain)) if member.candidate.model}
    return [_model(model, provider) for model, provider in reversed(named.items())]


def _model(name: str, owner: str = "pointsman") -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}
