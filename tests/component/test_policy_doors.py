"""A text that a rule refuses reaches no upstream by another door, framing, coding or name of its route."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.core.policy import RuleScope
from tests.support.policed_door import PolicedDoor
from tests.support.policies import rule
from tests.support.upstream import Upstream

BODY = b'{"model":"fast","messages":[{"role":"user","content":"a secret"}],"input":"a secret","prompt":"a secret"}'
CHAT = b"POST /v1/chat/completions HTTP/1.1"


@pytest.fixture
def policed(tmp_path: Path, upstream: Upstream) -> Iterator[PolicedDoor]:
    policed = PolicedDoor(tmp_path, upstream)
    policed.open()
    policed.set(rule("no-word", pattern="secret", scope=RuleScope(routes=("fast",))))
    yield policed
    policed.close()


def status(policed: PolicedDoor, sent: bytes) -> int:
    with policed.door.connect() as client:
        client.send(sent)
        return client.answer().status


def with_length(line: bytes, body: bytes = BODY, fields: bytes = b"") -> bytes:
    return line + b"\r\nHost: a\r\n" + fields + b"Content-Length: %d\r\n\r\n" % len(body) + body


LINES = [
    CHAT,
    b"POST /v1/completions HTTP/1.1",
    b"POST /v1/responses HTTP/1.1",
    b"POST /v1/messages HTTP/1.1",
    b"POST /v1/messages/count_tokens HTTP/1.1",
    b"POST /v1/embeddings HTTP/1.1",
    b"POST /v1/chat/completions/ HTTP/1.1",
    b"POST /v1/chat/./completions HTTP/1.1",
    b"POST /v1/x/../chat/completions HTTP/1.1",
    b"POST /v1//chat/completions HTTP/1.1",
    b"POST //v1/chat/completions HTTP/1.1",
    b"POST /v1/chat%2fcompletions HTTP/1.1",
    b"POST /v1/%63hat/completions HTTP/1.1",
    b"POST /V1/Chat/Completions HTTP/1.1",
    b"POST /v1/chat/completions;x=y HTTP/1.1",
    b"POST /v1/chat/completions?x=y HTTP/1.1",
    b"POST /v1/chat/completions#x HTTP/1.1",
    b"POST http://a/v1/chat/completions HTTP/1.1",
    b"POST /v1/models HTTP/1.1",
    b"POST /v1/models/fast HTTP/1.1",
    b"GET /v1/chat/completions HTTP/1.1",
    b"PUT /v1/chat/completions HTTP/1.1",
    b"post /v1/chat/completions HTTP/1.1",
    b"POST /v1/chat/completions HTTP/1.0",
    b"POST /chat/completions HTTP/1.1",
    b"POST /v1/audio/speech HTTP/1.1",
    b"POST /v1/chat/completions/batch HTTP/1.1",
]


@pytest.mark.guarantee("P1")
@pytest.mark.parametrize("line", LINES)
def test_no_path_leads_past_a_rule(policed: PolicedDoor, upstream: Upstream, line: bytes) -> None:
    assert 400 <= status(policed, with_length(line)) < 500
    assert upstream.saw_nothing()


FRAMED: list[tuple[bytes, bytes]] = [
    (b"Transfer-Encoding: chunked\r\n", b"".join(b"1\r\n%c\r\n" % each for each in BODY) + b"0\r\n\r\n"),
    (b"Transfer-Encoding: chunked\r\n", b"%x;a=b\r\n%b\r\n0\r\nX: {}\r\n\r\n" % (len(BODY), BODY)),
    (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    (b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(gzip.compress(BODY)), gzip.compress(BODY)),
    (b"Content-Encoding: deflate\r\nContent-Length: %d\r\n" % len(zlib.compress(BODY)), zlib.compress(BODY)),
    (b"Content-Encoding: identity, gzip\r\nContent-Length: %d\r\n" % len(BODY), BODY),
    (b"Content-Length: %d\r\n" % len(gzip.compress(BODY)), gzip.compress(BODY)),
    (b"Content-Type: application/json; charset=utf-7\r\nContent-Length: %d\r\n" % len(BODY), BODY),
    (b"Content-Type: text/plain\r\nContent-Length: %d\r\n" % len(BODY), BODY),
    (b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n" % len(BODY), BODY),
    (b"X-HTTP-Method-Override: GET\r\nContent-Length: %d\r\n" % len(BODY), BODY),
    (b"Content-Length: %d\r\nContent-Length: 2\r\n" % len(BODY), BODY),
    (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"{}"),
]


@pytest.mark.guarantee("P1")
@pytest.mark.parametrize(("fields", "body"), FRAMED, ids=range(len(FRAMED)))
def test_no_framing_or_coding_leads_past_a_rule(
    policed: PolicedDoor, upstream: Upstream, fields: bytes, body: bytes
) -> None:
    assert 400 <= status(policed, CHAT + b"\r\nHost: a\r\n" + fields + b"\r\n" + body) < 500
    assert upstream.saw_nothing()


CODED = [
    BODY.decode().encode("utf-16"),
    BODY.decode().encode("utf-16-be"),
    BODY.decode().encode("utf-32-le"),
    b"\xef\xbb\xbf" + BODY,
    BODY + BODY,
    b'{"model":"free"}' + BODY,
    BODY.replace(b"a secret", b"a \xc1\xb3ecret"),
    BODY.replace(b"a secret", b"a \xffsecret"),
    BODY[:-1] + b',"x":' + b"[" * 2000 + b"]" * 2000 + b"}",
    BODY[:-1] + b',"messages":[]}',
    BODY[:-1] + b',"Messages":[]}',
    BODY[:-1] + b',"model":"free"}',
    BODY[:-1] + b',"m\\u006fdel":"free"}',
    BODY[:-1] + b',"MODEL":"free"}',
    BODY.replace(b'"model"', b'"m\\u006fdel"'),
    BODY.replace(b'"fast"', b'"f\\u0061st"'),
    BODY.replace(b'"fast"', b'"FAST"'),
    BODY.replace(b'"fast"', b'["fast"]'),
    BODY.replace(b'"fast"', b'" fast"'),
    b"/**/" + BODY,
    b"[" + BODY + b"]",
    b'"' + BODY.replace(b'"', b'\\"') + b'"',
]


@pytest.mark.guarantee("P2")
@pytest.mark.parametrize("body", CODED, ids=range(len(CODED)))
def test_no_coding_of_a_body_leads_past_a_rule(policed: PolicedDoor, upstream: Upstream, body: bytes) -> None:
    assert 400 <= status(policed, with_length(CHAT, body)) < 500
    assert upstream.saw_nothing()


@pytest.mark.guarantee("P1")
def test_the_default_route_has_its_rules_whatever_name_led_to_it(policed: PolicedDoor, upstream: Upstream) -> None:
    table = policed.door.table
    policed.door.table = type(table)(table.targets, "fast")
    for model in ("fast", "FAST", "gpt-4", "f\u0430st", ""):
        body = {**json.loads(BODY), "model": model}
        assert policed.ask(body).status == 403
    assert policed.ask({"messages": [{"content": "secret"}]}).status == 403
    assert upstream.saw_nothing()
