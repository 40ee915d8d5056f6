"""A conversation of plain messages is told at once, and never anything else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.protocols import InferenceProtocol as P
from pointsman.wire.conversation import read_conversation
from pointsman.wire.named_once import MOST_BYTES, MOST_MEMBERS, members_named_once
from pointsman.wire.output_bound import output_bound_of, read_output_bound
from pointsman.wire.plain_conversation import plain_messages

DIALECTS = (P.CHAT_COMPLETIONS, P.MESSAGES, P.RESPONSES)
KEYS = {P.CHAT_COMPLETIONS: "messages", P.MESSAGES: "messages", P.RESPONSES: "input"}
every_dialect = pytest.mark.parametrize("protocol", DIALECTS)


def body_of(protocol: P, *contents: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": content} for content in contents]
    return json.dumps({"model": "m", KEYS[protocol]: messages, **more}, ensure_ascii=False).encode()


def told(body: bytes, protocol: str) -> list[bytes] | None:
    members = members_named_once(body)
    return None if members is None else plain_messages(members, protocol)


@every_dialect
def test_plain_messages_are_told_as_they_are_written(protocol: P) -> None:
    body = body_of(protocol, 'a: "b"', "é", max_tokens=5, stream=True)
    assert told(body, protocol) == [body[slice(*each.place)] for each in read_conversation(body, protocol)[0]]


@every_dialect
@pytest.mark.parametrize("length", [MOST_BYTES, MOST_BYTES + 1])
def test_a_body_beyond_the_bound_is_not_looked_at(protocol: P, length: int) -> None:
    body = body_of(protocol, "x" * (length - len(body_of(protocol, ""))))
    assert (told(body, protocol) is not None) is (length <= MOST_BYTES)


@every_dialect
@pytest.mark.parametrize("count", [MOST_MEMBERS, MOST_MEMBERS + 1])
def test_a_body_of_more_members_is_not_looked_at(protocol: P, count: int) -> None:
    body = body_of(protocol, "x", **{f"k{number}": 1 for number in range(count - 2)})
    assert (told(body, protocol) is not None) is (count <= MOST_MEMBERS)


@every_dialect
@pytest.mark.parametrize(
    "text",
    [
        b'{"%k":[{"role":"user","content":"a"}],"%k":[{"role":"user","content":"a"}]}',
        b'{"%k":[{"role":"user","content":"a"}],"x":1,"\\u0078":2}',
        b'{"%k":[{"role":"user","content":"a","role":"tool"}]}',
        b'{"%k":[{"role":"user","content":"a"}],"tools":[]}',
        b'{"%k":[{"role":"user","content":[]}]}',
        b'{"%k":[{"role":"user","content":"\xff"}]}',
        b'{"%k":[{"role":"user"}]} x',
        b'{"a:b":1}',
        b"[]",
        b"",
    ],
)
def test_whatever_is_not_plain_or_may_be_read_in_two_ways_is_left_to_the_reader(protocol: P, text: bytes) -> None:
    assert told(text.replace(b"%k", KEYS[protocol].encode()), protocol) is None


@pytest.mark.parametrize("protocol", [P.COMPLETIONS, P.EMBEDDINGS, ""])
def test_other_dialects_have_none(protocol: str) -> None:
    assert told(b'{"messages":[]}', protocol) is None


_VALUES = st.sampled_from(['"a"', '"user"', '"tool"', "1", "null", "[]", "{}", '"a:b"', '[{"type":"text"}]', '"\\""'])
_NAMES = st.sampled_from(["role", "content", "type", "tool_calls", "r\\u006fle", "name"])
_MESSAGES = st.lists(st.tuples(_NAMES, _VALUES), max_size=3).map(
    lambda members: "{" + ",".join(f'"{name}" : {value}' for name, value in members) + "}"
)
_PLAIN = st.sampled_from(['{"role":"user","content":"a"}', '{"role" : "assistant", "content":"b:"}'])
_LISTS = st.lists(st.one_of(_PLAIN, _PLAIN, _MESSAGES), max_size=3).map(lambda each: f"[{' , '.join(each)}]")
_KEYS = st.sampled_from(
    [
        "max_tokens",
        "MAX_tokens",
        "n",
        "messages",
        "input",
        "model",
        "mod\\u0065l",
        "tools",
        "prompt",
        "a:b",
        "previous_response_id",
    ]
)
_BODIES = st.lists(st.tuples(_KEYS, st.one_of(_LISTS, _VALUES)), max_size=4).map(
    lambda members: ("{" + ", ".join(f'"{name}": {value}' for name, value in members) + "}").encode()
)


@given(st.sampled_from(DIALECTS), _BODIES)
def test_whatever_is_told_at_once_is_what_the_reader_finds(protocol: P, body: bytes) -> None:
    messages = told(body, protocol)
    if messages is None:
        return
    read = read_conversation(body, protocol)
    assert [body[slice(*each.place)] for each in read.entries] == messages
    assert all(each.is_plain for each in read.entries)
    assert not read.tools


@given(_BODIES)
def test_the_output_that_known_members_ask_for_is_what_the_whole_body_asks_for(body: bytes) -> None:
    members = members_named_once(body)
    if members is not None:
        assert output_bound_of(members) == read_output_bound(body)
