"""Operations on what was used: sums, and rows by pages. How rows come about is `usage`'s."""

import math
from collections.abc import Callable, Sequence

from pointsman.core.control_errors import InvalidRequest
from pointsman.core.usage_sum import MOST_ROWS, MOST_SUMS, Period, RowPlace, UsageBy, UsagePage, UsageSum, parse_by
from pointsman.store.interface import Store

DEFAULT_DAYS = 30
"""How far back is looked when nobody says since when."""
_DAY = 86_400.0


class UsageReport:
    """Answers questions about the past; never waits for a request that runs."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def period(self, since: float | None, until: float | None) -> Period:
        """Of what was given: without a beginning 30 days, without an end to this moment. Raises InvalidRequest."""
        end = math.inf if until is None else until
        begin = since if since is not None else min(end, self._clock()) - DEFAULT_DAYS * _DAY
        if begin >= end:
            raise InvalidRequest("the period ends before it begins; give a later --until, or an earlier --since")
        return Period(begin, min(end, self._clock() + _DAY))  # rows of a machine whose clock is ahead, too

    async def sums(self, account: str, by: str, period: Period) -> Sequence[UsageSum]:
        """The dearest groups first, within the latest days; `MOST_SUMS` at most. By account: of all accounts.

        Raises InvalidRequest.
        """
        try:
            wanted = parse_by(by)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        async with self._store.read() as reader:
            return await reader.usage_sums(None if UsageBy.ACCOUNT in wanted else account, wanted, period, MOST_SUMS)

    async def rows(self, account: str, period: Period, limit: int, after: RowPlace | None = None) -> UsagePage:
        """The newest first."""
        async with self._store.read() as reader:
            return await reader.usage_rows(account, period, min(limit, MOST_ROWS), after)


def written_place(place: RowPlace) -> str:
    """What `parse_place` reads."""
    return f"{place.at!r}-{place.id}"


def parse_place(text: str) -> RowPlace:
    """Where a page begins. Raises InvalidRequest for what no page has told."""
    at, _, number = text.rpartition("-")
    try:
        place = RowPlace(float(at), int(number))
    except ValueError:
        place = RowPlace(math.nan, 0)
    if not math.isfinite(place.at) or not 0 <= place.id < 2**63:
        raise InvalidRequest("this is no place of a page; give the `next` of the page before")
    return place
