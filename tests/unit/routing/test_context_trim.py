"""What is taken out of conversations, and what stays as it was."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.core.context_options import LEAST_TOKENS, ContextOptions
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.routing.context_trim import BYTES_PER_TOKEN, CALLING_TURNS, LEAST_REPEATED, optimise
from pointsman.wire.conversation import read_conversation
from tests.unit.routing.conversations import (
    DIALECTS,
    SEPARATORS,
    Step,
    body_of,
    called,
    key_of,
    messages_of,
    said,
    tool,
)

DUPLICATES = ContextOptions(drop_duplicates=True)
UNUSED = ContextOptions(drop_unused_tools=True)
TRIMMED = ContextOptions(most_tokens=LEAST_TOKENS)
ALL = ContextOptions(True, True, LEAST_TOKENS)
LONG = "line of a file\n" * 30
every_dialect = pytest.mark.parametrize("protocol", DIALECTS)


def left_of(protocol: str, body: bytes) -> list[Any]:
    return list(json.loads(body)[key_of(protocol)])


# Duplicates


@every_dialect
def test_a_result_that_was_there_already_is_told_by_reference_and_the_first_stays(protocol: P) -> None:
    steps = [said("user", "go"), called(LONG), called(LONG), said("assistant", "done")]
    found = optimise(body_of(protocol, steps), protocol, DUPLICATES)
    expected = [*steps[:2], called("[The same as the result of call_1_0, above]"), steps[3]]
    assert found.body == body_of(protocol, expected)
    assert found.saved_tokens == (len(body_of(protocol, steps)) - len(found.body)) // BYTES_PER_TOKEN > 0


@every_dialect
@pytest.mark.parametrize(("length", "is_told"), [(LEAST_REPEATED - 3, False), (LEAST_REPEATED - 2, True)])
def test_a_short_result_is_left_where_it_is(protocol: P, length: int, is_told: bool) -> None:
    body = body_of(protocol, [said("user", "go"), called("x" * length), called("x" * length)])  # and two quotes
    assert (optimise(body, protocol, DUPLICATES).body is not body) is is_told


@every_dialect
def test_a_message_said_twice_in_a_row_is_sent_once(protocol: P) -> None:
    steps = [said("user", "go"), said("user", "go"), said("assistant", "yes"), said("user", "go")]
    found = optimise(body_of(protocol, steps), protocol, DUPLICATES)
    assert found.body == body_of(protocol, [steps[0], *steps[2:]])


@every_dialect
def test_what_a_prompt_cache_is_marked_to_end_with_is_not_taken_out(protocol: P) -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]}
    body = json.dumps({key_of(protocol): [marked, marked]}).encode()
    assert optimise(body, protocol, DUPLICATES).body is body


# Tools


@every_dialect
@pytest.mark.parametrize(("rounds", "goes"), [(CALLING_TURNS - 1, False), (CALLING_TURNS, True)])
def test_a_tool_that_many_turns_have_not_called_goes(protocol: P, rounds: int, goes: bool) -> None:
    steps = [said("user", "go"), *[called("ok")] * rounds]
    body = body_of(protocol, steps, ["write", "read", "shell"])
    found = optimise(body, protocol, UNUSED)
    assert found.body == body_of(protocol, steps, ["read"] if goes else ["write", "read", "shell"])


@every_dialect
def test_the_tools_of_a_conversation_are_the_same_in_every_later_turn(protocol: P) -> None:
    steps = [said("user", "go"), *[called("ok")] * CALLING_TURNS]
    bodies = [body_of(protocol, [*steps, *[called("more")] * count], ["write", "read"]) for count in range(5)]
    sent = [optimise(body, protocol, UNUSED).body for body in bodies]
    assert all(after.startswith(before[:-2]) for before, after in pairwise(sent))


@every_dialect
def test_a_tool_that_is_chosen_or_marked_or_none_of_the_clients_stays(protocol: P) -> None:
    fields = json.loads(body_of(protocol, [said("user", "go"), *[called("ok")] * CALLING_TURNS], ["read", "write"]))
    fields["tools"][1]["cache_control"] = {"type": "ephemeral"}
    fields["tools"] += [tool(protocol, "chosen"), {"type": "web_search_20250305", "max_uses": 1}]
    fields["tool_choice"] = {"type": "tool", "name": "chosen"}
    body = json.dumps(fields).encode()
    assert optimise(body, protocol, UNUSED).body is body


@every_dialect
def test_where_all_tools_would_go_they_stay(protocol: P) -> None:
    body = body_of(protocol, [said("user", "go"), *[called("ok")] * CALLING_TURNS], ["write", "shell"])
    assert optimise(body, protocol, UNUSED).body is body


# The budget


def exact(protocol: str, more: int) -> tuple[list[Step], bytes]:
    """A conversation whose body has so many bytes more than the budget."""
    steps = [said("system", "be good"), said("user", "one"), said("assistant", "a" * 200), said("user", "")]
    short = LEAST_TOKENS * BYTES_PER_TOKEN + more - len(body_of(protocol, steps))
    steps[3] = said("user", "b" * short)
    return steps, body_of(protocol, steps)


@every_dialect
def test_a_conversation_within_its_budget_is_left_alone_and_one_byte_more_is_not(protocol: P) -> None:
    _, body = exact(protocol, 0)
    assert optimise(body, protocol, TRIMMED).body is body
    steps, body = exact(protocol, 1)
    found = optimise(body, protocol, TRIMMED)
    assert found.body == body_of(protocol, [steps[0], steps[3]])


@every_dialect
def test_a_turn_that_is_cut_in_its_midst_keeps_what_its_user_said(protocol: P) -> None:
    steps = [said("user", "old"), said("assistant", "old"), said("user", "task"), *[called("r" * 300)] * 20]
    left = left_of(protocol, optimise(body_of(protocol, steps), protocol, TRIMMED).body)
    whole = messages_of(protocol, steps)
    assert left[0] == whole[2]
    assert 1 < len(left) < len(whole) - 2
    assert left[1:] == whole[1 - len(left) :]


@every_dialect
def test_the_last_turn_stays_however_long_it_is(protocol: P) -> None:
    steps = [said("system", "s" * 9000), said("user", "old"), said("assistant", "old"), said("user", "u" * 9000)]
    found = optimise(body_of(protocol, steps), protocol, TRIMMED)
    assert found.body == body_of(protocol, [steps[0], steps[3]])


def test_a_cut_never_falls_between_a_call_and_a_result_that_came_late() -> None:
    call, result = messages_of(P.CHAT_COMPLETIONS, [called("ok")])
    old, late, last = ({"role": "user", "content": text} for text in ("x" * 1100, "wait", "y" * 3000))
    body = json.dumps({"messages": [old, call, late, result, {"role": "assistant", "content": "done"}, last]}).encode()
    found = optimise(body, P.CHAT_COMPLETIONS, TRIMMED)
    assert found.unchanged == ""
    assert left_of(P.CHAT_COMPLETIONS, found.body) == [last]


def test_reasoning_stays_with_the_calls_that_it_led_to() -> None:
    thought = {"type": "reasoning", "id": "rs", "summary": []}
    items: list[Any] = [{"role": "user", "content": "go"}]
    for number in range(20):
        calls = messages_of(P.RESPONSES, [called("r" * 200, "r" * 200)])
        flat = [calls[0], calls[2], calls[1], calls[3]]  # each call before its result
        items += [thought, *json.loads(json.dumps(flat).replace('"call_0', f'"c{number}'))]
    body = json.dumps({"input": items}).encode()
    left = left_of(P.RESPONSES, optimise(body, P.RESPONSES, TRIMMED).body)
    assert left[0] == items[0]
    assert left[1] == thought
    assert len(left) < len(items)


# What is not understood


@pytest.mark.parametrize(
    ("protocol", "body", "word"),
    [
        (P.CHAT_COMPLETIONS, b"not json", "not_json"),
        (P.CHAT_COMPLETIONS, b'{"messages":[]', "not_json"),
        (P.CHAT_COMPLETIONS, b"{}", "unknown_item"),
        (P.CHAT_COMPLETIONS, b'{"messages":[1]}', "unknown_item"),
        (P.CHAT_COMPLETIONS, b'{"messages":[],"messages":[]}', "repeated_key"),
        (P.CHAT_COMPLETIONS, b'{"messages":[{"role":"function"}]}', "unknown_item"),
        (P.CHAT_COMPLETIONS, b'{"messages":[{"role":"assistant","function_call":{}}]}', "unknown_item"),
        (P.CHAT_COMPLETIONS, b'{"messages":[{"role":"tool","tool_call_id":"a"}]}', "unpaired"),
        (P.MESSAGES, b'{"messages":[{"role":"user","content":[{"type":"tool_use","id":"a"}]}]}', "unknown_item"),
        (P.MESSAGES, b'{"messages":[{"role":"robot","content":"x"}]}', "unknown_item"),
        (P.RESPONSES, b'{"input":[{"type":"item_reference","id":"x"}]}', "unknown_item"),
        (P.RESPONSES, b'{"input":[],"previous_response_id":"r"}', "stored_history"),
    ],
)
def test_what_is_not_understood_is_left_as_it_is_and_the_reason_told(protocol: P, body: bytes, word: str) -> None:
    found = optimise(body, protocol, ALL)
    assert found.body is body
    assert (found.saved_tokens, found.unchanged) == (0, word)


@pytest.mark.parametrize("protocol", [P.COMPLETIONS, P.EMBEDDINGS])
def test_other_dialects_have_no_conversations(protocol: P) -> None:
    body = b'{"messages":[{"role":"user","content":"a"},{"role":"user","content":"a"}]}'
    assert optimise(body, protocol, ALL)[:3] == (body, 0, "")


# Whatever the conversation

TEXTS = st.sampled_from(["go", 'é\u2028\\"', LONG, LONG + "!", "x" * 300])
STEPS = st.one_of(
    st.builds(said, st.sampled_from(["user", "assistant", "system"]), TEXTS),
    st.lists(TEXTS, min_size=1, max_size=3).map(lambda texts: called(*texts)),
)
CONVERSATIONS = st.lists(STEPS, max_size=30)
OPTIONS = st.builds(ContextOptions, st.booleans(), st.booleans(), st.sampled_from([0, LEAST_TOKENS, 2 * LEAST_TOKENS]))


@pytest.mark.guarantee("X2")
@settings(deadline=None)
@given(st.sampled_from(DIALECTS), CONVERSATIONS, st.integers(0, 30), st.sampled_from(SEPARATORS))
def test_without_duplicates_a_grown_conversation_begins_with_the_bytes_that_were_sent_before(
    protocol: P, steps: list[Step], count: int, separators: tuple[str, str]
) -> None:
    before, after = (
        optimise(body_of(protocol, each, separators=separators), protocol, DUPLICATES).body
        for each in (steps[:count], steps)
    )
    assert after.startswith(before[:-2])


@settings(deadline=None)
@given(st.sampled_from(DIALECTS), st.lists(st.integers(1, 3), min_size=20, max_size=60))
def test_the_oldest_turns_go_in_strides_so_that_most_requests_begin_as_the_last_one_did(
    protocol: P, rounds: list[int]
) -> None:
    steps: list[Step] = []
    for number, count in enumerate(rounds):
        steps += [said("user", f"task {number}"), *[called("r" * 40)] * count, said("assistant", "done")]
    bodies = [body_of(protocol, steps[:count]) for count in range(1, len(steps) + 1)]
    sent = [optimise(body, protocol, TRIMMED).body for body in bodies]
    assert all(len(body) <= LEAST_TOKENS * BYTES_PER_TOKEN for body in sent)
    broken = sum(not after.startswith(before[:-2]) for before, after in pairwise(sent))
    assert broken <= -(-max(0, len(bodies[-1]) - LEAST_TOKENS * BYTES_PER_TOKEN) // LEAST_TOKENS)


@pytest.mark.guarantee("X2")
@settings(deadline=None)
@given(st.sampled_from(DIALECTS), CONVERSATIONS, OPTIONS, st.sampled_from(SEPARATORS))
def test_what_is_sent_is_a_conversation_whose_parts_are_the_clients_byte_for_byte(
    protocol: P, steps: list[Step], options: ContextOptions, separators: tuple[str, str]
) -> None:
    body = body_of(protocol, steps, ["read", "write"], separators)
    found = optimise(body, protocol, options)
    assert found.unchanged == ""
    assert len(found.body) <= len(body)
    before, after = (read_conversation(each, protocol) for each in (body, found.body))
    for read in (before, after):
        assert len(read.tools) <= 2
    whole = [body[slice(*each.place)] for each in before.entries]
    for entry in after.entries:
        written = found.body[slice(*entry.place)]
        assert written in whole or (entry.role == "result" and b"[The same as the result of call_" in written)
    systems = [body[slice(*each.place)] for each in before.entries if each.is_system]
    kept = [found.body[slice(*each.place)] for each in after.entries if each.is_system]
    assert set(kept) == set(systems)
    fields, sent = json.loads(body), json.loads(found.body)
    for changed in ("tools", key_of(protocol)):
        del fields[changed], sent[changed]
    assert fields == sent
    assert optimise(body, protocol, options) == found


@settings(deadline=None)
@given(st.sampled_from(DIALECTS), CONVERSATIONS, st.data())
def test_a_broken_body_is_never_changed_into_another_broken_one(
    protocol: P, steps: list[Step], data: st.DataObject
) -> None:
    body = bytearray(body_of(protocol, steps, ["read"]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b'"', b"[", b"}", b"\\", b"\xff"])
        )
    given_body = bytes(body)
    found = optimise(given_body, protocol, ALL)
    if found.body is not given_body:
        json.loads(found.body)
        read_conversation(found.body, protocol)
