"""When a runner dials again, and what it says of a gateway that closed."""

import random

import pytest

from pointsman.runner.reconnect import Backoff, explained_close, explained_refusal, is_final


class Fixed(random.Random):
    """Always the same, so that a delay can be told beforehand."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_delays_double_from_one_to_thirty_seconds() -> None:
    backoff = Backoff(Fixed(0.0))
    assert [backoff.next_delay() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]


def test_jitter_takes_up_to_a_half_off_and_adds_nothing() -> None:
    backoff = Backoff(Fixed(0.999999))
    assert [round(backoff.next_delay(), 2) for _ in range(7)] == [0.5, 1, 2, 4, 8, 15, 15]
    delays = {Backoff(random.Random(seed)).next_delay() for seed in range(100)}
    assert len(delays) == 100
    assert all(0.5 < delay <= 1 for delay in delays)


@pytest.mark.parametrize(("seconds", "expected"), [(29.9, 4), (30.0, 1), (3600.0, 1)])
def test_only_a_connection_that_lasted_begins_the_delays_anew(seconds: float, expected: float) -> None:
    backoff = Backoff(Fixed(0.0))
    backoff.next_delay()
    backoff.next_delay()
    backoff.connected_for(seconds)
    assert backoff.next_delay() == expected


@pytest.mark.parametrize("code", [None, 1000, 1001, 1006, 1008, 1009, 1011, 1012, 1013, 4000, 4002])
def test_every_close_is_worth_dialling_again_but_for_a_revocation_and_a_newer_line(code: int | None) -> None:
    assert not is_final(code)
    assert explained_close(code)


def test_a_revocation_or_a_newer_line_is_final_and_says_the_command() -> None:
    assert is_final(4003)
    assert is_final(4001)
    assert "run one of them only" in explained_close(4001)
    assert "pointsman runner register" in explained_close(4003)
    assert "pointsman runner register" in explained_refusal(401)
    assert "503" in explained_refusal(503)
