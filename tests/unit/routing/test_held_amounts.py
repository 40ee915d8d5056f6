"""How much of an answer is held, and what it takes to search it."""

import pytest

from pointsman.core.policy import Blocked, Effect
from pointsman.routing.answer_rules import BufferedAnswer
from pointsman.routing.streamed_answer import _MOST_EVENTS, LEAST_STEPS, StreamedAnswer
from tests.support.answers import answer_rule, chat_events, delta, event, rules_of

REDACT = answer_rule(effect=Effect.REDACT, pattern="secret")
AT_THE_END = answer_rule(effect=Effect.REDACT, pattern="secret|q.*z")


def streamed() -> StreamedAnswer:
    rules = rules_of(AT_THE_END)
    assert rules.holding is not None
    return StreamedAnswer(rules.holding, lambda _: None, holds=True, longest=None)


@pytest.mark.guarantee("P9")
@pytest.mark.parametrize("more", [0, 1])
def test_events_are_bounded_in_number_however_short_they_are(more: int) -> None:
    made = streamed()
    made.receive(event(delta(content="a")))
    empty = b"\n\n" * (_MOST_EVENTS - 1 + more)
    if more:
        with pytest.raises(Blocked, match="would have to be held"):
            made.receive(empty)
    else:
        assert made.receive(empty) == b""
        assert made.finish().endswith(empty)


def test_what_is_held_is_told_and_is_none_at_the_end() -> None:
    made, events = streamed(), chat_events(["abc"] * 50)
    for each in events[:-1]:
        made.receive(each)
    assert sum(map(len, events[1:-1])) <= made.held <= sum(map(len, events)) + 52 * 1024
    assert made.work(b"", last=True) > 150 * LEAST_STEPS
    made.receive(events[-1])
    made.finish()
    assert made.held == 0


def test_only_the_end_of_a_buffered_answer_takes_work() -> None:
    rules = rules_of(REDACT)
    assert rules.holding is not None
    made = BufferedAnswer(rules.holding, lambda _: None, holds=True)
    assert (made.work(b"{}", last=False), made.work(b"{}", last=True)) == (0, 2 * max(LEAST_STEPS, rules.holding.steps))
