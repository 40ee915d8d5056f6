"""Receipts as rows: added in a chain, one account's after the other's, and read page by page."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from sqlalchemy import select, text, update
from sqlalchemy.engine import CursorResult

from pointsman.core.chain import GENESIS, NO_HEAD, ChainHead
from pointsman.core.receipt import Receipt, chained
from pointsman.store.altered_rows import record_of
from pointsman.store.tables import receipt_heads, receipts

Execute = Callable[..., Awaitable[CursorResult[*tuple[Any, ...]]]]
"""A statement. Raises ControlError."""
Insert = Callable[[Sequence[tuple[Any, ...]]], Awaitable[None]]
"""Rows, each with its fields in the order of `INSERTED`. Raises ControlError."""
INSERTED = tuple(receipts.c.keys())
_values = attrgetter(*INSERTED)
_COLUMNS = tuple(receipts.c[field.name] for field in fields(Receipt))
_AT_ONCE = 100
"""Receipts that are chained between two turns of the loop, which requests share: some milliseconds."""
_FIRST_HEAD = text(
    "INSERT INTO receipt_heads (account, sequence, digest) VALUES (:account, 0, :genesis) ON CONFLICT DO NOTHING"
)


async def append_receipts(
    execute: Execute, insert: Insert, drafts: Sequence[Receipt], key: bytes, *, again: bool
) -> None:
    """Add them behind those of their accounts. `again`: leave out what is there already."""
    of_account: defaultdict[str, list[Receipt]] = defaultdict(list)
    for draft in drafts:
        of_account[draft.account].append(draft)
    for account in sorted(of_account):  # in one order everywhere: two gateways must not wait for each other
        head = await _taken_head(execute, account)
        mine = of_account[account]
        if again:
            there = await _there(execute, account, [each.request_id for each in mine])
            mine = [each for each in mine if each.request_id not in there]
        for start in range(0, len(mine), _AT_ONCE):
            made: list[tuple[Any, ...]] = []
            for draft in mine[start : start + _AT_ONCE]:
                placed = chained(draft, head, key)
                head = placed.head
                made.append(_values(placed))
            await insert(made)
        if mine:
            where = receipt_heads.c.account == account
            await execute(update(receipt_heads).where(where).values(sequence=head.sequence, digest=head.digest))


async def _taken_head(execute: Execute, account: str) -> ChainHead:
    """The newest, which nobody else goes on from until the transaction has ended."""
    mine = receipt_heads.c.account == account
    taking = (
        update(receipt_heads)
        .where(mine)
        .values(sequence=receipt_heads.c.sequence)
        .returning(receipt_heads.c.sequence, receipt_heads.c.digest)
    )
    row = (await execute(taking)).first()
    if row is None:
        await execute(_FIRST_HEAD.bindparams(account=account, genesis=GENESIS))
        row = (await execute(taking)).one()
    return ChainHead(row.sequence, row.digest)


async def _there(execute: Execute, account: str, request_ids: Sequence[str]) -> set[str]:
    mine = (receipts.c.account == account) & receipts.c.request_id.in_(request_ids)
    return {row.request_id for row in (await execute(select(receipts.c.request_id).where(mine))).all()}


async def page_of_receipts(
    execute: Execute, account: str, after: int, limit: int, *, newest_first: bool
) -> Sequence[Receipt]:
    """Those behind a number, or before it when the newest come first; 0: from the end that comes first."""
    number = receipts.c.sequence
    chosen = select(*_COLUMNS).where(receipts.c.account == account)
    if newest_first:
        chosen = chosen.where(number < after) if after else chosen
        chosen = chosen.order_by(number.desc())
    else:
        chosen = chosen.where(number > after).order_by(number)
    return [record_of(Receipt, row) for row in (await execute(chosen.limit(limit))).all()]


async def receipt_of_request(execute: Execute, account: str, request_id: str) -> Receipt | None:
    """One; of several, the first."""
    mine = (receipts.c.account == account) & (receipts.c.request_id == request_id)
    row = (await execute(select(*_COLUMNS).where(mine).order_by(receipts.c.sequence).limit(1))).first()
    return None if row is None else record_of(Receipt, row)


async def noted_head(execute: Execute, account: str) -> ChainHead:
    """What is noted of the newest one."""
    row = (await execute(select(receipt_heads).where(receipt_heads.c.account == account))).first()
    return NO_HEAD if row is None else ChainHead(row.sequence, row.digest)
