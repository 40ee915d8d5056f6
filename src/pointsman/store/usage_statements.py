"""Questions about rows of usage, in SQL. All are bounded by an account or a period, and by how much they answer."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Double, Row, Select, and_, case, cast, func, or_, select

from pointsman.core.money import NANO
from pointsman.core.usage_row import ESTIMATED, UsageRow
from pointsman.core.usage_sum import Period, RowPlace, UsageBy, UsageSum
from pointsman.store.tables import usage

DAY_SECONDS = 86_400
_COLUMNS = tuple(usage.c[name] for name in UsageRow._fields)
_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "saved_tokens")


def rows_page(account: str, period: Period, limit: int, after: RowPlace | None) -> Select[Any]:
    """An account's rows, the newest first, each with its id before its fields."""
    page = select(usage.c.id, *_COLUMNS).where(usage.c.account == account, _within(period))
    if after is not None:
        older = or_(usage.c.at < after.at, and_(usage.c.at == after.at, usage.c.id < after.id))
        page = page.where(usage.c.at <= after.at, older)
    return page.order_by(usage.c.at.desc(), usage.c.id.desc()).limit(limit)


def written_of(rows: Sequence[UsageRow]) -> Select[Any]:
    """Which of some rows are there already, by their requests' ids."""
    moments = [row.at for row in rows]
    return select(usage.c.request_id).where(
        usage.c.account.in_({row.account for row in rows}),
        usage.c.at.between(min(moments), max(moments)),
        usage.c.request_id.in_([row.request_id for row in rows]),
    )


def sums(account: str | None, by: Sequence[UsageBy], period: Period, limit: int, dialect: str) -> Select[Any]:
    """One line per group, which begins with what its requests have in common: the dearest first, within the latest
    days. `account`: None for all.
    """
    groups = [_group(each, dialect).label(f"by_{each}") for each in by]
    latest = [group.desc() for each, group in zip(by, groups, strict=True) if each is UsageBy.DAY]
    dearest = [func.coalesce(func.sum(cast(usage.c.cost, Double)), 0).desc(), func.count().desc(), *groups]
    statement = (
        select(*groups, func.count().label("requests"), *_counts(), *_amounts())
        .where(_within(period))
        .group_by(*groups)
        .order_by(*latest, *dearest)
        .limit(limit)
    )
    return statement if account is None else statement.where(usage.c.account == account)


def _within(period: Period) -> ColumnElement[bool]:
    return and_(usage.c.at >= period.since, usage.c.at < period.until)


def _group(by: UsageBy, dialect: str) -> ColumnElement[Any]:
    match by:
        case UsageBy.ACCOUNT:
            return usage.c.account
        case UsageBy.KEY:
            return usage.c.key_name
        case UsageBy.ROUTE:
            return usage.c.route
        case UsageBy.MODEL:
            return usage.c.model
        case UsageBy.PROVIDER:
            return usage.c.provider
        case UsageBy.DAY:
            day = usage.c.at / float(DAY_SECONDS)
            # A cast cuts on SQLite, which need not have floor(), and rounds on PostgreSQL.
            return cast(day if dialect == "sqlite" else func.floor(day), BigInteger)


def _counts() -> list[ColumnElement[Any]]:
    has_tokens = usage.c.usage_source != ""
    return [
        _how_many(usage.c.reason != "").label("failed"),
        _how_many(usage.c.usage_source == ESTIMATED).label("estimated"),
        _how_many(and_(has_tokens, usage.c.cost.is_(None))).label("unpriced"),
    ]


def _how_many(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.sum(case((condition, 1), else_=0))


def _amounts() -> list[ColumnElement[Any]]:
    """Costs in two parts: a few of the dearest requests would exceed 64 bits, which SQLite refuses to add."""
    tokens = [func.coalesce(func.sum(usage.c[name]), 0).label(name) for name in _TOKENS]
    whole = func.coalesce(func.sum(usage.c.cost // NANO), 0).label("cost_whole")
    rest = func.coalesce(func.sum(usage.c.cost % NANO), 0).label("cost_rest")
    return [*tokens, whole, rest]


def sum_of(row: Row[Any], names: tuple[str, ...]) -> UsageSum:
    """A line of `sums`. PostgreSQL's are decimal numbers."""
    counts = {name: int(getattr(row, name)) for name in ("requests", "failed", "estimated", "unpriced", *_TOKENS)}
    return UsageSum(names, cost=int(row.cost_whole) * NANO + int(row.cost_rest), **counts)
