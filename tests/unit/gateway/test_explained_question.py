"""What may be asked about a request that nobody sends."""

from contextlib import AbstractContextManager, nullcontext

import pytest

from pointsman.core.control_errors import InvalidRequest
from pointsman.core.explanation import Question
from pointsman.core.route import LONGEST_MODEL
from pointsman.gateway.explained_question import MOST_HEADERS, check


def taken(more: int) -> AbstractContextManager[object]:
    return pytest.raises(InvalidRequest, match="at most") if more > 0 else nullcontext()


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_bounds_of_a_question_hold_exactly(more: int) -> None:
    with taken(more):
        check(Question("fast", headers=tuple(f"h{number}" for number in range(MOST_HEADERS + more))))
    with taken(more):
        check(Question("x" * (LONGEST_MODEL + more)))
