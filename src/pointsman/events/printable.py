"""Text from outside, made fit to be told: one line, bounded, without user info, queries and what looks like a key."""

import re
from functools import lru_cache

MOST_CHARACTERS = 200
_LONGEST_HOST = 253
_BARE = re.compile(r"[!#-<>-\[\]-~]+")
_KEY_LIKE = re.compile(
    # A word that announces a key, with what hangs on it; or a run too long and mixed for a name.
    r"(?i:\b(?:sk|pk|rk|gsk|xai|key|api[-_]?key|token|secret|bearer|nvapi|ghp|gho|hf|pplx|eyj)[-_.=:%][^/?#]*)"
    r"|AIza[^/?#]*"
    r"|(?=[A-Za-z0-9_+=%]*[0-9])(?=[A-Za-z0-9_+=%]*[A-Za-z])[A-Za-z0-9_+=%]{24,}"
)
_AUTHORITY = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)")
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def printable(text: str, most: int = MOST_CHARACTERS) -> str:
    """Text that fits into one line: control characters escaped, at most `most` characters."""
    if len(text) <= most and text.isprintable():
        return text
    escaped = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[: most + 1])
    return escaped if len(escaped) <= most else escaped[: most - 1] + "…"


def quoted(text: str) -> str:
    """A value of a human line: bare when it is one plain word, else in double quotes with backslash escapes."""
    if _BARE.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@lru_cache(maxsize=128)
def told_path(target: str) -> str:
    """The path of a request target: no query, fragment, authority or user info; key-like parts become `***`."""
    match = _AUTHORITY.match(target)
    if match is not None:
        target = match["path"] or "/"
    path = re.split(r"[?#]", target[: 8 * MOST_CHARACTERS], maxsplit=1)[0]
    return printable(_KEY_LIKE.sub("***", path))


def told_authority(target: str) -> tuple[str, str]:
    """Host and port asked for by a CONNECT authority or an absolute URL, without user info.

    The port is a URL's default where none is written, and empty where there is none. A host is told as asked, even
    when it looks like a key: where a client wanted to go is the point of telling it.
    """
    match = _AUTHORITY.match(target)
    authority = match["authority"] if match is not None else re.split(r"[/?#]", target, maxsplit=1)[0]
    authority = authority.rpartition("@")[2]
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = authority, ""
    if not port and match is not None:
        port = str(_DEFAULT_PORTS.get(match["scheme"].lower(), ""))
    return printable(host, _LONGEST_HOST), printable(port, 10)
