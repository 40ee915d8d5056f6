"""When a provider runs dry."""

from datetime import UTC

import pytest

from pointsman.core.forecast import runs_dry_at
from pointsman.core.quota import Counters, Quota
from pointsman.core.quota_window import day_at

DAY = day_at(UTC, 1_790_000_000.0)
HOUR = 3600.0


@pytest.mark.parametrize(
    ("limit", "used", "hours", "dry"),
    [
        (100, 50, 6, 12.0),
        (100, 50, 12, None),  # at the day's very end
        (100, 51, 12, 12 + 49 * 12 / 51),
        (100, 100, 6, 6.0),
        (100, 120, 6, 6.0),
        (100, 0, 6, None),
        (0, 50, 6, None),
        (100, 99, 59.9 / 3600, None),
        (120, 60, 60 / 3600, 120 / 3600),
    ],
)
def test_a_provider_runs_dry_when_its_pace_says(limit: int, used: int, hours: float, dry: float | None) -> None:
    found = runs_dry_at(Quota(limit), Counters(used), DAY, DAY.start + hours * HOUR)
    assert found is None if dry is None else found == pytest.approx(DAY.start + dry * HOUR, abs=0.01)
