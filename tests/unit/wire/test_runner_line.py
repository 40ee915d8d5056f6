"""Both halves of a runner's line keep to their state tables, whatever the other does."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits
from pointsman.wire.runner_calls import Answer, Begin, Continue, RunnerCalls, Stop
from pointsman.wire.runner_frames import CANCEL, NEXT, START, FrameError, ModelRequest, ModelResponse
from pointsman.wire.runner_line import Refused, RunnerLine

_LIMITS = RunnerLimits(active_requests=2, request_bytes=20, data_bytes=10, response_bytes=25)
_IDS = ("a", "b", "c")


def start(request_id: str = "a", body: bytes = b"{}") -> ModelRequest:
    return ModelRequest(request_id, START, "m", "http://localhost:1/v1", msgspec.Raw(body))


def ask(operation: str, request_id: str = "a") -> ModelRequest:
    return ModelRequest(request_id, operation)


def test_a_frame_is_delivered_once_for_each_credit() -> None:
    line = RunnerLine(_LIMITS)
    assert line.asked(start())
    assert line.received(ModelResponse("a", data="1")) is not None
    assert line.asked(ask(NEXT))
    delivery = line.received(ModelResponse("a", data="2", done=True))
    assert delivery is not None
    assert delivery.response.data == "2"
    assert line.live == frozenset()


def test_a_frame_without_credit_closes_the_line() -> None:
    line = RunnerLine(_LIMITS)
    line.asked(start())
    line.received(ModelResponse("a"))
    with pytest.raises(FrameError):
        line.received(ModelResponse("a"))


def test_frames_that_come_late_or_unasked_are_dropped() -> None:
    line = RunnerLine(_LIMITS)
    assert line.received(ModelResponse("never")) is None
    line.asked(start())
    assert line.asked(ask(CANCEL))
    assert line.received(ModelResponse("a")) is None
    assert not line.asked(ask(CANCEL))


@pytest.mark.parametrize(("size", "code"), [(9, ""), (10, ""), (11, "runner_frame_too_large")])
@pytest.mark.limit("runner.data_bytes")
@pytest.mark.guarantee("S7")
def test_the_bound_of_one_frames_data(size: int, code: str) -> None:
    line = RunnerLine(_LIMITS)
    line.asked(start())
    delivery = line.received(ModelResponse("a", data="x" * size))
    assert delivery is not None
    assert (delivery.response.error, delivery.cancels) == (code, bool(code))
    assert ("a" in line.live) == (not code)


@pytest.mark.parametrize(("last", "code"), [(4, ""), (5, ""), (6, "runner_response_limit")])
@pytest.mark.limit("runner.response_bytes")
@pytest.mark.guarantee("S7")
def test_the_bound_of_all_data_together_counts_bytes(last: int, code: str) -> None:
    line = RunnerLine(_LIMITS)
    line.asked(start())
    for _ in range(2):
        line.received(ModelResponse("a", data="é" * 5))
        line.asked(ask(NEXT))
    delivery = line.received(ModelResponse("a", data="x" * last))
    assert delivery is not None
    assert delivery.response.error == code


@pytest.mark.limit("runner.data_bytes", "runner.response_bytes")
def test_an_answer_of_16_mib_in_lines_of_64_kib_passes_and_a_byte_more_does_not() -> None:
    line, limits = RunnerLine(DEFAULT_RUNNER_LIMITS), DEFAULT_RUNNER_LIMITS
    line.asked(start())
    piece = ModelResponse("a", data="x" * limits.data_bytes)
    for _ in range(limits.response_bytes // limits.data_bytes):
        delivery = line.received(piece)
        assert delivery is not None
        assert not delivery.response.error
        line.asked(ask(NEXT))
    delivery = line.received(ModelResponse("a", data="x"))
    assert delivery is not None
    assert (delivery.response.error, delivery.cancels) == ("runner_response_limit", True)
    assert line.live == frozenset()


@pytest.mark.parametrize(("size", "code"), [(19, ""), (20, ""), (21, "runner_request_too_large")])
@pytest.mark.limit("runner.request_bytes")
@pytest.mark.guarantee("S7")
def test_the_bound_of_a_request(size: int, code: str) -> None:
    line = RunnerLine(_LIMITS)
    body = b'{"m":"' + b"x" * (size - 8) + b'"}'
    if code:
        with pytest.raises(Refused, match=code):
            line.asked(start(body=body))
    else:
        assert line.asked(start(body=body))


@pytest.mark.limit("runner.active_requests")
@pytest.mark.guarantee("S7")
def test_the_third_of_two_is_refused_until_a_slot_is_free() -> None:
    line = RunnerLine(_LIMITS)
    line.asked(start("a"))
    line.asked(start("b"))
    with pytest.raises(Refused, match="runner_busy"):
        line.asked(start("c"))
    line.asked(ask(CANCEL, "b"))
    assert line.asked(start("c"))


@pytest.mark.parametrize("again", [start(), ask(NEXT)])
def test_what_is_under_way_is_not_asked_twice(again: ModelRequest) -> None:
    line = RunnerLine(_LIMITS)
    line.asked(start())
    with pytest.raises(Refused, match="runner_proxy_error"):
        line.asked(again)
    assert line.live == {"a"}


def test_a_lost_line_ends_everything_on_it() -> None:
    line = RunnerLine(_LIMITS)
    line.asked(start("a"))
    line.asked(start("b"))
    assert line.lost() == {"a", "b"}
    assert line.received(ModelResponse("a")) is None


def test_a_runner_calls_only_what_its_operator_approved() -> None:
    calls = RunnerCalls(lambda request: request.model_id == "m", _LIMITS)
    assert calls.received(start()) == Begin(start())
    other = ModelRequest("b", START, "other", "http://localhost:1/v1", msgspec.Raw(b"{}"))
    step = calls.received(other)
    assert isinstance(step, Answer)
    assert (step.response.status, step.response.error, step.response.done) == (403, "runner_model_not_allowed", True)
    assert calls.live == {"a"}


def test_a_runner_has_as_many_at_once_as_were_agreed() -> None:
    calls = RunnerCalls(lambda _: True, _LIMITS)
    calls.received(start("a"))
    calls.received(start("b"))
    step = calls.received(start("c"))
    assert isinstance(step, Answer)
    assert (step.response.status, step.response.error) == (429, "runner_busy")


@pytest.mark.parametrize("twice", [start(), ask(NEXT)])
def test_a_gateway_that_asks_twice_loses_the_line(twice: ModelRequest) -> None:
    calls = RunnerCalls(lambda _: True, _LIMITS)
    calls.received(start())
    with pytest.raises(FrameError):
        calls.received(twice)


def test_a_runner_sends_only_what_it_has_credit_for() -> None:
    calls = RunnerCalls(lambda _: True, _LIMITS)
    calls.received(start())
    calls.sent(ModelResponse("a"))
    assert not calls.may_send("a")
    with pytest.raises(FrameError):
        calls.sent(ModelResponse("a"))
    assert calls.received(ask(NEXT)) == Continue("a")
    calls.sent(ModelResponse("a", done=True))
    assert calls.received(ask(NEXT)) is None
    assert calls.received(ask(CANCEL)) is None


_ACTS = st.lists(st.tuples(st.sampled_from(["start", "next", "cancel", "reply", "end", "junk"]), st.sampled_from(_IDS)))


@given(_ACTS)
@pytest.mark.guarantee("S5")
def test_two_honest_halves_never_break_the_line(acts: list[tuple[str, str]]) -> None:
    """Whatever is asked in whatever order: what the gateway's half passes on, the runner's takes, and the reverse."""
    line, calls = RunnerLine(_LIMITS), RunnerCalls(lambda _: True, _LIMITS)
    used: set[str] = set()
    for act, request_id in acts:
        if act in ("start", "next", "cancel"):
            if act == "start" and request_id in used and request_id not in line.live:
                continue  # ids are random: none comes twice
            used.add(request_id)
            request = start(request_id) if act == "start" else ask(act, request_id)
            try:
                passed_on = line.asked(request)
            except Refused:
                continue
            if passed_on:
                step = calls.received(request)
                assert isinstance(step, {"start": Begin, "next": Continue, "cancel": Stop}[act])
        elif act == "junk":
            assert request_id in line.live or line.received(ModelResponse(request_id)) is None
        elif calls.may_send(request_id):
            response = ModelResponse(request_id, done=act == "end")
            calls.sent(response)
            assert line.received(response) is not None
        assert line.live == calls.live
        assert len(line.live) <= _LIMITS.active_requests


@given(st.lists(st.tuples(st.sampled_from(["start", "next", "cancel", "frame", "end"]), st.sampled_from(_IDS))))
def test_a_hostile_runner_never_gets_more_frames_through_than_it_was_asked_for(acts: list[tuple[str, str]]) -> None:
    line = RunnerLine(_LIMITS)
    asked = dict.fromkeys(_IDS, 0)
    delivered = dict.fromkeys(_IDS, 0)
    for act, request_id in acts:
        if act in ("frame", "end"):
            try:
                delivery = line.received(ModelResponse(request_id, done=act == "end"))
            except FrameError:
                assert request_id in line.lost()
                return
            delivered[request_id] += delivery is not None
        else:
            try:
                passed_on = line.asked(start(request_id) if act == "start" else ask(act, request_id))
            except Refused:
                continue
            asked[request_id] += passed_on and act != "cancel"
        assert all(delivered[each] <= asked[each] for each in _IDS)


def test_a_request_whose_time_is_over_is_forgotten_and_a_next_for_it_comes_too_late() -> None:
    calls = RunnerCalls(lambda _: True, _LIMITS)
    calls.received(start())
    calls.sent(ModelResponse("a"))
    calls.gave_up("a")
    calls.gave_up("never")
    assert calls.live == frozenset()
    assert calls.received(ask(NEXT)) is None
    assert not calls.may_send("a")
