"""What is done to a chain of audit entries or receipts without its key is found; a cut end, by a head that was kept."""

import random
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from hashlib import sha256
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core import receipt as receipts
from pointsman.core.audit import (
    AUDIT_CHAIN,
    AuditDraft,
    AuditEntry,
    chained,
    digest_of_entry,
)
from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import ChainCheck
from pointsman.core.receipt import RECEIPT_CHAIN, Receipt, digest_of_receipt

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
Link = TypeVar("Link", AuditEntry, Receipt)
LENGTH = 6


def entries(key: bytes = KEY) -> list[AuditEntry]:
    accounts = ("default", "team")
    return chained(
        NO_HEAD,
        [AuditDraft(n + 0.5, accounts[n % 2], f"key:k{n}", "key.create", f"s{n}", "", "{}") for n in range(LENGTH)],
        key,
    )


def receipts_of(key: bytes = KEY, account: str = "default") -> list[Receipt]:
    head, made = NO_HEAD, []
    for n in range(LENGTH):
        hashes = [sha256(bytes([n, each])).digest() for each in range(4)]
        draft = Receipt(0, f"r{n}", n + 0.5, account, "fast", "groq", "real", 0, 1, 200 + n, *hashes)
        made.append(receipts.chained(draft, head, key))
        head = made[-1].head
    return made


def audit_problems(found: Sequence[AuditEntry], kept: Sequence[AuditEntry] = ()) -> int:
    check = ChainCheck(
        AUDIT_CHAIN, KEY, NO_HEAD, [(ChainHead(kept[-1].sequence, kept[-1].digest), "a note")] if kept else []
    )
    for each in found:
        check.add(each)
    check.end()
    return check.problem_count


def receipt_problems(found: Sequence[Receipt], kept: Sequence[Receipt] = ()) -> int:
    check = ChainCheck(RECEIPT_CHAIN, KEY, NO_HEAD, [(kept[-1].head, "a note")] if kept else [])
    for each in found:
        check.add(each)
    check.end_noted(check.head)  # whoever writes the database writes its note of the newest, too
    return check.problem_count


def resealed_entry(entry: AuditEntry, key: bytes) -> AuditEntry:
    return replace(entry, digest=digest_of_entry(entry, key))


def resealed_receipt(receipt: Receipt, key: bytes) -> Receipt:
    return replace(receipt, digest=digest_of_receipt(receipt, key))


def tampered(
    chain: Sequence[Link], others: Sequence[Link], reseal: Callable[[Link, bytes], Link], luck: random.Random
) -> list[Link]:
    """Some of what can be done by whoever writes the database and has no key file."""
    found = list(chain)
    for _ in range(luck.randint(1, 3)):
        if not found:
            break
        at = luck.randrange(len(found))
        match luck.choice(["delete", "cut", "swap", "copy", "edit", "exchange", "put", "renumber", "seal", "relink"]):
            case "delete":
                del found[at]
            case "cut":
                del found[at:]
            case "swap":
                to = luck.randrange(len(found))
                found[at], found[to] = found[to], found[at]
            case "copy":
                found.insert(luck.randrange(len(found)), found[at])
            case "edit":
                found[at] = edited(found[at], luck)
            case "exchange":  # a field of one for that of another, as accounts
                name = luck.choice([each.name for each in fields(found[at])])
                changed: Any = {name: getattr(luck.choice(chain), name)}
                found[at] = replace(found[at], **changed)
            case "put":
                found.insert(at, luck.choice(others))
            case "renumber":
                found = [replace(each, sequence=number) for number, each in enumerate(found, 1)]
            case "seal":
                found[at] = reseal(found[at], OTHER_KEY)
            case _:
                if at:
                    found[at] = replace(found[at], previous=found[at - 1].digest)
    return found


def edited(link: Link, luck: random.Random) -> Link:
    name = luck.choice([each.name for each in fields(link)])
    value = getattr(link, name)
    new: Any = {bytes: luck.randbytes(32), str: f"{value} ", int: luck.randrange(10), float: luck.random()}[type(value)]
    return replace(link, **{name: new})


LUCK = st.builds(random.Random, st.integers(0, 2**40))


@pytest.mark.guarantee("W3")
@given(LUCK)
def test_no_change_of_the_audit_record_without_its_key_is_taken_for_what_was_written(luck: random.Random) -> None:
    chain = entries()
    found = tampered(chain, entries(OTHER_KEY), resealed_entry, luck)
    is_cut = found == chain[: len(found)]
    assert bool(audit_problems(found)) is not is_cut
    assert bool(audit_problems(found, chain)) is (found != chain)


@pytest.mark.guarantee("V2")
@given(LUCK)
def test_no_change_of_a_chain_of_receipts_without_its_key_is_taken_for_what_was_written(luck: random.Random) -> None:
    chain = receipts_of()
    found = tampered(chain, [*receipts_of(OTHER_KEY), *receipts_of(KEY, "team")], resealed_receipt, luck)
    is_cut = found == chain[: len(found)]
    assert bool(receipt_problems(found)) is not is_cut
    assert bool(receipt_problems(found, chain)) is (found != chain)


@pytest.mark.guarantee("V2")
def test_the_chain_of_another_account_or_of_no_key_is_found() -> None:
    assert receipt_problems(receipts_of(OTHER_KEY)) == LENGTH
    renamed = [replace(each, account="default") for each in receipts_of(account="team")]
    assert receipt_problems(renamed) == LENGTH
    assert audit_problems(entries(OTHER_KEY)) == LENGTH
