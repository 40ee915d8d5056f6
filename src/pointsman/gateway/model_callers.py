"""Who may call what on the data listener: an account's keys, and the tokens of its sandboxes.

Owns what a key and a token entitle to. Which routes there are is `model_routes`', what is said to whoever is refused
`proxy.model_reception`'s.
"""

import asyncio
import math
from collections.abc import Set

from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller
from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.candidate import SANDBOX_SYSTEM as SYSTEM
from pointsman.core.data_key import INFERENCE
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.route import ALIAS, RESERVED_NAMES
from pointsman.store.interface import Reader

_AT_ONCE = 16
"""Keys or tokens before requests get a turn: a table of few out of 1,000 routes takes 30 to 60 µs."""


async def entries_of(reader: Reader, account: str, table: ModelTable) -> dict[bytes, Entry]:
    """By digest. `table`: all that the account has, what only its sandboxes may use included."""
    entries: dict[bytes, Entry] = {}
    clients, all_targets = table.without(RESERVED_NAMES), table.all_targets
    of_routes: dict[tuple[str, ...], ModelTable] = {(): clients}
    for number, key in enumerate(await reader.keys(account)):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        if key.routes not in of_routes:
            of_routes[key.routes] = clients.only(key.routes, all_targets)
        entries[key.digest] = Entry(
            Caller(account, key.name, KEY, key.user),
            of_routes[key.routes],
            _until(key.expires_at, key.revoked_at),
            key.permits(INFERENCE),
            key.networks,
        )
    shared, system = await _led_to(reader, account, INFERENCE_LOCAL), await _led_to(reader, account, SYSTEM)
    tables: dict[str, ModelTable] = {}
    for number, token in enumerate(await reader.sandbox_tokens(account)):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        if token.route not in tables:
            # What its bundle holds, and no more: a sandbox is the least trusted of all callers.
            tables[token.route] = table.only(({token.route} if token.route else shared) | system, all_targets)
        entries[token.digest] = Entry(
            Caller(account, token.name, SANDBOX_TOKEN),
            tables[token.route],
            _until(token.expires_at, token.revoked_at),
        )
    return entries


async def _led_to(reader: Reader, account: str, name: str) -> Set[str]:
    """The route that a reserved name stands for. The table has one that it holds itself if the gateway calls it."""
    route = await reader.route(account, name)
    if route is None:
        return set()
    return {route.target if route.kind == ALIAS else name}


def _until(*moments: float | None) -> float:
    return min((moment for moment in moments if moment is not None), default=math.inf)
