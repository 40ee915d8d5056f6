"""Sizes as people write them."""

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15})(?:([KMGT])(?:iB|B)?)?", re.IGNORECASE | re.ASCII)


def read_size(text: str) -> int:
    """Bytes from `512M`, `2G`, `1073741824`; units are powers of 1024. Raises ValueError that says what is wrong."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; for example 512M or 2G")
    return int(match[1]) * _UNITS[(match[2] or "").upper()]
