"""A conversation of plain messages is told at once, and never anything else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import MalformedRequest
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.wire.conversation import read_conversation
from pointsman.wire.json_strings import read_document
from pointsman.wire.plain_conversation import MOST_MEMBERS, is_plain

DIALECTS = (P.CHAT_COMPLETIONS, P.MESSAGES, P.RESPONSES)
KEYS = {P.CHAT_COMPLETIONS: "messages", P.MESSAGES: "messages", P.RESPONSES: "input"}
USER = {"role": "user", "content": "a"}
every_dialect = pytest.mark.parametrize("protocol", DIALECTS)


def asking(protocol: P, messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", KEYS[protocol]: messages, **more}


@every_dialect
def test_plain_messages_each_another_are_told(protocol: P) -> None:
    messages = [{"role": "system", "content": "a"}, USER, {"role": "assistant", "content": "a"}]
    assert is_plain(asking(protocol, messages, max_tokens=5), protocol)
    assert is_plain(asking(protocol, []), protocol)


@every_dialect
@pytest.mark.parametrize("count", [MOST_MEMBERS, MOST_MEMBERS + 1])
def test_a_request_of_more_members_is_left_to_the_reader(protocol: P, count: int) -> None:
    request = asking(protocol, [USER], **{f"k{number}": 1 for number in range(count - 2)})
    assert is_plain(request, protocol) is (count <= MOST_MEMBERS)


@every_dialect
@pytest.mark.parametrize(
    "messages",
    [
        [USER, USER],
        [{"role": "tool", "content": "a"}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": None}],
        [{"role": ["user"], "content": "a"}],
        [{"role": "user"}],
        [{"role": "user", "content": "a", "tool_calls": []}],
        ["a"],
        "a",
        None,
    ],
)
def test_whatever_is_not_plain_is_left_to_the_reader(protocol: P, messages: Any) -> None:
    assert not is_plain(asking(protocol, messages), protocol)


@every_dialect
@pytest.mark.parametrize("member", ["tools", "tool_choice", "previous_response_id", "conversation", "prompt"])
def test_a_request_with_tools_or_a_history_elsewhere_is_left_to_the_reader(protocol: P, member: str) -> None:
    assert not is_plain(asking(protocol, [USER], **{member: None}), protocol)


@pytest.mark.parametrize("protocol", [P.COMPLETIONS, P.EMBEDDINGS, ""])
def test_other_dialects_have_none(protocol: str) -> None:
    assert not is_plain({"messages": [], "input": [], "": []}, protocol)


_VALUES: st.SearchStrategy[Any] = st.sampled_from(["a", "user", "tool", 1, None, [], {}, [{"type": "text"}], '"'])
_NAMES = st.sampled_from(["role", "content", "type", "tool_calls", "name"])
_PLAIN = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "system"]), st.text()
)
_MESSAGES = st.lists(st.one_of(_PLAIN, _PLAIN, st.dictionaries(_NAMES, _VALUES, max_size=3)), max_size=3)
_MEMBERS = st.sampled_from(["messages", "input", "model", "tools", "prompt", "a:b", "previous_response_id"])
_REQUESTS = st.dictionaries(_MEMBERS, st.one_of(_MESSAGES, _VALUES), max_size=4)


@given(st.sampled_from(DIALECTS), _REQUESTS, st.booleans())
def test_whatever_is_told_at_once_is_what_the_reader_finds(
    protocol: P, request: dict[str, Any], is_ascii: bool
) -> None:
    body = json.dumps(request, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    try:
        document = read_document(body)
    except MalformedRequest:
        return
    if not is_plain(document.value, protocol):
        return
    read = read_conversation(body, protocol)
    written = [body[slice(*each.place)] for each in read.entries]
    assert all(each.is_plain for each in read.entries)
    assert len(set(written)) == len(written) == len(request[KEYS[protocol]])
    assert not read.tools
