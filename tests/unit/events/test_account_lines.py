"""The lines of one account, out of everybody's."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from pointsman.events.account_lines import AccountLines


def line(request_id: str, event: str, account: str | None = None) -> bytes:
    told = {"ts": "2026-11-30T00:00:00.000Z", "request_id": request_id, "event": event}
    return json.dumps(told if account is None else {**told, "account": account}).encode() + b"\n"


OURS = [
    line("1", "infer_started", "a"),
    line("1", "infer_fallback"),
    line("1", "infer_completed", "a"),
    line("3", "infer_started", "a"),
    line("3", "stream_completed"),
    line("3", "infer_completed", "a"),
    line("4", "infer_failed", "a"),  # began before midnight
]
MIXED = [
    OURS[0],
    line("2", "infer_started", "b"),
    line("2", "infer_fallback"),
    OURS[1],
    b'{"ts":"2026-11-30T00:00:00.000Z","requ\n',
    b"\n",
    b"[]\n",
    b"\xff\xfe\n",
    line("2", "infer_completed", "b"),
    OURS[2],
    line("", "events_dropped"),
    line("1", "infer_fallback"),  # nobody's: that request has ended
    *OURS[3:6],
    line("4", "infer_fallback"),  # whose, its last line tells
    OURS[6],
    line("5", "infer_started", "a")[:-1],  # not yet whole
]


@given(st.lists(st.integers(0, sum(map(len, MIXED))), max_size=8))
def test_however_a_file_is_cut_into_pieces_the_same_lines_are_the_accounts(cuts: list[int]) -> None:
    data, lines = b"".join(MIXED), AccountLines("a")
    places = [0, *sorted(cuts), len(data)]
    found = b"".join(lines.of(data[start:end]) for start, end in itertools.pairwise(places))
    assert found == b"".join(OURS)


def test_a_file_without_line_breaks_is_not_kept_in_memory() -> None:
    lines = AccountLines("a")
    for _ in range(64):
        assert lines.of(bytes(64 * 1024)) == b""
        assert len(lines._rest) <= 1024 * 1024
    assert lines.of(b"\n" + OURS[0]) == OURS[0]
