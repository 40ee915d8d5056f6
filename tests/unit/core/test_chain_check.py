"""A record that was altered, cut, added to or put into another order is not taken for the one that was written."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pointsman.core.audit import (
    AUDIT_CHAIN,
    AuditDraft,
    AuditEntry,
    chained,
    digest_of_entry,
)
from pointsman.core.chain import NO_HEAD, ChainHead, parse_head
from pointsman.core.chain_check import MOST_TOLD, ChainCheck

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
Entries = list[AuditEntry]


def drafts(number: int) -> list[AuditDraft]:
    return [AuditDraft(1000.1 + n, "default", "admin", "key.create", f"k{n}", "", '{"n":1}') for n in range(number)]


WRITTEN = chained(NO_HEAD, drafts(6), KEY)
HEAD = ChainHead(6, WRITTEN[-1].digest)


def problems(entries: Entries, start: ChainHead = NO_HEAD, kept: ChainHead | None = None) -> list[str]:
    check = ChainCheck(AUDIT_CHAIN, KEY, start, [(kept, "the note")] if kept else [])
    for entry in entries:
        check.add(entry)
    check.end()
    assert check.problem_count == len(check.problems)
    assert check.checked == len(entries)
    return check.problems


def resealed(entry: AuditEntry, key: bytes = OTHER_KEY) -> AuditEntry:
    """As whoever has no key file would seal it."""
    return replace(entry, digest=digest_of_entry(entry, key))


def test_what_was_written_passes_whole_and_in_parts() -> None:
    assert problems(WRITTEN, kept=HEAD) == []
    assert problems([]) == []
    assert problems(WRITTEN[3:], ChainHead(3, WRITTEN[2].digest), HEAD) == []
    longer = [*WRITTEN, *chained(HEAD, drafts(2), KEY)]
    assert problems(longer, kept=HEAD) == []


@pytest.mark.parametrize(
    "change",
    [
        {"at": 1000.2},
        {"account": "other"},
        {"actor": "gateway"},
        {"action": "key.revoke"},
        {"subject": "k9"},
        {"before": "{}"},
        {"after": '{"n": 1}'},
        {"digest": b"x" * 32},
        {"digest": b""},
    ],
)
@pytest.mark.guarantee("W3")
def test_an_altered_field_is_found_where_it_is(change: dict[str, object]) -> None:
    for at in range(6):
        entries = [*WRITTEN]
        entries[at] = replace(entries[at], **change)  # type: ignore[arg-type]
        found = problems(entries)
        assert found[0] == f"entry {at + 1} was altered, or was not written by a gateway with this key file"
        # The next one then follows another entry than it says.
        assert len(found) == (2 if "digest" in change and at < 5 else 1)


def test_text_that_moves_from_one_field_to_the_next_is_found() -> None:
    entry = replace(WRITTEN[1], actor="adm", action="in" + WRITTEN[1].action)
    assert len(problems([WRITTEN[0], entry, *WRITTEN[2:]])) == 1


@pytest.mark.parametrize(
    ("tamper", "told"),
    [
        (lambda e: e[1:], ["entry 1 is missing"]),
        (lambda e: e[3:], ["entries 1 to 3 are missing"]),
        (lambda e: e[:2] + e[3:], ["entry 3 is missing"]),
        (lambda e: e[:1] + e[4:], ["entries 2 to 4 are missing"]),
        (lambda e: [*e[:2], e[3], e[2], *e[4:]], ["entry 3 is missing", "entry 3 stands behind entry 4"]),
        (lambda e: [*e[:3], e[2], *e[3:]], ["entry 3 stands behind entry 3"]),
        (lambda e: [*e[:3], e[0], *e[3:]], ["entry 1 stands behind entry 3"]),
        (lambda e: [*e, resealed(replace(e[5], sequence=7, previous=e[5].digest))], ["entry 7 was altered"]),
        (lambda e: [resealed(replace(e[0], sequence=0)), *e], ["entry 0 stands behind entry 0", "entry 0 was altered"]),
        (lambda e: [resealed(each) for each in e], [*(f"entry {n} was altered" for n in range(1, 7))]),
    ],
)
@pytest.mark.guarantee("W3")
def test_rows_that_were_removed_moved_or_put_in_are_found(
    tamper: Callable[[Entries], Entries], told: list[str]
) -> None:
    found = problems(tamper([*WRITTEN]))
    assert [line for line in told if not any(one.startswith(line) for one in found)] == []
    assert len([one for one in found if "does not follow" not in one]) == len(told)


def test_rows_that_were_removed_and_the_rest_numbered_anew_are_found() -> None:
    moved = [replace(entry, sequence=n) for n, entry in enumerate(WRITTEN[:2] + WRITTEN[3:], 1)]
    assert [line.split(" ")[1] for line in problems(moved)] == ["3", "3", "4", "5"]


@pytest.mark.guarantee("W3")
def test_a_cut_end_is_found_by_a_head_that_was_kept_and_by_nothing_else() -> None:
    assert problems(WRITTEN[:4]) == []
    assert problems(WRITTEN[:4], kept=HEAD) == [
        "the last is entry 4, and the note has entry 6: the end was cut off, or an older database was restored"
    ]
    assert len(problems([], kept=HEAD)) == 1


def test_a_record_that_was_written_anew_with_the_key_is_found_by_a_kept_head_only() -> None:
    """Whoever has the key file can do that."""
    again = chained(NO_HEAD, drafts(7)[1:], KEY)
    assert problems(again) == []
    assert problems(again, kept=HEAD) == ["entry 6 is not the one that the note has: the chain was rewritten"]


def test_of_many_problems_the_first_are_told_and_all_are_counted() -> None:
    check = ChainCheck(AUDIT_CHAIN, KEY)
    for entry in chained(NO_HEAD, drafts(MOST_TOLD + 1), OTHER_KEY):
        check.add(entry)
    assert (len(check.problems), check.problem_count) == (MOST_TOLD, MOST_TOLD + 1)


def test_a_head_is_read_as_it_is_told() -> None:
    assert parse_head(f" {HEAD}\n") == HEAD
    assert parse_head(str(NO_HEAD)) == NO_HEAD


@pytest.mark.parametrize("text", ["", "6", "6:", f"x:{'0' * 64}", f"6:{'0' * 63}", f"6:{'g' * 64}", f"-1:{'0' * 64}"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"head|hexadecimal"):
        parse_head(text)
