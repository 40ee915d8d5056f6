"""Rows of a corpus, and how each is aimed at a path that is served."""

import base64
import binascii
import json
import re
from dataclasses import dataclass
from pathlib import Path

_SOUND_LINE = re.compile(rb"\A[!#$%&'*+\-.^_`|~0-9A-Za-z]+ (?:/|(?i:https?)://)[!-~]* HTTP/1\.[01]\r\n")
_SOUND_HOST = re.compile(rb"(?im)^(host):[ \t]*(?:[a-z0-9._=-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?[ \t]*\r\n")
_ANY_HOST = re.compile(rb"(?im)^host[ \t]*:")
_REFERENCES = ("haproxy", "nginx")
AS_IT_IS, AIMED, WITH_HOST = "as it is", "aimed", "aimed, Host added"


class BadCorpus(ValueError):
    """The file is not a corpus; the message names the line."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request and what others say of it."""

    number: int
    name: str
    raw: bytes
    verdict: str
    """accept, reject or any: what the source says."""
    references: tuple[tuple[str, str], ...]
    """What other proxies did, by name: `fwdN` forwarded N requests, anything else stopped it."""

    @property
    def has_host(self) -> bool:
        """Whether there is a field of that name in its first head, however broken."""
        return _ANY_HOST.search(self.raw.partition(b"\r\n\r\n")[0]) is not None

    @property
    def must_be_refused(self) -> bool:
        """Invalid by its source, and forwarded by none of the references."""
        return self.verdict == "reject" and not any(did.startswith("fwd") for _, did in self.references)


def read_corpus(path: Path) -> list[Row]:
    """The rows of a JSONL file. Raises BadCorpus, OSError."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            raw = base64.b64decode(entry["raw"], validate=True)
            references = tuple((name, str(entry[name])) for name in _REFERENCES if name in entry)
            name = " ".join(part for part in (entry.get("src", ""), entry["name"]) if part)
            rows.append(Row(number, name, raw, entry["verdict"], references))
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise BadCorpus(
                f"{path}:{number}: {reason}; a row is a JSON object with name, raw (base64) and verdict"
            ) from None
    if not rows:
        raise BadCorpus(f"{path}: no rows")
    return rows


def aims(row: Row) -> dict[str, bytes]:
    """What is sent for a row: its bytes; and, when its request line is sound, the same aimed at a served path.

    Only a Host that is sound itself is replaced, since a broken one may be the point of the row. When there is none,
    the row is sent with one as well: without it every further fault would stay unseen.
    """
    sent = {AS_IT_IS: row.raw}
    line = _SOUND_LINE.match(row.raw)
    if line is None:
        return sent
    head, gap, rest = row.raw[line.end() - 2 :].partition(b"\r\n\r\n")
    version = row.raw[line.end() - 10 : line.end() - 2]
    target = b"POST /v1/chat/completions " + version
    hosted = _SOUND_HOST.sub(rb"\1: inference.local\r\n", head + gap)
    sent[AIMED] = target + hosted + rest
    if not row.has_host:
        sent[WITH_HOST] = target + b"\r\nHost: inference.local" + head + gap + rest
    return sent
