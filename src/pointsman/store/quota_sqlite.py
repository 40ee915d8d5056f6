"""Counters in a small SQLite file of their own, shared by all processes of one machine.

A statement takes some 15 µs and is run on the event loop itself: handing it to a thread would cost 40 times as much.
Most of that is its commit, which takes several times as long among other work; so reservations that come in one turn of
the loop share one (`quota_crowd`), and are acknowledged after it.

Nothing here may wait on the loop. A file that another process holds is tried again after sleeps, and the log is copied
into the file (which waits for the disk) by the thread that looks. `synchronous` is NORMAL: a commit is safe from the
process's death as soon as it is made, and from a power cut some seconds later. For counters of one day that is enough:
what a power cut takes, an upstream's 429 gives back; a disk's 10 ms for every request would not be given back.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from pointsman.core.control_errors import ControlError
from pointsman.core.quota import LedgerUnavailable
from pointsman.core.quota_book import DayCount
from pointsman.store import budget_statements
from pointsman.store import quota_statements as statements
from pointsman.store.problems import HELD, problem_of
from pointsman.store.quota_crowd import Crowd
from pointsman.store.quota_ledger import PATIENCE_SECONDS, Abandoned, AddedTo, Asked, Rows, Seen, SqlQuotaLedger, Values
from pointsman.store.sqlite_file import OpenedFile, prepare_file

FILE_NAME = "quota.db"
PAGE_BYTES = 1024
"""Every reservation writes a page or two ahead: small ones save a fifth of its CPU time."""
LONG_LOG_BYTES = 4 << 20
"""What is written ahead is copied into the file beyond this: some 2,000 reservations."""
LONGEST_LOG_BYTES = 64 << 20
"""Beyond this, writers are made to wait for it, so that the log can begin anew."""
_BEGIN_ANEW = "remove it, its -wal and its -shm: what was used of today's quotas is then counted from 0"
_FIRST_SLEEP_SECONDS = 0.001
_LONGEST_SLEEP_SECONDS = 0.02
_ADD = statements.numbered(budget_statements.ADD, budget_statements.ADD_VALUES)
_COUNT_MORE = statements.numbered(statements.COUNT_MORE, statements.RESERVE_VALUES)


class SqliteCounting:
    """The CountingDatabase of `quota_ledger`. Made by `open_sqlite_ledger`."""

    adds_at_once = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = OpenedFile(path)
        self._problem: str | None = None
        self._is_held = False
        """Somebody has waited in vain: whoever comes after them waits no more, until a statement is taken."""
        self._looking = threading.Lock()
        self._counted: tuple[int, int, int] = (0, 0, 0)
        self._crowd: Crowd[Asked, DayCount | None] = Crowd(self._count_together)
        # Opening reads the file, which another worker may be making at this moment; only later must nothing wait.
        self._own = _connect(path, PATIENCE_SECONDS)
        try:
            # Only the looker's thread waits for the disk.
            self._own.execute("PRAGMA wal_autocheckpoint = 0")
            self._own.execute("PRAGMA busy_timeout = 0")
            self._own.create_function("counted", 3, self._note)
            self._lookers = _connect(path, PATIENCE_SECONDS, check_same_thread=False)
        except BaseException:
            self._own.close()
            raise

    def count_at_once(self, asked: Asked) -> DayCount | None:
        """See CountingDatabase."""
        if self._problem is not None:
            return None
        try:
            cursor = self._own.execute(_COUNT_MORE, asked)
        except sqlite3.Error:  # held, full or broken: `run` waits, or tells it
            return None
        self._is_held = False
        return DayCount._make(self._counted) if cursor.rowcount else None

    def join_crowd(self, asked: Asked) -> "asyncio.Future[DayCount | None] | None":
        """See CountingDatabase."""
        return self._crowd.join(asked)

    def _count_together(self, crowd: Sequence[Asked]) -> Sequence[DayCount | None]:
        """In one transaction: all places that are told are on record, or none is."""
        if len(crowd) == 1 or self._problem is not None:
            return [self.count_at_once(asked) for asked in crowd]
        try:
            self._own.execute("BEGIN IMMEDIATE")
            counts = [
                DayCount._make(self._counted) if self._own.execute(_COUNT_MORE, asked).rowcount else None
                for asked in crowd
            ]
            self._own.execute("COMMIT")
        except sqlite3.Error:  # as in `count_at_once`
            with contextlib.suppress(sqlite3.Error):
                self._own.rollback()
            return [None] * len(crowd)
        return counts

    def _note(self, daily: int, minute: int, minutely: int) -> int:
        self._counted = (daily, minute, minutely)
        return daily

    def add_at_once(self, counters: Sequence[AddedTo]) -> bool:
        """See CountingDatabase."""
        if self._problem is not None:
            return False
        execute = self._own.execute
        try:
            if len(counters) == 1:
                is_added = execute(_ADD, counters[0]).rowcount == 1
            else:
                execute("BEGIN IMMEDIATE")
                is_added = all(execute(_ADD, each).rowcount == 1 for each in counters)
                execute("COMMIT" if is_added else "ROLLBACK")
        except sqlite3.Error:  # as in `count_at_once`
            with contextlib.suppress(sqlite3.Error):
                self._own.rollback()
            return False
        self._is_held = False
        return is_added

    async def run(self, statement: str, values: Values, abandoned: Abandoned) -> Rows:
        """See CountingDatabase."""
        if self._problem is not None:
            raise LedgerUnavailable(self._problem)
        rows = self._run(statement, values)
        if rows is not None:
            self._is_held = False
            return rows
        if self._is_held:
            raise LedgerUnavailable(_text(HELD))
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_SECONDS
        sleep = _FIRST_SLEEP_SECONDS
        try:
            while loop.time() < end:
                await asyncio.sleep(sleep)
                sleep = min(2 * sleep, _LONGEST_SLEEP_SECONDS)
                # Tried after each sleep, also after one in which the loop stood still.
                rows = self._run(statement, values)
                if rows is not None:
                    return rows
        except asyncio.CancelledError:
            abandoned(None)
            raise
        self._is_held = True
        raise LedgerUnavailable(_text(HELD))

    async def run_whole(self, statement: str, values: Values, count: int, abandoned: Abandoned) -> Rows:
        """See CountingDatabase: writers come one after the other, so the statement sees whether all have room."""
        rows = await self.run(statement, values, abandoned)
        return rows if len(rows) == count else ()

    def _run(self, statement: str, values: Values) -> Rows | None:
        """None when another process holds the file at this moment."""
        try:
            # All of them: the statement is committed when it has no more rows.
            return self._own.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                return None
            text = problem_of(error).text
        raise LedgerUnavailable(_text(text))

    async def look(self, since: str, prune: Values | None) -> Seen:
        """See CountingDatabase."""
        return await asyncio.to_thread(self._look, since, prune)

    def _look(self, since: str, prune: Values | None) -> Seen:
        with self._looking:
            try:
                self._problem = None
                self._file.check()
                for statement in statements.PRUNE if prune is not None else ():
                    self._lookers.execute(statement, prune or {})
                self._shorten_log()
                counts = self._lookers.execute(statements.COUNTS_SINCE, {"since": since}).fetchall()
                return Seen(counts, self._lookers.execute(statements.ALL_EXHAUSTED).fetchall())
            except ControlError as error:
                # What is written now would go to a file that no other process sees.
                text = self._problem = _text(error.text)
            except sqlite3.Error as error:
                text = _text(problem_of(error).text)
        raise LedgerUnavailable(text)

    def _shorten_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            size = Path(f"{self._path}-wal").stat().st_size
            if size > LONGEST_LOG_BYTES:
                self._lookers.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            elif size > LONG_LOG_BYTES:
                self._lookers.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    async def settle(self) -> None:
        """See CountingDatabase: here, nothing goes on."""

    async def close(self) -> None:
        """Let the file go, after a look that is under way."""
        self._own.close()
        await asyncio.to_thread(self._close_lookers)

    def _close_lookers(self) -> None:
        with self._looking:
            self._lookers.close()


def _connect(path: Path, busy_seconds: float, *, check_same_thread: bool = True) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=check_same_thread)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _text(problem: str) -> str:
    return f"quotas cannot be counted: {problem}"


async def open_sqlite_ledger(path: Path, now: float, busy_seconds: float = 5.0) -> SqlQuotaLedger:
    """The ledger in that file, which is made when there is none, for its owner only. `now`: epoch seconds.

    Raises StoreRefused for a file that is damaged or another program's, StoreUnavailable, StoreFull, LedgerUnavailable.
    """
    await asyncio.to_thread(_prepare, path, busy_seconds)
    ledger = SqlQuotaLedger(SqliteCounting(path))
    try:
        await ledger.look(now)
    except BaseException:
        await ledger.close()
        raise
    return ledger


def _prepare(path: Path, busy_seconds: float) -> None:
    prepare_file(path, busy_seconds, PAGE_BYTES, mend=_BEGIN_ANEW)
    try:
        with contextlib.closing(_connect(path, busy_seconds)) as connection:
            for statement in (*statements.TABLES, *budget_statements.TABLES):
                connection.execute(statement)
            return
    except sqlite3.Error as error:
        problem = problem_of(error)
    raise problem
