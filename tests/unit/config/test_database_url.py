"""Addresses of databases."""

from pathlib import Path

import pytest

from pointsman.config.database_url import read_database_url, shown_database_url
from pointsman.core.secret import Secret
from tests.support.canary import KEY

HERE = Path("/here")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("sqlite:///x.db", "sqlite:////here/x.db"),
        ("sqlite:///sub/x.db", "sqlite:////here/sub/x.db"),
        ("sqlite:////data/x.db", "sqlite:////data/x.db"),
        ("SQLite:////data/x.db", "sqlite:////data/x.db"),
        ("postgresql://u:p@h:5/d?sslmode=require", "postgresql://u:p@h:5/d?sslmode=require"),
        ("postgres://h/d", "postgresql://h/d"),
        ("postgresql+asyncpg://h/d", "postgresql://h/d"),
        ("postgresql:///d?host=/run/postgresql", "postgresql:///d?host=/run/postgresql"),
        ("sqlite+aiosqlite:////x.db", "sqlite:////x.db"),
    ],
)
def test_an_address_is_made_absolute_and_otherwise_left_alone(text: str, meant: str) -> None:
    assert read_database_url(text, HERE) == meant


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"mysql://u:{KEY}@h/d", "has no scheme that is known"),
        (f"postgresql+psycopg2://u:{KEY}@h/d", "has no scheme that is known"),
        (KEY, "has no scheme that is known"),
        ("/data/x.db", "has no scheme that is known"),
        ("sqlite://x.db", "is not sqlite:/// and a path"),
        (f"sqlite:///x?key={KEY}", "is not sqlite:/// and a path"),
        ("sqlite://", "is not sqlite:/// and a path"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        (f"postgresql://u:{KEY}@", "names no host"),
        ("postgresql:///", "names no host"),
        (f"postgresql://u:{KEY} @h/d", "holds a space"),
    ],
)
def test_what_is_none_is_refused_without_being_repeated(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        read_database_url(text, HERE)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url", [f"postgresql://u:{KEY}@h/d", f"postgresql://u:a/{KEY}@h/d", f"postgresql://h/d?password={KEY}"]
)
def test_a_password_is_not_shown_wherever_it_stands(url: str) -> None:
    assert shown_database_url(Secret(url)) == "postgresql://***"
    assert shown_database_url(Secret("sqlite:////x.db")) == "sqlite:////x.db"
