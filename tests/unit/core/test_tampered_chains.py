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
from pointsman.core.audit import AUDIT_CHAIN, AuditDraft, AuditEntry, chained, digest_of_entry
from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import ChainCheck, ChainKind
from pointsman.core.receipt import RECEIPT_CHAIN, Receipt, digest_of_receipt

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
Link = TypeVar("Link", AuditEntry, Receipt)
LENGTH = 6


def entries(key: bytes = KEY, behind: Sequence[AuditEntry] = ()) -> list[AuditEntry]:
    """Six, the first of them given."""
    head = ChainHead(behind[-1].sequence, behind[-1].digest) if behind else NO_HEAD
    drafts = [
        AuditDraft(n + 0.5, ("default", "team")[n % 2], f"key:k{len(behind)}", "key.create", f"s{n}", "", "{}")
        for n in range(len(behind), LENGTH)
    ]
    return [*behind, *chained(head, drafts, key)]


def receipts_of(key: bytes = KEY, account: str = "default", behind: Sequence[Receipt] = ()) -> list[Receipt]:
    """Six, the first of them given."""
    made = list(behind)
    for n in range(len(made), LENGTH):
        hashes = [sha256(bytes([n, each])).digest() for each in range(4)]
        draft = Receipt(0, f"r{n}", n + 0.5, account, f"fast{len(behind)}", "groq", "real", 0, 1, 200, *hashes)
        made.append(receipts.chained(draft, made[-1].head if made else NO_HEAD, key))
    return made


def problems(kind: ChainKind[Link], found: Sequence[Link], kept: Sequence[Link] = ()) -> int:
    heads = [(ChainHead(each.sequence, each.digest), "a note") for each in kept[-1:]]
    check = ChainCheck(kind, KEY, kept=heads)
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
    branch = entries(behind=chain[:3])  # written, too, after an older copy of the database had been restored
    found = tampered(chain, [*entries(OTHER_KEY), *branch], resealed_entry, luck)
    was_written = found in (chain[: len(found)], branch[: len(found)])
    assert bool(problems(AUDIT_CHAIN, found)) is not was_written
    assert bool(problems(AUDIT_CHAIN, found, chain)) is (found != chain)


@pytest.mark.guarantee("V2")
@given(LUCK)
def test_no_change_of_a_chain_of_receipts_without_its_key_is_taken_for_what_was_written(luck: random.Random) -> None:
    chain = receipts_of()
    branch = receipts_of(behind=chain[:3])
    of_another = [replace(each, account="default") for each in receipts_of(account="team")]
    found = tampered(chain, [*receipts_of(OTHER_KEY), *of_another, *branch], resealed_receipt, luck)
    was_written = found in (chain[: len(found)], branch[: len(found)])
    assert bool(problems(RECEIPT_CHAIN, found)) is not was_written
    assert bool(problems(RECEIPT_CHAIN, found, chain)) is (found != chain)


def test_two_records_that_were_both_written_do_not_make_a_third() -> None:
    chain, entered = receipts_of(), entries()
    branch, other = receipts_of(behind=chain[:3]), entries(behind=entered[:3])
    assert problems(RECEIPT_CHAIN, [*chain[:4], *branch[4:]]) == problems(AUDIT_CHAIN, [*entered[:4], *other[4:]]) == 1


@pytest.mark.guarantee("V2")
def test_the_chain_of_another_account_or_of_no_key_is_found() -> None:
    assert problems(RECEIPT_CHAIN, receipts_of(OTHER_KEY)) == LENGTH
    renamed = [replace(each, account="default") for each in receipts_of(account="team")]
    assert problems(RECEIPT_CHAIN, renamed) == LENGTH
    assert problems(AUDIT_CHAIN, entries(OTHER_KEY)) == LENGTH
