"""What a gateway's answer must be before anything uses it. A gateway is trusted with keys, not to be free of faults.

The rules are those of the route file, less what only a file can say. No text here repeats a value.
"""

import unicodedata
from dataclasses import dataclass

from pointsman.core.candidate import SANDBOX_SYSTEM, Bundle, Candidate
from pointsman.core.provider import LONGEST_NAME, LONGEST_TYPE, LONGEST_VALUE
from pointsman.core.reach import refused_address
from pointsman.core.route import LONGEST_TIMEOUT_SECONDS

LONGEST_MODEL = 512
"""Characters; more than a gateway of this version stores, as another version's may store more."""
MOST_PROTOCOLS = 32
"""That one route lists; there are six, and a later version's are few more."""
_SCHEMES = ("http", "https", "mock")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A route of an answer that is not used."""

    route: str
    """Its name, which may be any text."""
    reason: str


@dataclass(frozen=True, slots=True)
class ReceivedBundle:
    """An answer: what can be used of it, and what cannot."""

    bundle: Bundle
    left_out: tuple[LeftOut, ...] = ()


def check_received(candidate: Candidate) -> None:
    """Raises ValueError, with a reason, for a candidate that must not be used."""
    _check_text("its name", candidate.route, LONGEST_NAME)
    if candidate.route != SANDBOX_SYSTEM and _letters(candidate.route) == _letters(SANDBOX_SYSTEM):
        raise ValueError(f"its name is almost {SANDBOX_SYSTEM}, which agents must not reach")
    _check_text("its model", candidate.model, LONGEST_MODEL)
    if len(candidate.provider_type) > LONGEST_TYPE or not candidate.provider_type.isprintable():
        raise ValueError("its provider type is no plain text, or too long")
    if not candidate.protocols:
        raise ValueError("it speaks no protocol")
    if candidate.endpoint.scheme not in _SCHEMES:
        raise ValueError("its base URL names a file of this machine, which no gateway may choose")
    _check_reach(candidate.endpoint.host)
    if candidate.timeout_seconds > LONGEST_TIMEOUT_SECONDS:
        raise ValueError(f"its timeout is longer than {LONGEST_TIMEOUT_SECONDS} seconds")
    key = candidate.api_key
    if key is not None and not key.fits_a_header(LONGEST_VALUE):
        raise ValueError("its key cannot stand in a header")


def _check_text(what: str, text: str, longest: int) -> None:
    if not text:
        raise ValueError(f"{what} is empty")
    if len(text) > longest or not text.isprintable():
        raise ValueError(f"{what} is no plain text, or longer than {longest} characters")


def _letters(name: str) -> str:
    """What is left of a name when case, width and everything between letters are nothing."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold()))


def _check_reach(host: str) -> None:
    try:
        reason = refused_address(host)
    except ValueError:  # a name; what it resolves to is checked when it is dialled
        return
    if reason is not None:
        raise ValueError(f"its base URL {reason}, which no route may lead to")
