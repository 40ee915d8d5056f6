"""Any sequence of operations and of jumps of the clock does to every ledger what it does to a few dictionaries."""

import asyncio
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from pointsman.core.quota import Counters, Quota, QuotaKey, Reservation
from pointsman.proxy.memory_ledger import MemoryLedger
from pointsman.store.quota_ledger import SqlQuotaLedger
from pointsman.store.quota_sqlite import open_sqlite_ledger
from tests.conformance.ledgers import NOON

_keys = st.sampled_from([QuotaKey("default", "a"), QuotaKey("default", "b"), QuotaKey("team", "a")])
_jumps = st.sampled_from(
    [0.0, 1.0, 30.0, 60.0, -60.0, -120.0, -181.0, 3600.0, 40_000.0, 86_400.0, -86_400.0, 2e5, -2e5]
)


class Model:
    """Dates of UTC, every count by itself; no row, no statement."""

    def __init__(self) -> None:
        self.daily: Counter[tuple[QuotaKey, int]] = Counter()
        self.minute: dict[tuple[QuotaKey, int], tuple[int, int]] = {}
        self.exhausted: dict[QuotaKey, tuple[float, float]] = {}

    def counters(self, key: QuotaKey, now: float) -> Counters:
        date, minute = int(now // 86_400), int(now // 60)
        until, said_at = self.exhausted.get(key, (0.0, 0.0))
        counted_in, count = self.minute.get((key, date), (0, 0))
        return Counters(
            self.daily[key, date],
            count if counted_in - minute in (0, 1, 2) else 0,
            until if now < until and said_at - now <= 26 * 3600 else 0.0,
        )

    def reserve(self, key: QuotaKey, quota: Quota, now: float) -> bool:
        date, minute = int(now // 86_400), int(now // 60)
        used = self.counters(key, now)
        tomorrow = self.daily[key, date + 1]
        if used.exhausted_until or 0 < quota.daily_requests <= max(used.daily, tomorrow):
            return False
        if 0 < quota.requests_per_minute <= used.minute:
            return False
        self.daily[key, date] += 1
        self.minute[key, date] = (self.minute[key, date][0] if used.minute else minute, used.minute + 1)
        return True

    def release(self, place: Reservation) -> None:
        date = place.minute * 60 // 86_400
        for found in (date - 1, date, date + 1):  # a minute ahead may be of the next date
            if _name(found) == place.day and self.daily[place.key, found] > 0:
                self.daily[place.key, found] -= 1
                minute, count = self.minute[place.key, found]
                if minute == place.minute and count:
                    self.minute[place.key, found] = (minute, count - 1)

    def exhaust(self, key: QuotaKey, until: float, now: float) -> None:
        known, said_at = self.exhausted.get(key, (0.0, 0.0))
        if until > known or said_at - now > 26 * 3600:
            self.exhausted[key] = (until, now)


def _name(date: int) -> str:
    first = 20_717  # 2026-09-21
    return f"2026-09-{21 + date - first:02d}"


class LedgerMachine(RuleBasedStateMachine):
    """Two workers' ledgers on one file, and one in memory, beside their model."""

    places = Bundle("places")

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(tempfile.mkdtemp(prefix="pointsman-quota-"))
        self._runner = asyncio.Runner()
        self._now = NOON
        self._stored = [self._open() for _ in range(2)]
        self._memory = MemoryLedger()
        self._model = Model()
        self._seen: set[QuotaKey] = set()

    def _open(self) -> SqlQuotaLedger:
        return self._runner.run(open_sqlite_ledger(self._directory / "quota.db", self._now))

    def teardown(self) -> None:
        for ledger in self._stored:
            self._runner.run(ledger.close())
        self._runner.close()
        shutil.rmtree(self._directory)

    @rule(by=_jumps)
    def jump(self, by: float) -> None:
        # Within nine days of September: the model names no others.
        self._now = min(max(self._now + by, NOON - 3e5), NOON + 3e5)

    @rule(
        target=places, key=_keys, daily=st.integers(0, 4), per_minute=st.integers(0, 3), worker=st.sampled_from([0, 1])
    )
    def reserve(self, key: QuotaKey, daily: int, per_minute: int, worker: int):  # type: ignore[no-untyped-def] # Hypothesis'
        self._seen.add(key)
        quota = Quota(daily, per_minute)
        expected = self._model.reserve(key, quota, self._now)
        stored = self._runner.run(self._stored[worker].reserve(key, quota, self._now))
        in_memory = self._runner.run(self._memory.reserve(key, quota, self._now))
        assert (stored is not None) == expected
        assert stored == in_memory
        return multiple() if stored is None or in_memory is None else (stored, in_memory)

    @rule(pair=places, worker=st.sampled_from([0, 1]))
    def release(self, pair: tuple[Reservation, Reservation], worker: int) -> None:
        if not pair[0].is_returned:
            self._model.release(pair[0])
        self._runner.run(self._stored[worker].release(pair[0]))
        self._runner.run(self._memory.release(pair[1]))

    @rule(key=_keys, seconds=st.sampled_from([-5.0, 60.0, 5000.0, 3e5]), worker=st.sampled_from([0, 1]))
    def exhaust(self, key: QuotaKey, seconds: float, worker: int) -> None:
        self._seen.add(key)
        self._model.exhaust(key, self._now + seconds, self._now)
        self._runner.run(self._stored[worker].exhaust(key, self._now + seconds, self._now))
        self._runner.run(self._memory.exhaust(key, self._now + seconds, self._now))
        # What is said to one worker binds the other at its next statement; its plans know at the next look.

    @rule()
    def restart(self) -> None:
        self._runner.run(self._stored[0].close())
        self._stored[0] = self._open()

    @invariant()
    def all_count_as_the_model_does(self) -> None:
        for ledger in self._stored:
            self._runner.run(ledger.look(self._now))
        for key in self._seen:
            expected = self._model.counters(key, self._now)
            assert [one.counters(key, Quota(), self._now) for one in self._stored] == [expected] * 2
            assert self._memory.counters(key, Quota(), self._now) == expected


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=25, stateful_step_count=30, deadline=None, derandomize=True)
