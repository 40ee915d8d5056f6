"""What a database's failure means to an operator: each says what is wrong and what to do."""

import errno
import sqlite3

import asyncpg
import pytest

from pointsman.core.control_errors import StoreUnavailable
from pointsman.store.problems import problem_of


def cannot_open() -> sqlite3.Error:
    """As SQLite words it, whatever the system's reason was."""
    try:
        sqlite3.connect("/nonexistent/pointsman.db")
    except sqlite3.Error as error:
        return error
    raise AssertionError("a file below nothing was opened")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (asyncpg.AdminShutdownError("x"), "the database server is being stopped or started; try again in a moment"),
        (asyncpg.CrashShutdownError("x"), "the database server is being stopped or started; try again in a moment"),
        (asyncpg.CannotConnectNowError("x"), "the database server is being stopped or started; try again in a moment"),
        (asyncpg.ConnectionDoesNotExistError("x"), "the connection to the database server broke; try again"),
        (asyncpg.ConnectionFailureError("x"), "the connection to the database server broke; try again"),
        (asyncpg.TooManyConnectionsError("x"), "no connection free; raise its max_connections"),
        (OSError(errno.EMFILE, "x"), "no file descriptor left; raise its limit"),
        (OSError(errno.ECONNREFUSED, "x"), "cannot be reached; check that its server runs"),
        (cannot_open(), "the database file cannot be opened; check that the gateway's user owns it"),
        (cannot_open(), "has file descriptors left"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_failure_that_passes_is_told_with_its_next_step(failure: BaseException, said: str) -> None:
    problem = problem_of(failure)
    assert isinstance(problem, StoreUnavailable)
    assert said in problem.text
    assert "SQLSTATE" not in problem.text
