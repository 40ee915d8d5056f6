"""What a usage row says of a request besides its tokens: in every dialect, whole and streamed, answered and refused."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from pointsman.core.caller import KEY, Caller
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.token_digest import digest_of
from pointsman.core.usage_row import UsageRow
from pointsman.gateway.stages.usage import UsageRows, row_of
from pointsman.proxy.stages import Stages
from tests.support import dialects
from tests.support.canary import PROMPT
from tests.support.data_door import DataDoor
from tests.support.dialects import Event, Reply, Say, ToolCall
from tests.support.door import candidate
from tests.support.raw_client import Answer, post
from tests.support.upstream import Upstream
from tests.support.waiting import wait_until

REPLY = Say("hello " * 20)
TOOL = ToolCall("look", {"path": "a"})
CHAT, COMPLETIONS, RESPONSES, MESSAGES = "chat/completions", "completions", "responses", "messages"
ANSWERS: dict[str, Callable[[Reply], dict[str, Any]]] = {
    CHAT: dialects.chat_answer,
    RESPONSES: dialects.responses_answer,
    MESSAGES: dialects.messages_answer,
    COMPLETIONS: lambda _: {"choices": [{"text": "a", "finish_reason": "length"}]},
}
EVENTS: dict[str, Callable[[Reply], Iterable[Event]]] = {
    CHAT: dialects.chat_events,
    RESPONSES: dialects.responses_events,
    MESSAGES: dialects.messages_events,
    COMPLETIONS: lambda _: [("", {"choices": [{"text": "a", "finish_reason": "length"}]})],
}
REASONS = [
    (CHAT, REPLY, "stop"),
    (CHAT, TOOL, "tool_calls"),
    (COMPLETIONS, REPLY, "length"),
    (RESPONSES, REPLY, "completed"),
    (MESSAGES, REPLY, "end_turn"),
    (MESSAGES, TOOL, "tool_use"),
]


class NotedDoor:
    """A listener whose requests become rows."""

    def __init__(self, upstream: Upstream) -> None:
        every = tuple(InferenceProtocol)
        fast = candidate(upstream.url, route="fast", provider="work", protocols=every, ai_model_id="m-1")
        self.rows: list[UsageRow] = []
        self.upstream = upstream
        self.door = DataDoor(table=ModelTable({"fast": fast}, default="fast"))
        self.door.keys[digest_of("mine")] = Entry(Caller("default", "laptop", KEY, "ada"), self.door.table)
        opened = UsageRows(None, print, lambda: 1.0, keep_days=1)  # type: ignore[arg-type]  # nothing is written
        self.door.stages = Stages(usage_open=opened.open, usage_record=lambda record: self.rows.append(row_of(record)))

    def ask(self, path: str, answer: bytes, kind: bytes = b"application/json", fields: bytes = b"") -> UsageRow:
        body = json.dumps({"model": "gpt-any", "messages": [{"content": PROMPT}]}).encode()
        with self.door.connect() as client:
            sent = b"Authorization: Bearer mine\r\nx-stainless-retry-count: 2\r\n"
            client.send(post(body, b"/v1/" + path.encode(), sent))
            peer = self.upstream.accept()
            peer.request()
            peer.respond(answer, b"Content-Type: %b\r\n%b" % (kind, fields))
            client.answer()
        return self.row()

    def refused(self, body: bytes, fields: bytes = b"") -> tuple[Answer, UsageRow]:
        with self.door.connect() as client:
            client.send(post(body, fields=fields))
            answer = client.answer()
        return answer, self.row()

    def row(self) -> UsageRow:
        wait_until(lambda: bool(self.rows))
        return self.rows.pop()


@pytest.fixture
def noted() -> Iterator[NotedDoor]:
    with Upstream() as upstream:
        noted = NotedDoor(upstream)
        with noted.door:
            yield noted


@pytest.mark.parametrize(("path", "reply", "reason"), REASONS)
def test_a_whole_answer_says_why_it_ended_and_what_its_provider_calls_it(
    noted: NotedDoor, path: str, reply: Reply, reason: str
) -> None:
    row = noted.ask(path, json.dumps(ANSWERS[path](reply)).encode(), fields=b"x-request-id: req_1\r\ncf-ray: no\r\n")
    assert (row.finish_reason, row.upstream_request_id, row.error_detail) == (reason, "req_1", "")
    assert (row.key_name, row.key_user, row.requested_model, row.route) == ("laptop", "ada", "gpt-any", "fast")
    assert (row.ai_model_id, row.client_retries, row.is_fallback) == ("m-1", 2, 0)


@pytest.mark.parametrize(("path", "reply", "reason"), REASONS)
def test_so_does_a_stream(noted: NotedDoor, path: str, reply: Reply, reason: str) -> None:
    events = "".join(f"event: {name}\ndata: {json.dumps(body)}\n\n" for name, body in EVENTS[path](reply))
    row = noted.ask(path, events.encode() + b"data: [DONE]\n\n", b"text/event-stream", b"request-id: req_2\r\n")
    assert (row.finish_reason, row.upstream_request_id, row.reason) == (reason, "req_2", "")


def test_an_answer_that_says_nothing_of_its_end_leaves_its_reason_empty(noted: NotedDoor) -> None:
    row = noted.ask("embeddings", b'{"data":[{"embedding":[1.0]}],"usage":{"prompt_tokens":3}}')
    assert (row.finish_reason, row.upstream_request_id, row.prompt_tokens) == ("", "", 3)


def test_a_stream_that_breaks_off_says_so_without_a_word_of_it(noted: NotedDoor) -> None:
    said = b'data: {"choices":[{"delta":{"content":"%b"},"finish_reason":null}]}\n\n' % PROMPT.encode()
    row = noted.ask(CHAT, said, b"text/event-stream")
    assert (row.reason, row.finish_reason) == ("stream_truncated", "")
    assert row.error_detail == "the upstream ended its event stream without a last event"
    assert PROMPT not in str(row)


def test_what_is_refused_tells_what_was_asked_for_and_why(noted: NotedDoor) -> None:
    noted.door.table = ModelTable(noted.door.table.targets)  # without a default
    answer, row = noted.refused(json.dumps({"model": "x" * 300, "messages": [{"content": PROMPT}]}).encode())
    assert (answer.status, row.status, row.reason, row.route) == (404, 404, "no_such_model", "")
    assert (row.requested_model, row.ai_model_id, row.client_retries) == ("x" * 255 + "…", "", 0)
    assert row.error_detail
    assert PROMPT not in row.error_detail


@pytest.mark.parametrize(
    ("told", "noted_as"), [(b"0", 0), (b"1", 1), (b"9999", 9999), (b"10000", 0), (b"-1", 0), (b"a", 0)]
)
def test_a_number_of_retries_that_is_none_counts_as_none(noted: NotedDoor, told: bytes, noted_as: int) -> None:
    fields = b"x-stainless-retry-count: %b\r\n" % told
    with noted.door.connect() as client:
        client.send(post(b'{"model":"fast"}', fields=fields))
        peer = noted.upstream.accept()
        peer.request()
        peer.respond()
        client.answer()
    assert noted.row().client_retries == noted_as
