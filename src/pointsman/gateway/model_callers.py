"""Who may call what on the data listener: an account's keys, and the tokens of its sandboxes.

Owns what a key and a token entitle to. Which routes there are is `model_routes`', what is said to whoever is refused
`proxy.model_reception`'s.
"""

import math
from collections.abc import Set

from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller
from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.candidate import SANDBOX_SYSTEM as SYSTEM
from pointsman.core.data_key import INFERENCE
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.route import ALIAS, RESERVED_NAMES
from pointsman.store.interface import Reader


async def entries_of(reader: Reader, account: str, table: ModelTable) -> dict[bytes, Entry]:
    """By digest. `table`: all that the account has, what only its sandboxes may use included."""
    entries = {}
    clients = table.without(RESERVED_NAMES)
    for key in await reader.keys(account):
        entries[key.digest] = Entry(
            Caller(account, key.name, KEY),
            clients.only(key.routes) if key.routes else clients,
            _until(key.expires_at, key.revoked_at),
            key.permits(INFERENCE),
        )
    shared, system = await _led_to(reader, account, INFERENCE_LOCAL), await _led_to(reader, account, SYSTEM)
    tables: dict[str, ModelTable] = {}
    for token in await reader.sandbox_tokens(account):
        if token.route not in tables:
            # What its bundle holds, and no more: a sandbox is the least trusted of all callers.
            tables[token.route] = table.only(({token.route} if token.route else shared) | system)
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
