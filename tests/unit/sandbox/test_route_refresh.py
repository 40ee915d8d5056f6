"""What becomes of a gateway's answers, decided without one."""

import pytest

from pointsman.core.candidate import Bundle, Candidate, make_bundle
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.received_bundle import LeftOut, ReceivedBundle
from pointsman.sandbox.route_refresh import Decision, FetchFailed, RouteRefresh, next_tick, read_interval

CANDIDATE = Candidate("inference.local", parse_endpoint("http://127.0.0.1:1/v1"), "m", ("openai_responses",))
UNREACHABLE = FetchFailed("gateway_unreachable", "refused")
TIMEOUT = FetchFailed("gateway_timeout", "late")


def received(revision: str, *candidates: Candidate, left_out: tuple[LeftOut, ...] = ()) -> ReceivedBundle:
    return ReceivedBundle(make_bundle(candidates, revision), left_out)


def told(decision: Decision) -> list[str]:
    return [news.kind.name for news in decision.news]


def test_the_first_bundle_is_loaded_and_put_in_force() -> None:
    refresh = RouteRefresh()
    decision = refresh.answered(received("r1", CANDIDATE))
    assert decision.bundle == Bundle((CANDIDATE,), (), "r1")
    assert told(decision) == ["routes_loaded", "inference_enabled"]
    assert refresh.revision == "r1"


def test_an_empty_bundle_is_a_bundle() -> None:
    decision = RouteRefresh().answered(received("r1"))
    assert decision.bundle == Bundle((), (), "r1")
    assert told(decision) == ["routes_loaded", "inference_disabled"]


def test_the_same_revision_changes_nothing_and_is_not_told() -> None:
    refresh = RouteRefresh()
    refresh.answered(received("r1", CANDIDATE))
    assert refresh.answered(None) == Decision()


def test_the_same_bundle_without_a_revision_changes_nothing_either() -> None:
    refresh = RouteRefresh()
    assert told(refresh.answered(received("", CANDIDATE))) == ["routes_loaded", "inference_enabled"]
    assert refresh.answered(received("", CANDIDATE)) == Decision()
    assert told(refresh.answered(received(""))) == ["routes_updated", "inference_disabled"]


def test_another_revision_is_an_update_and_says_when_there_are_routes_no_more_or_again() -> None:
    refresh = RouteRefresh()
    refresh.answered(received("r1", CANDIDATE))
    assert told(refresh.answered(received("r2", CANDIDATE))) == ["routes_updated"]
    assert told(refresh.answered(received("r3"))) == ["routes_updated", "inference_disabled"]
    assert told(refresh.answered(received("r4", CANDIDATE))) == ["routes_updated", "inference_enabled"]


def test_a_failure_keeps_what_is_in_force_and_is_told_once() -> None:
    refresh = RouteRefresh()
    refresh.answered(received("r1", CANDIDATE))
    first = refresh.failed(UNREACHABLE)
    assert (first.bundle, told(first)) == (None, ["fetch_failed"])
    assert (first.news[0].reason, first.news[0].detail) == ("gateway_unreachable", "refused")
    assert refresh.failed(FetchFailed("gateway_unreachable", "other words")) == Decision()
    assert refresh.revision == "r1"


def test_another_reason_is_told_once_as_well_and_none_again_and_again() -> None:
    refresh = RouteRefresh()
    reasons = [UNREACHABLE, TIMEOUT, UNREACHABLE, TIMEOUT]
    assert [told(refresh.failed(each)) for each in reasons] == [["fetch_failed"], ["fetch_failed"], [], []]


def test_recovery_is_told_with_how_many_fetches_had_failed() -> None:
    refresh = RouteRefresh()
    refresh.answered(received("r1", CANDIDATE))
    for failure in (UNREACHABLE, TIMEOUT, UNREACHABLE):
        refresh.failed(failure)
    decision = refresh.answered(None)
    assert told(decision) == ["fetch_recovered"]
    assert decision.news[0].detail == "3 fetches had failed"
    assert told(refresh.failed(UNREACHABLE)) == ["fetch_failed"]
    assert refresh.answered(None).news[0].detail == "1 fetch had failed"


def test_a_first_fetch_that_fails_and_then_succeeds_loads_the_routes() -> None:
    refresh = RouteRefresh()
    assert told(refresh.failed(UNREACHABLE)) == ["fetch_failed"]
    decision = refresh.answered(received("r1", CANDIDATE))
    assert told(decision) == ["fetch_recovered", "routes_loaded", "inference_enabled"]
    assert decision.bundle is not None


def test_a_route_that_is_left_out_is_told_and_the_others_serve() -> None:
    decision = RouteRefresh().answered(received("r1", CANDIDATE, left_out=(LeftOut("bad", "why"),)))
    assert told(decision) == ["routes_loaded", "route_left_out", "inference_enabled"]
    assert (decision.news[1].route, decision.news[1].reason) == ("bad", "route_unusable")
    assert decision.news[1].detail == "why"
    assert decision.bundle is not None
    assert decision.bundle.routes == (CANDIDATE,)


def test_a_bundle_of_rubbish_does_not_fill_the_log() -> None:
    rubbish = tuple(LeftOut(str(number), "why") for number in range(200))
    assert told(RouteRefresh().answered(received("r1", left_out=rubbish))).count("route_left_out") == 8


@pytest.mark.parametrize(
    ("last", "elapsed", "expected"),
    [
        (0, 0.0, 1),
        (0, 4.999, 1),
        (1, 5.0, 2),
        (1, 4.999, 2),  # a timer that fired early does not ask twice
        (1, 9.0, 2),
        (1, 23.0, 5),  # a fetch that took three ticks makes them fall out
        (5, 25.0, 6),
    ],
)
def test_no_tick_is_used_twice_or_made_up_for(last: int, elapsed: float, expected: int) -> None:
    assert next_tick(last, elapsed, 5.0) == expected


def test_the_default_interval_is_five_seconds() -> None:
    assert read_interval({}) == 5.0


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS": "9"}, 9.0),
        ({"OPENSHELL_ROUTE_REFRESH_INTERVAL_SECS": "7"}, 7.0),
        ({"OPENSHELL_ROUTE_REFRESH_INTERVAL_SECS": "7", "POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS": "9"}, 9.0),
        ({"POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS": " 0.25 "}, 0.25),
    ],
)
def test_the_environment_may_set_the_interval(environ: dict[str, str], expected: float) -> None:
    assert read_interval(environ) == expected


@pytest.mark.parametrize("text", ["0", "0.0", "", "-1", "five", "1e3", "nan", "inf", "5s", "1_0", "٣", "9" * 30])
def test_zero_and_rubbish_mean_the_default(text: str) -> None:
    assert read_interval({"POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS": text}) == 5.0
