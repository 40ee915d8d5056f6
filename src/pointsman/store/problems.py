"""What a database's failure means to whoever asked. No SQL, no values and no password get into a text."""

import errno
import sqlite3
import ssl

import asyncpg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from pointsman.core.control_errors import AlreadyExists, ControlError, StoreFull, StoreUnavailable

FAILURES = (
    SQLAlchemyError,
    sqlite3.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # and TimeoutError
    ValueError,  # aiosqlite, about a connection that is gone
)
"""Everything that SQLAlchemy and both drivers raise when a database fails."""

_FULL_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
_BROKEN_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL_STATES = ("53100", "53200")  # disk_full, out_of_memory
_HELD_STATES = ("55P03", "57014", "40001", "40P01")  # lock_not_available, query_canceled, serialisation, deadlock
_DENIED_STATES = ("28P01", "28000", "42501")
_NO_DATABASE = "3D000"
_LEAVING_STATES = ("57P01", "57P02", "57P03")  # admin_shutdown, crash_shutdown, cannot_connect_now
_CONNECTION_CLASS = "08"
_NO_CONNECTION_FREE = "53300"
_UNIQUE = "23505"

HELD = (
    "another process holds the database; try again, and if it goes on, "
    "look for a backup, a tool or another gateway that keeps a transaction open"
)


class StoreRefused(ControlError):
    """The database or its key file cannot be used as it is: somebody must do what the text says. Nothing was changed.

    Raised when a store is opened, never later.
    """

    code = "FAILED_PRECONDITION"


def problem_of(error: BaseException) -> ControlError:
    """What a failure (one of FAILURES) means. To be raised outside the `except` block, so that nothing is chained."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if isinstance(error, NoConnectionFree):
        return StoreUnavailable("the gateway has more work for its database than connections; try again")
    if isinstance(cause, ssl.SSLError):
        return StoreUnavailable(
            "the database server's certificate is not trusted; set sslrootcert to its authority's, or correct the host"
        )
    for link in (cause, cause.__cause__):
        if isinstance(link, sqlite3.Error):
            return _of_sqlite(link)
        state = getattr(link, "sqlstate", None)
        if isinstance(state, str):
            return _of_postgresql(state)
    if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
        return StoreUnavailable("the gateway has no file descriptor left; raise its limit (ulimit -n, LimitNOFILE)")
    if isinstance(cause, ValueError):
        return StoreUnavailable("the database is closed; start the gateway again")
    return StoreUnavailable("the database cannot be reached; check that its server runs, then try again")


def _of_sqlite(error: sqlite3.Error) -> ControlError:
    code = getattr(error, "sqlite_errorcode", 0)
    primary = code & 0xFF
    if code in _FULL_CODES or primary == sqlite3.SQLITE_FULL:
        return StoreFull("the disk with the database is full and nothing was changed; make room, then try again")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(HELD)
    if primary in _BROKEN_CODES:
        return StoreUnavailable("the database file is damaged; stop the gateway and restore the file from a backup")
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return AlreadyExists("a record like this exists; choose another name")
    if primary == sqlite3.SQLITE_CANTOPEN:  # SQLite's word for every reason that the system had
        return StoreUnavailable(
            "the database file cannot be opened; check that the gateway's user owns it and its directory, and that the "
            "gateway has file descriptors left (ulimit -n, LimitNOFILE)"
        )
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreUnavailable(
            "the database file cannot be written; check that the gateway's user owns it and its directory"
        )
    name = getattr(error, "sqlite_errorname", "error")
    return StoreUnavailable(f"the database file cannot be used ({name}); check its disk, then try again")


def _of_postgresql(state: str) -> ControlError:
    if state in _FULL_STATES:
        return StoreFull("the database server has no room and nothing was changed; make room there, then try again")
    if state in _HELD_STATES:
        return StoreUnavailable(HELD)
    if state == _UNIQUE:
        return AlreadyExists("a record like this exists; choose another name")
    if state in _DENIED_STATES:
        return StoreUnavailable("the database server refuses the gateway's user; check user, password and rights")
    if state in _LEAVING_STATES:
        return StoreUnavailable("the database server is being stopped or started; try again in a moment")
    if state.startswith(_CONNECTION_CLASS):
        return StoreUnavailable("the connection to the database server broke; try again")
    if state == _NO_CONNECTION_FREE:
        return StoreUnavailable("the database server has no connection free; raise its max_connections, or end others")
    if state == _NO_DATABASE:
        return StoreUnavailable("the database does not exist on its server; create it with createdb")
    return StoreUnavailable(f"the database server cannot do it now (SQLSTATE {state}); check its log, then try again")
