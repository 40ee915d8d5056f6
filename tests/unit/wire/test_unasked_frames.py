"""What a runner may send without being asked, at its bounds."""

import pytest

from pointsman.wire.runner_frames import FrameError
from pointsman.wire.unasked_frames import MOST_UNASKED, UNASKED_PER_SECOND, UnaskedFrames


def spent() -> UnaskedFrames:
    frames = UnaskedFrames(100.0)
    for _ in range(MOST_UNASKED):
        frames.came(100.0)
    return frames


def test_so_many_may_come_at_once_and_one_more_may_not() -> None:
    with pytest.raises(FrameError, match="nobody waits for"):
        spent().came(100.0)


def test_each_cancelled_request_allows_one_that_comes_late() -> None:
    frames = spent()
    for _ in range(10_000):
        frames.cancelled()
        frames.came(100.0)
    with pytest.raises(FrameError):
        frames.came(100.0)


def test_time_allows_more_and_no_more_than_at_first() -> None:
    frames = spent()
    frames.came(100.0 + 1 / UNASKED_PER_SECOND)
    with pytest.raises(FrameError):
        frames.came(100.0 + 1.5 / UNASKED_PER_SECOND)
    for _ in range(MOST_UNASKED):
        frames.came(1e6)
    with pytest.raises(FrameError):
        frames.came(1e6)


def test_a_clock_that_stands_still_or_goes_back_allows_nothing() -> None:
    frames = spent()
    with pytest.raises(FrameError):
        frames.came(50.0)
