"""What tells one bundle from another.

Keys are among the fields, and a bundle's revision is no secret: so it is keyed, and says nothing of them to whoever
lacks the secret (DESIGN D14).
"""

import hmac
from collections.abc import Sequence
from dataclasses import fields

import msgspec

from pointsman.core.secret import Secret
from pointsman.routing.resolve import ResolvedRoute

_DIGITS = 16  # as many as the original's


def revision(secret: bytes, routes: Sequence[ResolvedRoute]) -> str:
    """16 hexadecimal digits over every field of every route, in their order; equal for equal input, at any time."""
    # JSON, because it keeps apart what concatenation would not: where one value ends and the next begins.
    values = [[_plain(getattr(route, field.name)) for field in fields(route)] for route in routes]
    return hmac.digest(secret, msgspec.json.encode(values), "sha256").hex()[:_DIGITS]


def _plain(value: object) -> object:
    return value.reveal() if isinstance(value, Secret) else value
