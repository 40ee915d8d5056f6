"""Receipts by themselves: hashes that are taken once, a chain that shows what was done to it, heads."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.config.receipt_scope import read_receipt_scope
from pointsman.core.body_hashes import BodyHashes
from pointsman.core.chain import NO_HEAD, parse_head
from pointsman.core.chain_check import MOST_TOLD, ChainCheck
from pointsman.core.receipt import (
    NO_RECEIPTS,
    RECEIPT_CHAIN,
    Receipt,
    ReceiptScope,
    chained,
)

KEY = b"k" * 32


def drafted(number: int) -> Receipt:
    hashes = [sha256(bytes([number, each])).digest() for each in range(4)]
    return Receipt(0, f"r-{number}", number + 0.1, "default", "fast", "groq", "real", 0, 1, 200, *hashes)


def chain(length: int, key: bytes = KEY) -> list[Receipt]:
    head, made = NO_HEAD, []
    for number in range(1, length + 1):
        made.append(chained(drafted(number), head, key))
        head = made[-1].head
    return made


def problems(found: Sequence[Receipt], noted: int = 0) -> list[str]:
    """`noted`: the number that the database says is the last; 0: what is found."""
    check = ChainCheck(RECEIPT_CHAIN, KEY)
    for each in found:
        check.add(each)
    check.end_noted(chain(noted)[-1].head if noted else check.head)
    return check.problems


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=6)), max_size=12))
def test_what_came_and_what_was_handed_have_the_hashes_of_their_bytes(steps: list[tuple[bool, bytes]]) -> None:
    hashes, came, handed = BodyHashes(b""), b"", b""
    for comes, data in steps:
        if comes:
            hashes.come(data)
            came += data
        else:
            hashes.hand(data)
            handed += data
    has_come = any(comes for comes, _ in steps)
    assert hashes.answered == (sha256(came).digest() if has_come else b"")
    assert hashes.delivered == sha256(handed).digest()


@given(st.lists(st.binary(max_size=6), max_size=6), st.integers(0, 36))
def test_a_delayed_body_has_one_hash(pieces: list[bytes], late: int) -> None:
    hashes, held = BodyHashes(b""), b""
    for piece in pieces:
        hashes.come(piece)
        held += piece
        ready, held = held[: max(0, len(held) - late)], held[max(0, len(held) - late) :]
        hashes.hand(ready)
    hashes.hand(held)
    assert hashes.delivered == sha256(b"".join(pieces)).digest()
    assert hashes.answered == (hashes.delivered if pieces else b"")


def test_what_is_sent_is_of_the_last_attempt() -> None:
    hashes = BodyHashes(b"")
    hashes.send([b"a", memoryview(b"b")])
    hashes.send((b"ab", b"c"))
    assert hashes.sent == sha256(b"abc").digest()


def test_a_chain_that_nobody_touched_is_whole() -> None:
    assert problems(chain(5), noted=5) == []
    assert problems([]) == []


DAMAGES: dict[str, tuple[Callable[[list[Receipt]], list[Receipt]], str]] = {
    "a status": (lambda all: [*all[:2], replace(all[2], status=500), *all[3:]], "receipt 3 was altered"),
    "a hash": (lambda all: [*all[:2], replace(all[2], delivered=bytes(32)), *all[3:]], "receipt 3 was altered"),
    "a time": (lambda all: [*all[:2], replace(all[2], at=all[2].at + 1e-6), *all[3:]], "receipt 3 was altered"),
    "one gone": (lambda all: [*all[:2], *all[3:]], "receipt 3 is missing"),
    "the first two gone": (lambda all: all[2:], "receipts 1 to 2 are missing"),
    "one twice": (lambda all: [*all[:3], *all[2:]], "receipt 3 stands behind receipt 3"),
    "another's": (lambda all: [*all[:2], chained(drafted(9), all[1].head, KEY), *all[3:]], "receipt 4 does not follow"),
    "a chain of another key": (lambda all: chain(5, b"x" * 32), "receipt 1 was altered"),
    "the end gone": (lambda all: all[:3], "the last is receipt 3, and the database notes receipt 5"),
}


@pytest.mark.guarantee("V2")
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_is_done_to_a_chain_is_found(damage: str) -> None:
    damaged, told = DAMAGES[damage]
    assert told in problems(damaged(chain(5)), noted=5)[0]


@pytest.mark.parametrize("field", [each for each in Receipt.__dataclass_fields__ if each != "digest"])
def test_every_field_is_in_the_digest(field: str) -> None:
    [made] = chain(1)
    value = getattr(made, field)
    changed: Any = {bytes: b"!" * 32, str: "x", int: 7, float: 7.5}[type(value)]
    assert "receipt" in problems([replace(made, **{field: changed})], noted=1)[0]


def test_a_chain_cut_at_its_end_is_found_by_a_head_that_was_kept() -> None:
    whole = chain(5)
    check = ChainCheck(RECEIPT_CHAIN, KEY, kept=[(whole[4].head, "the note")])
    for each in whole[:3]:
        check.add(each)
    check.end_noted(whole[2].head)  # the database's own head was cut with it
    assert check.problems == [
        "the last is receipt 3, and the note has receipt 5: the end was cut off, or an older database was restored"
    ]


def test_a_head_of_another_chain_is_found() -> None:
    other = chained(replace(drafted(3), status=500), chain(2)[-1].head, KEY)
    check = ChainCheck(RECEIPT_CHAIN, KEY, kept=[(other.head, "the note")])
    for each in chain(5):
        check.add(each)
    assert check.problems == ["receipt 3 is not the one that the note has: the chain was rewritten"]
    assert ChainCheck(RECEIPT_CHAIN, KEY, chain(3)[-1].head, [(other.head, "the note")]).problem_count == 1


def test_a_chain_is_looked_at_from_any_head_on() -> None:
    whole = chain(5)
    check = ChainCheck(RECEIPT_CHAIN, KEY, whole[2].head, [(whole[4].head, "the note")])
    for each in whole[3:]:
        check.add(each)
    check.end_noted(whole[4].head)
    assert (check.problems, check.checked, check.head) == ([], 2, whole[4].head)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_of_many_problems_the_first_are_told_and_all_counted(more: int) -> None:
    check = ChainCheck(RECEIPT_CHAIN, b"x" * 32)
    for each in chain(MOST_TOLD + more):
        check.add(each)
    assert (len(check.problems), check.problem_count) == (min(MOST_TOLD, MOST_TOLD + more), MOST_TOLD + more)


def test_a_head_is_read_as_it_is_written() -> None:
    head = chain(3)[-1].head
    assert parse_head(f" {head}\n") == head
    for text in ("", "3", f"{head}0", str(head).upper(), f"-{head}"):
        with pytest.raises(ValueError, match="a head is NUMBER:DIGEST"):
            parse_head(text)


def test_which_requests_get_a_receipt_is_read_strictly() -> None:
    assert read_receipt_scope("none") == NO_RECEIPTS
    assert not NO_RECEIPTS
    assert read_receipt_scope("all") == ReceiptScope(is_all=True)
    assert read_receipt_scope("fast, cheap") == ReceiptScope(routes=frozenset({"fast", "cheap"}))
    assert [str(read_receipt_scope(text)) for text in ("none", "all", "b,a")] == ["none", "all", "a, b"]
    for text, problem in (("a b", "no name of a route"), ("fast,", "no name"), ("all, fast", "none or all beside")):
        with pytest.raises(ValueError, match=problem):
            read_receipt_scope(text)
