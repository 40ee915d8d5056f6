"""Event streams under rules: what goes on, when, and how changed."""

import json

import pytest

from pointsman.core.policy import Blocked, Effect
from pointsman.routing.streamed_answer import StreamedAnswer
from tests.support.answers import (
    DONE,
    STREAMS,
    Passed,
    answer_rule,
    chat_events,
    delta,
    event,
    message_events,
    rules_of,
    text_of,
)
from tests.support.policies import MESSAGES

REDACT = answer_rule("hide", Effect.REDACT, pattern="secret")


@pytest.mark.parametrize("dialect", STREAMS)
def test_a_text_without_a_match_passes_byte_for_byte(dialect: str) -> None:
    events = STREAMS[dialect](["all ", "is \u00e9 ", "well: se", "cre", "cy, sec ret"])
    made = Passed(rules_of(answer_rule(pattern="secret word"), REDACT, dialect=dialect), events)
    assert (made.out, made.told, made.hits) == (b"".join(events), "", [])


@pytest.mark.guarantee("P6")
@pytest.mark.parametrize("dialect", STREAMS)
def test_a_word_that_comes_in_parts_is_replaced_where_it_began(dialect: str) -> None:
    events = STREAMS[dialect](["the sec", "r", "et word ", "and more, and more"])
    made = Passed(rules_of(REDACT, dialect=dialect), events)
    assert text_of(made.out) == "the [redacted] word and more, and more"
    assert b"secret" not in made.out
    assert not made.told
    assert {rule for rule, _ in made.places} == {"hide"}


@pytest.mark.guarantee("P6")
@pytest.mark.parametrize("dialect", STREAMS)
def test_a_blocked_word_does_not_pass_and_what_was_certain_before_it_does(dialect: str) -> None:
    events = STREAMS[dialect](["a long beginning ", "of it, then the sec", "r", "et word ", "and more, and more"])
    made = Passed(rules_of(answer_rule("no-word", pattern="secret"), dialect=dialect), events)
    assert made.told == "the answer is refused by the rule 'no-word' of a policy"
    assert text_of(made.out) == "a long beginning "
    assert b"".join(events).startswith(made.out)


def test_events_go_on_as_soon_as_it_is_certain() -> None:
    events = chat_events(["abc", "defg", "hijklmn", "o"])
    made = Passed(rules_of(REDACT), events)
    assert made.steps[0] == events[0]
    assert made.steps[1] == b""
    assert made.steps[2] == b""  # 7 characters; with those of the match and one more it is 7 behind the first
    assert made.steps[3] == b"".join(events[1:3])
    assert made.out == b"".join(events)


def test_a_pattern_without_a_bound_holds_a_text_to_its_end() -> None:
    events = message_events(["abc" * 50, "defg" * 50])
    made = Passed(rules_of(answer_rule(pattern="q.*z"), dialect=MESSAGES), events)
    assert made.steps[:3] == events[:3]
    assert made.steps[3:5] == [b"", b""]
    assert made.steps[5] == b"".join(events[3:6])


def test_rules_that_flag_hold_nothing_and_see_all() -> None:
    events = chat_events(["the sec", "ret ", "word"])
    made = Passed(rules_of(answer_rule("seen", Effect.FLAG, pattern="secret +word")), events)
    assert made.steps[:-1] == events
    assert made.places == [("seen", "/choices/0/delta/content")]


@pytest.mark.guarantee("P8")
def test_a_dry_run_holds_and_changes_nothing() -> None:
    events = chat_events(["the sec", "ret ", "word"])
    made = Passed(rules_of(answer_rule("no", pattern="secret"), REDACT, is_enforced=False), events)
    assert made.steps[:-1] == events
    assert [(hit.rule, hit.effect, hit.would) for hit in made.hits] == [
        ("no", Effect.FLAG, Effect.BLOCK),
        ("hide", Effect.FLAG, Effect.REDACT),
    ]


@pytest.mark.parametrize(
    "spelled", [r"\u0073e\u0063ret", r"s\u0065cret", "SeCrEt", "ｓｅｃｒｅｔ", "se\u200bcr\u00adet"]
)
def test_no_spelling_passes(spelled: str) -> None:
    for at in range(len(spelled) + 1):
        if "\\" in spelled and "\\" in (spelled[max(0, at - 6) : at]):
            continue
        parts = [
            b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % part.encode()
            for part in (spelled[:at], spelled[at:])
        ]
        made = Passed(rules_of(REDACT), [*(b"data: " + part + b"\n\n" for part in parts), DONE])
        assert text_of(made.out) == "[redacted]", at


def test_halves_of_a_character_that_come_apart_are_one() -> None:
    rules = rules_of(answer_rule("hide", Effect.REDACT, pattern="x😀y"))
    parts = [r"a😀x\ud83d", r"\ude00", "yb"]
    events = [b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % part.encode() for part in parts]
    assert text_of(Passed(rules, [*events, DONE]).out) == "a😀[redacted]b"


def test_the_order_of_events_is_kept_and_choices_are_texts_of_their_own() -> None:
    events = [event(delta(0, content="sec")), event(delta(1, content="sec")), event(delta(0, content="ret")), DONE]
    made = Passed(rules_of(REDACT), events)
    told = [json.loads(each[6:])["choices"][0] for each in made.out.split(b"\n\n")[:3]]
    assert [(each["index"], each["delta"]["content"]) for each in told] == [(0, "[redacted]"), (1, "sec"), (0, "")]


def test_comments_line_ends_and_members_stay_as_they_were() -> None:
    one = b': hi\r\nid: 7\r\ndata: { "choices" : [ {"index":0, "delta":{"content": "a \\u0053ecret\\n"} } ],\r\n'
    one += b'data:"x": 1.0 }\r\n\r\n'
    made = Passed(rules_of(REDACT), [b": comment\n\n", one, b"\r\n", DONE])
    assert made.out == b": comment\n\n" + one.replace(b"\\u0053ecret", b"[redacted]") + b"\r\n" + DONE


@pytest.mark.guarantee("P7")
@pytest.mark.parametrize(
    "call",
    [
        event(delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "bash", "arguments": ""}}])),
        event(delta(function_call={"name": "BASH", "arguments": ""})),
        event({"type": "content_block_start", "index": 1,
               "content_block": {"type": "tool_use", "name": "bash", "input": {}}}),
        event({"type": "response.output_item.added", "item": {"type": "function_call", "name": "bash"}}),
    ],
)  # fmt: skip
def test_a_denied_tool_is_never_called(call: bytes) -> None:
    before = event(delta(content="I do it"))
    made = Passed(rules_of(answer_rule("no-shell", denied_tools=("bash",))), [before, call, DONE])
    assert (made.out, made.told) == (before, "the answer is refused by the rule 'no-shell' of a policy")


def test_the_name_of_a_tool_may_come_in_parts() -> None:
    rules = rules_of(answer_rule("no-shell", denied_tools=("bash",)))
    parts = [event(delta(tool_calls=[{"index": 0, "function": {"name": name}}])) for name in ("ba", "sh")]
    assert Passed(rules, [*parts, DONE]).told


def test_arguments_go_on_with_an_allowed_call_and_are_searched_when_they_are_whole() -> None:
    def call(**function: str) -> bytes:
        return event(delta(tool_calls=[{"index": 0, "function": function}]))

    events = [call(name="look", arguments=""), call(arguments='{"a": "s\\u00'), call(arguments='65cret"}'), DONE]
    allowed = answer_rule("only", allowed_tools=("look",))
    assert Passed(rules_of(allowed), events).out == b"".join(events)
    assert Passed(rules_of(allowed), events).steps[:4] == events
    assert Passed(rules_of(answer_rule("no", pattern="secret")), events).told
    made = Passed(rules_of(REDACT), events)
    said = [json.loads(each[6:])["choices"][0]["delta"]["tool_calls"][0] for each in made.out.split(b"\n\n")[:3]]
    assert "".join(each["function"]["arguments"] for each in said) == '{"a": "[redacted]"}'


@pytest.mark.guarantee("P9")
@pytest.mark.parametrize(
    "broken",
    [
        b"data: {\n\n",
        b'data: {"a":1,"a":2}\n\n',
        b"data: []\n\n",
        b'{"choices":[{"message":{"content":"hidden"}}]}\n\n',
        event({"choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [{"token": "x"}]}}]}),
    ],
)
def test_what_cannot_be_searched_does_not_pass(broken: bytes) -> None:
    made = Passed(rules_of(REDACT), [b": hi\n\n", broken, DONE])
    assert made.out == b": hi\n\n"
    assert made.told.startswith("the answer cannot be searched, and a policy applies: ")
    flagged = Passed(rules_of(REDACT, is_enforced=False), [b": hi\n\n", broken, DONE])
    assert flagged.out == b": hi\n\n" + broken + DONE


def test_a_text_that_goes_on_behind_its_end_does_not_pass() -> None:
    events = [*chat_events(["abc"]), event(delta(content="def"))]
    assert Passed(rules_of(REDACT), events).told.endswith("a text goes on behind its end")


@pytest.mark.guarantee("P9")
@pytest.mark.parametrize(("room", "passes"), [(0, True), (-1, False)])
def test_what_is_held_has_a_bound(room: int, passes: bool) -> None:
    events = message_events(["abc"] * 20)
    rules = rules_of(answer_rule(pattern="q.*z"), dialect=MESSAGES)
    assert rules.holding is not None
    most = sum(map(len, events[3:23])) + room
    made = StreamedAnswer(rules.holding, lambda _: None, holds=True, longest=None, most=most)
    if passes:
        assert b"".join(map(made.receive, events)) == b"".join(events)
        return
    assert b"".join(map(made.receive, events[:22])) == b"".join(events[:3])
    with pytest.raises(Blocked, match="would have to be held"):
        made.receive(events[22])


@pytest.mark.guarantee("P9")
def test_an_event_has_a_bound() -> None:
    one = event(delta(content="a" * 100))
    rules = rules_of(REDACT)
    assert rules.holding is not None
    for most, passes in ((len(one), True), (len(one) - 1, False)):
        for pieces in ([one], [one[:-1], one[-1:]]):
            made = StreamedAnswer(rules.holding, lambda _: None, holds=True, longest=6, most=most)
            if passes:
                assert b"".join(map(made.receive, pieces)) == b""
                assert made.finish() == one
            else:
                with pytest.raises(Blocked, match="an event is larger"):
                    list(map(made.receive, pieces))
