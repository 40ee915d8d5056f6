"""The store: opening a database with its key, views and transactions on it. What they can do: reading, writing."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from pointsman.core.audit import AuditDraft
from pointsman.core.chain import ChainHead
from pointsman.core.control_errors import StoreUnavailable
from pointsman.core.receipt import RECEIPTS_PURPOSE, Receipt
from pointsman.core.usage_row import UsageRow
from pointsman.store.credentials import CredentialCipher, WrongKey
from pointsman.store.engines import Engines, current_generation, make_engines
from pointsman.store.generation import KnownGeneration
from pointsman.store.key_file import load_key_file, make_key_file
from pointsman.store.migrations import REVISIONS
from pointsman.store.problems import FAILURES, HELD, StoreRefused, problem_of
from pointsman.store.reading import SqlReader
from pointsman.store.schema import revision_of, upgrade
from pointsman.store.settings import StoreSettings, read_url
from pointsman.store.sqlite_file import OpenedFile, prepare_file
from pointsman.store.tables import key_check
from pointsman.store.writing import SqlWriter

# The loop itself would let go of them.
_closing: "set[asyncio.Task[None]]" = set()
_UNKNOWN_END = "the database was lost while a change was committed; look whether it was made, then try again"


class SqlStore:
    """The Store of `interface`, for one event loop. Made by `open_store`."""

    def __init__(
        self, engines: Engines, cipher: CredentialCipher, settings: StoreSettings, clock: Callable[[], float]
    ) -> None:
        self.kind: str = engines.writer.dialect.name
        self._file = OpenedFile(Path(engines.writer.url.database or "")) if self.kind == "sqlite" else None
        self._engines = engines
        self._cipher = cipher
        self._busy_seconds = settings.busy_seconds
        self._clock = clock
        self._generation = KnownGeneration(self._read_generation, settings.freshness_seconds, clock)
        # Waiting here costs no connection, and is fair; waiting in SQLite is neither.
        self._turn = asyncio.Lock()

    async def generation(self) -> int:
        return await self._generation.get()

    def when_committed(self, tell: Callable[[], None]) -> None:
        """`tell` is called whenever this process has changed a record, and when it perhaps has."""
        self._generation.when_committed(tell)

    async def _read_generation(self) -> int:
        self._check_file()
        try:
            return await current_generation(self._engines.readers)
        except FAILURES as error:
            problem = problem_of(error)
        raise problem

    def derive(self, purpose: bytes) -> bytes:
        """32 secret bytes for one purpose, the same for every process with this key file."""
        return self._cipher.derive(purpose)

    def read(self) -> "_View":
        """A view of now."""
        self._check_file()
        return _View(self._engines.readers, self._cipher)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqlWriter]:
        """A transaction: committed at the end, undone when the block raises.

        Waits for writers of this process and then for others, `busy_seconds` each. When the connection is lost in the
        very moment of the commit, the error says that the change may have been made.
        """
        await self._take_turn()
        try:
            self._check_file()
            async with _Transaction(self._engines.writer, self._cipher) as transaction:
                await transaction.writer.take_turn()
                yield transaction.writer
                began = self._clock()
                try:
                    await transaction.commit()
                    self._check_file(after_commit=True)
                except BaseException:
                    self._generation.forget()
                    raise
                self._generation.committed(transaction.writer.own_generation, began)
        finally:
            self._turn.release()

    async def append_usage(self, rows: Sequence[UsageRow], *, again: bool = False) -> None:
        """Add rows, all or none; `again` without those that are there."""
        if rows:
            async with self._beside_records() as writer:
                await writer.insert_usage(rows, again=again)

    async def prune_usage(self, before: float) -> int:
        """Remove rows older than `before`."""
        async with self._beside_records() as writer:
            return await writer.delete_usage(before)

    async def append_audit(self, drafts: Sequence[AuditDraft]) -> ChainHead:
        """Add entries of what changed no record."""
        async with self._beside_records() as writer:
            return await writer.append_audit(drafts)

    async def append_receipts(self, drafts: Sequence[Receipt], *, again: bool) -> None:
        """Add receipts to the chains of their accounts, all or none."""
        key = self._cipher.derive(RECEIPTS_PURPOSE)
        async with self._beside_records() as writer:
            await writer.append_receipts(drafts, key, again=again)

    async def note_runner_seen(self, runner_id: str, at: float) -> None:
        """When a runner was connected last."""
        async with self._beside_records() as writer:
            await writer.note_runner_seen(runner_id, at)

    @asynccontextmanager
    async def _beside_records(self) -> AsyncIterator[SqlWriter]:
        """A transaction that touches no record: it has no generation of its own, so what is kept by one stays."""
        await self._take_turn()
        try:
            self._check_file()
            async with _Transaction(self._engines.writer, self._cipher) as transaction:
                yield transaction.writer
                await transaction.commit()
                self._check_file(after_commit=True)
        finally:
            self._turn.release()

    def _check_file(self, *, after_commit: bool = False) -> None:
        if self._file is not None:
            self._file.check(after_commit=after_commit)

    async def _take_turn(self) -> None:
        try:
            async with asyncio.timeout(self._busy_seconds):
                await self._turn.acquire()
                return
        except TimeoutError:
            pass
        raise StoreUnavailable(HELD)

    async def close(self) -> None:
        """Let the database go."""
        await self._generation.close()
        await self._engines.close()


class _View:
    def __init__(self, engine: AsyncEngine, cipher: CredentialCipher) -> None:
        self._connection = engine.connect()
        self._cipher = cipher

    async def __aenter__(self) -> SqlReader:
        await _start(self._connection)
        return SqlReader(self._connection, self._cipher)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _release(self._connection)


class _Transaction:
    def __init__(self, engine: AsyncEngine, cipher: CredentialCipher) -> None:
        self._connection = engine.connect()
        self.writer = SqlWriter(self._connection, cipher)

    async def __aenter__(self) -> "_Transaction":
        await _start(self._connection)
        return self

    async def commit(self) -> None:
        if self.writer.failure is not None:
            # PostgreSQL would take COMMIT, undo everything, and call that a success.
            raise self.writer.failure
        try:
            return await self._connection.commit()
        except FAILURES as error:
            problem = problem_of(error)
        raise StoreUnavailable(_UNKNOWN_END) if isinstance(problem, StoreUnavailable) else problem

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _release(self._connection)


async def _start(connection: AsyncConnection) -> None:
    try:
        await connection.start()
        try:
            await connection.begin()
            return
        except BaseException:
            await _release(connection)
            raise
    except FAILURES as error:
        problem = problem_of(error)
    raise problem


async def _release(connection: AsyncConnection) -> None:
    """Undo what was not committed and give the connection back, even when the task is cancelled while it does so."""
    closing = asyncio.get_running_loop().create_task(_close(connection))
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)
    await asyncio.shield(closing)


async def _close(connection: AsyncConnection) -> None:
    try:
        await connection.close()
    except FAILURES:
        # Whatever failed has been told. This connection is not used again.
        with contextlib.suppress(*FAILURES):
            await connection.invalidate()


async def open_store(settings: StoreSettings, clock: Callable[[], float] = time.monotonic) -> SqlStore:
    """A database that is ready: made or brought up to date when need be, its key checked.

    Raises StoreRefused when somebody must do something first, StoreUnavailable or StoreFull when trying again may help.
    Then nothing was changed, except that a new database may have been made.
    """
    url = read_url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        assert url.database is not None
        await asyncio.to_thread(prepare_file, Path(url.database), settings.busy_seconds)
    engines = make_engines(url, settings.busy_seconds)
    try:
        cipher = await _prepared(engines, settings.key_file)
        return SqlStore(engines, cipher, settings, clock)
    except BaseException:
        await engines.close()
        raise


async def _prepared(engines: Engines, key_file: Path) -> CredentialCipher:
    try:
        async with engines.readers.connect() as connection:
            await connection.begin()
            revision = await connection.run_sync(revision_of)
            check = None if revision is None else (await connection.execute(select(key_check.c.value))).scalar()
        # Before anything is changed: with the wrong key nothing may be.
        cipher = CredentialCipher(await asyncio.to_thread(_key, key_file, check is None))
        if check is not None:
            _check_key(cipher, check, key_file)
        if check is None or revision != REVISIONS[-1]:
            async with engines.writer.connect() as connection:
                await connection.begin()
                await connection.run_sync(upgrade)
                check = await _settle_key(connection, cipher)
                _check_key(cipher, check, key_file)
                await connection.commit()
        return cipher
    except FAILURES as error:
        problem = problem_of(error)
    raise problem


async def _settle_key(connection: AsyncConnection, cipher: CredentialCipher) -> bytes:
    """The database's key check; this key's, when it has none."""
    check = (await connection.execute(select(key_check.c.value))).scalar()
    if check is None:
        check = cipher.check_value()
        await connection.execute(insert(key_check).values(id=1, value=check))
    return bytes(check)


def _key(path: Path, may_make: bool) -> bytes:
    try:
        return load_key_file(path)
    except FileNotFoundError:
        if may_make:
            return make_key_file(path)
    raise StoreRefused(
        f"the key file {path} is missing, and the database holds credentials that only it can decrypt; "
        "restore it from a backup, or set key_file to where it is now. No new key was made"
    )


def _check_key(cipher: CredentialCipher, check: bytes, path: Path) -> None:
    try:
        return cipher.check(check)
    except WrongKey:
        pass
    raise StoreRefused(
        f"the key file {path} is not the one that this database was encrypted with; "
        "restore the right one, or set key_file to where it is. Nothing was changed"
    )
