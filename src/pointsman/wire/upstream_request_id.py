"""What a provider calls a request: the id that its support asks for."""

from pointsman.wire.headers import Fields

LONGEST_ID = 128
"""Characters that are kept of one (ours); the providers' have 20 to 40."""
_NAMES = (
    b"x-request-id",  # OpenAI, and most that are like it
    b"request-id",  # Anthropic
    b"apim-request-id",  # Azure, where the one above is its gateway's
    b"x-amzn-requestid",  # Amazon Bedrock
    b"nvcf-reqid",  # NVIDIA
    b"x-pointsman-request-id",
)
_RANKS = {name: rank for rank, name in enumerate(_NAMES)}


def find_upstream_request_id(fields: Fields) -> str:
    """Of an answer's fields, the one whose name is known best; empty for none, and for one that is no plain text."""
    best, found = len(_NAMES), b""
    for name, value in fields:
        lower = name.lower()
        if lower in _RANKS and _RANKS[lower] < best:
            best, found = _RANKS[lower], value
    if not found:
        return ""
    text = found[:LONGEST_ID].decode("latin-1").strip()
    return text if text.isascii() and text.isprintable() else ""
