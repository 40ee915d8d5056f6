"""Chains of made-up members for tests of the decisions about them."""

from collections.abc import Callable, Mapping
from random import Random

from pointsman.core.attempts import Chain, ErrorMapping, Member
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.core.quota import Counters, Quota

NOW = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC."""
MIDNIGHT = NOW + 16 * 3600
CHAT = P.CHAT_COMPLETIONS
OPENAI = (P.CHAT_COMPLETIONS, P.COMPLETIONS, P.RESPONSES, P.EMBEDDINGS, P.MODEL_DISCOVERY)


def member(
    name: str,
    daily: int = 0,
    minute: int = 0,
    *,
    protocols: tuple[str, ...] = OPENAI,
    mappings: tuple[ErrorMapping, ...] = (),
    path: str = "error.code",
    zone: str = "UTC",
    model: str = "m",
) -> Member:
    candidate = Candidate("fast", parse_endpoint("http://127.0.0.1:9/v1"), model, protocols, "openai_compatible")
    return Member(name, candidate, Quota(daily, minute, zone), mappings, path)


def chain(*members: Member, strategy: str = "in_order", fallback: Member | None = None) -> Chain:
    return Chain("default", "fast", members, strategy, fallback)


def counted(used: Mapping[str, Counters] | None = None) -> Callable[[Member], Counters]:
    """What a ledger knows: nothing was used but of these."""
    return lambda each: (used or {}).get(each.provider, Counters())


def chance(seed: int = 1) -> Random:
    return Random(seed)
