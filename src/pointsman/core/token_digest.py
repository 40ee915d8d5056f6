"""What is kept of tokens and keys instead of themselves."""

import hashlib


def digest_of(token: str) -> bytes:
    """SHA-256. What we make has 256 random bits, so a slow hash would protect nothing more."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
