"""Rules about answers at the data listener: what a client gets of them, and what the operator sees."""

import json
from typing import Any

import pytest

from pointsman.core.policy import Effect, RuleScope
from tests.support.answers import DONE, answer_rule, chat_events, delta, event, text_of
from tests.support.policed_door import CHAT, MESSAGES, PolicedDoor
from tests.support.raw_client import Answer, RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer

JSON = b"Content-Type: application/json\r\n"
ANSWER = b'{ "choices":[{"index":0,"message":{"role":"assistant","content":"the \\u0053ecret \xc3\xa9"}}] , "x":1.0}'
HIDE = answer_rule("hide", Effect.REDACT, pattern="secret")
BLOCK = answer_rule("no-word", pattern="secret")


class Asked:
    """A request that an upstream has, whose client waits."""

    def __init__(
        self, policed: PolicedDoor, upstream: Upstream, route: str = "fast", fields: bytes = b"", path: bytes = CHAT
    ) -> None:
        self.client: RawClient = policed.door.connect()
        self.client.send(post(b'{"model":"%b","stream":true}' % route.encode(), path, fields))
        self.peer: UpstreamPeer = upstream.accept()
        self.request = self.peer.request()

    def __enter__(self) -> "Asked":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def wait_for(self, text: bytes) -> None:
        """Until the client has got that, of an answer that goes on."""
        self.client.buffer = self.client.read_until(text) + self.client.buffer


def said(answer: Answer) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(answer.body)["error"]
    return error


@pytest.mark.guarantee("P6")
@pytest.mark.parametrize("route", ["fast", "chained"])
def test_an_answer_is_redacted_in_its_strings_alone(policed: PolicedDoor, upstream: Upstream, route: str) -> None:
    policed.set(HIDE)
    with Asked(policed, upstream, route) as asked:
        asked.peer.respond(ANSWER)
        answer = asked.client.answer()
    assert answer.body == ANSWER.replace(b"\\u0053ecret", b"[redacted]")
    assert answer.complete
    assert answer.value(b"x-pointsman-policy") == b"enforced=1; answers=redact"
    hit = next(each for each in policed.door.ended() if each["event"] == "policy_hit")
    assert (hit["rule"], hit["effect"], hit["place"], hit["enforced"]) == (
        "hide",
        "redact",
        "/choices/0/message/content",
        True,
    )


@pytest.mark.parametrize("route", ["fast", "chained"])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_answer_is_held_against_the_version_that_its_request_was(
    policed: PolicedDoor, upstream: Upstream, route: str, is_first: bool
) -> None:
    if not is_first:
        policed.set(HIDE)
    with Asked(policed, upstream, route) as asked:
        policed.set(BLOCK)
        asked.peer.respond(ANSWER)
        answer = asked.client.answer()
    assert answer.body == (ANSWER if is_first else ANSWER.replace(b"\\u0053ecret", b"[redacted]"))
    assert answer.value(b"x-pointsman-policy") == (None if is_first else b"enforced=1; answers=redact")


@pytest.mark.guarantee("P6")
@pytest.mark.parametrize("route", ["fast", "chained"])
@pytest.mark.parametrize("path", [CHAT, b"/v1/completions", b"/v1/responses", MESSAGES])
def test_a_blocked_answer_is_refused_in_the_words_of_its_dialect(
    policed: PolicedDoor, upstream: Upstream, path: bytes, route: str
) -> None:
    policed.set(BLOCK)
    with Asked(policed, upstream, route, path=path) as asked:
        asked.peer.respond(ANSWER)
        answer = asked.client.answer()
    assert answer.status == 403
    assert said(answer)["message"] == "the answer is refused by the rule 'no-word' of a policy"
    assert path == MESSAGES or said(answer)["code"] == "policy_blocked"
    assert b"ecret" not in answer.body
    events = policed.door.ended()
    assert [each["event"] for each in events[-2:]] == ["policy_hit", "infer_failed"]
    record = policed.records[-1]
    assert record.notes is not None
    assert [hit.rule for hit in record.notes.hits] == ["no-word"]
    assert (record.reason, record.status) == ("policy_blocked", 403)


@pytest.mark.guarantee("P6")
@pytest.mark.parametrize("route", ["fast", "chained"])
def test_a_stream_that_is_blocked_after_its_first_byte_ends_in_one_error_event(
    policed: PolicedDoor, upstream: Upstream, route: str
) -> None:
    policed.set(BLOCK)
    events = chat_events(["it is a long way ", "to the sec", "ret", "!"])
    with Asked(policed, upstream, route) as asked:
        asked.peer.start_events()
        for each in events[:4]:
            asked.peer.chunk(each)
        asked.wait_for(b"long way")
        asked.peer.chunk(b"".join(events[4:]))
        assert asked.peer.wait_closed(10)
        answer = asked.client.answer()
    assert answer.status == 200
    told = {"message": "response truncated: policy_blocked", "type": "proxy_stream_error", "code": "policy_blocked"}
    passed = b"".join(events[:2])
    assert answer.body.startswith(passed + b"data: ")
    assert json.loads(answer.body[len(passed) + 6 :]) == {"error": told}
    assert answer.complete
    record = policed.records[-1]
    assert (record.status, record.reason, record.sent) == (200, "policy_blocked", len(passed))


@pytest.mark.guarantee("P7")
@pytest.mark.parametrize("route", ["fast", "chained"])
def test_a_denied_call_that_comes_first_is_a_status_and_stops_the_upstream(
    policed: PolicedDoor, upstream: Upstream, route: str
) -> None:
    policed.set(answer_rule("no-shell", denied_tools=("bash",)))
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "bash", "arguments": ""}}
    with Asked(policed, upstream, route) as asked:
        asked.peer.start_events()
        asked.peer.chunk(event(delta(role="assistant", tool_calls=[call])))
        assert asked.peer.wait_closed(10)
        answer = asked.client.answer()
    assert (answer.status, said(answer)["code"]) == (403, "policy_blocked")


@pytest.mark.guarantee("P6")
def test_a_redacted_stream_is_handed_on_event_by_event(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(HIDE)
    events = chat_events(["it is a long way to the sec", "ret", " of it, which is long"])
    with Asked(policed, upstream) as asked:
        asked.peer.start_events()
        for each in events[:4]:
            asked.peer.chunk(each)
        asked.wait_for(b"long way to the [redacted]")
        for each in events[4:]:
            asked.peer.chunk(each)
        asked.peer.end_chunks()
        answer = asked.client.answer()
    assert text_of(answer.body) == "it is a long way to the [redacted] of it, which is long"
    assert answer.body.endswith(DONE)


def test_an_upstream_that_is_cut_is_told_behind_what_was_held(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(HIDE)
    events = chat_events(["abc", "the sec"])
    with Asked(policed, upstream) as asked:
        asked.peer.start_events()
        asked.peer.chunk(b"".join(events[:3]) + b"data: {")
        asked.peer.close()
        answer = asked.client.answer()
    assert answer.body.startswith(b"".join(events[:3]))
    assert b"upstream read error" in answer.body
    assert policed.door.ended()[-1]["reason"] == "stream_truncated"


@pytest.mark.parametrize("route", ["fast", "chained"])
def test_a_cut_stream_whose_held_text_matches_is_refused(policed: PolicedDoor, upstream: Upstream, route: str) -> None:
    policed.set(BLOCK)
    with Asked(policed, upstream, route) as asked:
        asked.peer.start_events()
        asked.peer.chunk(event(delta(content="the secret")))
        asked.peer.close()
        assert asked.client.answer().status == 403


@pytest.mark.guarantee("P9")
def test_an_answer_without_a_coding_is_asked_for_and_one_with_a_coding_is_refused(
    policed: PolicedDoor, upstream: Upstream
) -> None:
    policed.set(HIDE)
    with Asked(policed, upstream, fields=b"Accept-Encoding: gzip, br\r\n") as asked:
        assert asked.request.value(b"accept-encoding") == b"identity"
        asked.peer.respond(b"\x1f\x8b", JSON + b"Content-Encoding: gzip\r\n")
        answer = asked.client.answer()
    assert answer.status == 403
    assert said(answer)["message"].endswith("it is compressed")
    with Asked(policed, upstream, "free", fields=b"Accept-Encoding: gzip\r\n") as asked:
        assert asked.request.value(b"accept-encoding") == b"identity"


def test_a_route_that_no_rule_is_about_keeps_its_path(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(answer_rule(pattern="secret", scope=RuleScope(routes=("free",))))
    with Asked(policed, upstream, fields=b"Accept-Encoding: gzip\r\n") as asked:
        assert asked.request.value(b"accept-encoding") == b"gzip"
        asked.peer.respond(ANSWER)
        answer = asked.client.answer()
    assert answer.body == ANSWER
    assert answer.value(b"x-pointsman-policy") is None


@pytest.mark.guarantee("P8")
def test_a_dry_run_changes_nothing_of_an_answer_and_tells_what_it_saw(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(BLOCK, HIDE, is_enforced=False)
    with Asked(policed, upstream, fields=b"Accept-Encoding: gzip\r\n") as asked:
        assert asked.request.value(b"accept-encoding") == b"gzip"
        asked.peer.respond(ANSWER)
        answer = asked.client.answer()
    assert answer.body == ANSWER
    assert answer.value(b"x-pointsman-policy") == b"dry-run=1; answers=block,redact"
    hits = [each for each in policed.door.ended() if each["event"] == "policy_hit"]
    assert [(each["rule"], each["effect"], each["enforced"]) for each in hits] == [
        ("no-word", "block", False),
        ("hide", "redact", False),
    ]


def test_an_upstreams_error_passes_as_it_is(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(BLOCK)
    with Asked(policed, upstream) as asked:
        asked.peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 6\r\n\r\nsecret")
        answer = asked.client.answer()
    assert (answer.status, answer.body) == (400, b"secret")


def test_what_answers_here_is_searched_too(policed: PolicedDoor) -> None:
    policed.set(answer_rule("no", pattern="mock|fake|response|hello"))
    answer = policed.ask({"model": "canned", "messages": []})
    assert answer.status == 403


def test_the_usage_of_a_refused_answer_is_read(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(BLOCK)
    with Asked(policed, upstream) as asked:
        asked.peer.respond(
            b'{"choices":[{"message":{"content":"secret"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}'
        )
        assert asked.client.answer().status == 403
    policed.door.ended()
    record = policed.records[-1]
    record.settle()
    assert record.usage is not None
    assert (record.usage.input_tokens, record.usage.output_tokens) == (3, 4)


def test_an_account_that_is_halted_gets_what_was_held_and_is_told(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(answer_rule(pattern="q.*z"))
    events = chat_events(["abc", "def"])
    with Asked(policed, upstream) as asked:
        asked.peer.start_events()
        for each in events[:3]:
            asked.peer.chunk(each)
        asked.wait_for(events[0])
        policed.door.advance(0)
        policed.door.halt("default")
        answer = asked.client.answer()
    assert answer.body.startswith(b"".join(events[:1]))
    assert b"account_halted" in answer.body
    assert answer.complete
