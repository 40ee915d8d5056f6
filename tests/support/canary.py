"""The values that must never show: a key and a prompt, made anew for every run of the tests, and how to find them.

They lie beside the evidence, so that processes which the tests start plant the same ones.
"""

import base64
import hashlib
import secrets
import string
from collections.abc import Mapping

from tests.support import evidence

PIECE = 8
"""Characters: as much as a masked key may never leave standing."""

_ALPHABET = string.ascii_letters + string.digits
_HASHES = ("md5", "sha1", "sha256", "sha512", "blake2b")
_LEAST_BASE64 = 12
_NOTHING = bytes(64)
"""What most of a database's files consists of; no form of a value has it."""


def _planted(name: str, prefix: str) -> str:
    # A file, not a variable: that would be in every environment.
    path = evidence.directory() / f"planted-{name}"
    if not path.exists():
        path.write_text(prefix + "".join(secrets.choice(_ALPHABET) for _ in range(40)))
    return path.read_text()


KEY = _planted("key", "sk-")
"""The provider key of every test that needs one."""
TOKEN = _planted("token", "pst_")
"""The sandbox token of every test that needs one."""
PROMPT = _planted("prompt", "")
"""In the body of requests that are not about their body."""


def forms(value: str) -> dict[bytes, str]:
    """What would give `value` away, and what each is: its pieces, its encodings, its digests."""
    raw = value.encode()
    found: dict[bytes, str] = {}
    random = raw.removeprefix(b"sk-")
    for at in range(len(random) - PIECE + 1):
        found[random[at : at + PIECE]] = "a piece"
    for shift in range(3):
        # Three alignments, less the characters that neighbours have a part in.
        text = base64.b64encode(b"\0" * shift + raw)[4 * (shift > 0) : -4]
        for at in range(0, len(text) - _LEAST_BASE64 + 1, 4):
            found[text[at : at + _LEAST_BASE64]] = "base64"
    found[raw.hex().encode()] = found[raw.hex().upper().encode()] = "hexadecimal"
    for name in _HASHES:
        digest = hashlib.new(name, raw)
        found[digest.hexdigest().encode()[:16]] = name
        found[base64.b64encode(digest.digest())[:16]] = f"{name} in base64"
    return found


class Finder:
    """Looks for several values at once."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` maps what to call it to the value."""
        self._forms = {
            form: f"{kind} of the {name}" for name, value in values.items() for form, kind in forms(value).items()
        }

    def find(self, data: bytes) -> list[str]:
        """What `data` gives away, and where; nothing, as a rule."""
        if _NOTHING in data:
            data = b"\0".join(filter(None, data.split(_NOTHING)))
        places = ((data.find(form), what) for form, what in self._forms.items())
        return [f"{what}: {data[max(0, at - 200) : at + 60]!r}" for at, what in places if at >= 0]
