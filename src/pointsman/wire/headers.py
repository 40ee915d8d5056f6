"""Header field grammar shared by both directions."""

import re

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""RFC 9110 section 5.6.2."""

BROKEN_EARLY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]|\A[\r\n]")
"""What no continuation of an unfinished head can mend."""

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields of one connection; never relayed in either direction."""

FIELD_LINE = re.compile(rb"(?<=\n)(" + TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)\r\n")
"""One field line, only straight after a line end.

The caller compares the number of matches with the number of line feeds, so a line that is not a field (folded,
spaced before the colon, ended by a bare LF, holding a control byte) cannot hide between two that are.
"""

Fields = list[tuple[bytes, bytes]]
"""Name as sent and value without surrounding white space, in order."""


_UTF8 = re.compile(rb';[ \t]*charset="?(?:utf-?8|us-ascii)"?[ \t]*(?=;|\Z)')
"""A parameter of a media type, in lower case."""


def is_utf8(content_type: bytes) -> bool:
    """Whether a reader that goes by Content-Type takes JSON for UTF-8: no other charset is named, however oddly."""
    if content_type == b"application/json":  # so most say
        return True
    return b"charset" not in _UTF8.sub(b"", content_type.lower())


def parse_fields(block: bytes, start: int) -> Fields | None:
    """The fields of `block[start:]`, which must begin right after a LF and hold whole lines; None if malformed."""
    fields = FIELD_LINE.findall(block, start)
    if len(fields) != block.count(b"\n", start):
        return None
    return fields


def end_of_hop(fields: Fields) -> frozenset[bytes]:
    """Lower-case names of the fields that Connection fields end at this hop (RFC 9110 section 7.6.1).

    What describes the content is never one of them: without Content-Encoding a body cannot be read.
    """
    options: set[bytes] = set()
    for name, value in fields:
        if name.lower() == b"connection":
            options.update(option.strip().lower() for option in value.split(b","))
    return frozenset(option for option in options if not option.startswith(b"content-"))
