"""Daily files: an event lies in its own day's, old days go, and no full disk or odd file holds anything up."""

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from pointsman.events.line_output import LinesLost
from pointsman.events.operations import Happening, Subject, event_line
from pointsman.events.operations_file import DailyFiles, file_name, operation_files, read_day
from pointsman.testing import FakeClock
from tests.support.chain_requests import GROQ, MIDNIGHT, scripted, succeed
from tests.support.descriptors import open_at

NOVEMBER_30, DECEMBER_1 = date(2026, 11, 30), date(2026, 12, 1)
DAY = 86400.0


def line(seconds: float, request_id: str = "r") -> bytes:
    return event_line(Happening("infer_started", seconds, Subject(request_id, "default", "fast"))).encode()


def files(directory: Path, keep_days: int = 30) -> tuple[DailyFiles, list[str]]:
    told: list[str] = []
    return DailyFiles(directory, keep_days, told.append), told


def ids(directory: Path, day: date) -> list[str]:
    text = (directory / file_name(day)).read_text()
    return [json.loads(each)["request_id"] for each in text.splitlines()]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_event_lies_in_the_file_of_its_own_day_also_when_written_later(tmp_path: Path) -> None:
    output, _ = files(tmp_path)
    output.write(line(MIDNIGHT - 1, "a") + line(MIDNIGHT - 0.1, "b") + line(MIDNIGHT, "c") + line(MIDNIGHT + 1, "d"))
    output.write(line(MIDNIGHT - 0.001, "late"))
    output.write(line(MIDNIGHT + 2, "e"))
    output.close()
    assert ids(tmp_path, NOVEMBER_30) == ["a", "b", "late"]
    assert ids(tmp_path, DECEMBER_1) == ["c", "d", "e"]


def test_events_that_went_to_and_fro_over_midnight_in_one_batch_are_sorted_out(tmp_path: Path) -> None:
    output, _ = files(tmp_path)
    output.write(line(MIDNIGHT, "a") + line(MIDNIGHT - 1, "b") + line(MIDNIGHT, "c"))
    output.close()
    assert (ids(tmp_path, NOVEMBER_30), ids(tmp_path, DECEMBER_1)) == (["b"], ["a", "c"])


def test_a_clock_that_is_set_back_by_days_loses_no_event(tmp_path: Path) -> None:
    output, _ = files(tmp_path)
    for number, day in enumerate((0, 1, -1, -2, -1, 1, 0)):
        output.write(line(MIDNIGHT + day * DAY, str(number)))
    output.close()
    assert [ids(tmp_path, DECEMBER_1 + timedelta(day)) for day in (-2, -1, 0, 1)] == [
        ["3"],
        ["2", "4"],
        ["0", "6"],
        ["1", "5"],
    ]


@pytest.mark.parametrize(("keep", "oldest"), [(1, 1), (2, 2), (30, 30), (0, 40)])
def test_files_older_than_the_days_to_keep_go_and_not_one_more(tmp_path: Path, keep: int, oldest: int) -> None:
    for back in range(1, 41):
        (tmp_path / file_name(DECEMBER_1 - timedelta(back))).write_bytes(line(MIDNIGHT - back * DAY))
    others = ["operations-2020-01-01.jsonl.gz", "operations-2020-06-31.jsonl", "note.txt"]
    for name in others:
        (tmp_path / name).write_text("")
    output, _ = files(tmp_path, keep)
    output.write(line(MIDNIGHT))
    output.close()
    days = [name for name in names(tmp_path) if name not in others]
    assert days == [file_name(DECEMBER_1 - timedelta(back)) for back in range(oldest, -1, -1)]
    assert set(others) < set(names(tmp_path))


def test_old_files_go_when_a_day_begins_while_it_runs(tmp_path: Path) -> None:
    output, _ = files(tmp_path, keep_days=2)
    for number in range(6):
        output.write(line(MIDNIGHT + number * DAY))
    output.close()
    assert names(tmp_path) == [file_name(DECEMBER_1 + timedelta(days)) for days in (3, 4, 5)]


def test_at_most_two_files_are_open(tmp_path: Path) -> None:
    output, _ = files(tmp_path)
    for number in range(6):
        output.write(line(MIDNIGHT + number * DAY))
    assert len(open_at(tmp_path)) == 2
    output.close()
    assert open_at(tmp_path) == []


def test_nobody_else_can_read_the_files_or_see_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "operations"
    output, _ = files(directory)
    output.prepare(DECEMBER_1)
    output.close()
    assert stat.S_IMODE(directory.stat().st_mode) & 0o027 == 0
    assert stat.S_IMODE((directory / file_name(DECEMBER_1)).stat().st_mode) & 0o137 == 0


def test_a_link_in_the_place_of_a_day_is_not_followed_and_the_other_days_are_written(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("")
    directory = tmp_path / "operations"
    output, _ = files(directory)
    output.prepare(NOVEMBER_30)
    (directory / file_name(DECEMBER_1)).symlink_to(target)
    with pytest.raises(LinesLost) as lost:
        output.write(line(MIDNIGHT - 1) + line(MIDNIGHT) + line(MIDNIGHT + 1) + line(MIDNIGHT - 2))
    output.close()
    assert lost.value.count == 2
    assert target.read_text() == ""
    assert len(ids(directory, NOVEMBER_30)) == 2


def test_a_line_that_a_crash_cut_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / file_name(DECEMBER_1)
    path.write_bytes(line(MIDNIGHT, "whole") + b'{"ts":"2026-12-')
    output, _ = files(tmp_path)
    output.write(line(MIDNIGHT, "next"))
    output.close()
    [whole, torn, following] = path.read_text().splitlines()
    assert torn == '{"ts":"2026-12-'
    assert [json.loads(each)["request_id"] for each in (whole, following)] == ["whole", "next"]


def test_a_directory_that_was_removed_is_made_again_but_not_what_holds_it(tmp_path: Path) -> None:
    directory = tmp_path / "disk" / "operations"
    output, _ = files(directory)
    output.prepare(NOVEMBER_30)
    output.write(line(MIDNIGHT - 2, "a"))
    shutil.rmtree(directory)
    output.write(line(MIDNIGHT - 1, "b"))
    assert ids(directory, NOVEMBER_30) == ["b"]
    assert stat.S_IMODE(directory.stat().st_mode) & 0o027 == 0
    shutil.rmtree(directory.parent)
    output.write(line(MIDNIGHT - 1, "c"))
    output.close()
    assert not directory.parent.exists()


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    output, _ = files(tmp_path)
    output.write(line(MIDNIGHT, "a"))
    (tmp_path / file_name(DECEMBER_1)).rename(tmp_path / "archived")
    output.write(line(MIDNIGHT, "b"))
    output.close()
    assert ids(tmp_path, DECEMBER_1) == ["b"]


FULL = """
import resource, signal, sys
from pathlib import Path
from pointsman.events.operations import Happening, Subject, event_line
from pointsman.events.operations_file import operation_files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
said = []
with operation_files(Path(sys.argv[1]), 30, said.append, lambda: 1796083200.0) as lines:
    for number in range(50):
        lines.write(event_line(Happening("infer_started", 1796083200.0, Subject(str(number), "a", "fast"))))
    while lines.pending:
        pass
    lost = lines.lost
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    lines.write(event_line(Happening("infer_started", 1796083200.0, Subject("after", "a", "fast"))))
print(lost, *said, sep="|")
"""


def test_a_full_disk_loses_whole_lines_and_tells_how_many_where_they_are_missing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    lost, *said = done.stdout.strip().split("|")
    events = [json.loads(each) for each in (tmp_path / file_name(DECEMBER_1)).read_text().splitlines()]
    written = [each["request_id"] for each in events if each["event"] == "infer_started"]
    dropped = sum(each["count"] for each in events if each["event"] == "events_dropped")
    assert dropped == int(lost) > 0
    assert len(written) == 51 - dropped
    assert written[-1] == "after"
    assert [each["event"] for each in events][-2:] == ["events_dropped", "infer_started"]
    assert any("File too large" in each for each in said)


def test_a_disk_that_is_full_when_it_starts_with_a_line_that_was_cut_is_no_reason_to_end(tmp_path: Path) -> None:
    path = tmp_path / file_name(DECEMBER_1)
    path.write_bytes(b"{" * 2000)
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    torn, *lines = path.read_text().splitlines()
    assert torn == "{" * 2000
    events = [json.loads(each) for each in lines]
    assert [(each["event"], each.get("count")) for each in events] == [("events_dropped", 50), ("infer_started", None)]
    assert done.stdout.startswith("50|")


def test_a_directory_that_cannot_be_made_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OSError, match="Not a directory"),
        operation_files(tmp_path / "file" / "x", 30, print, FakeClock(MIDNIGHT)),
    ):
        pass


def test_lines_are_written_by_a_thread_and_are_there_at_the_end(tmp_path: Path) -> None:
    with operation_files(tmp_path, 30, print, FakeClock(MIDNIGHT)) as lines:
        scripted(lambda journal: succeed(journal.request(), journal, GROQ), lines=lines)
        assert any(str(tmp_path) in thread.name for thread in threading.enumerate())
    assert ids(tmp_path, NOVEMBER_30) == ["r-1"] * 3
    assert lines.lost == 0


def test_a_day_is_read_in_pieces_as_far_as_it_went_when_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / file_name(DECEMBER_1)
    text = b"".join(line(MIDNIGHT, str(number)) for number in range(3000))
    path.write_bytes(text)
    pieces = read_day(tmp_path, DECEMBER_1)
    first = next(pieces)
    with path.open("ab") as more:
        more.write(line(MIDNIGHT, "later"))
    rest = list(pieces)
    assert first + b"".join(rest) == text
    assert max(map(len, [first, *rest])) <= 64 * 1024


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory", "absent"])
def test_only_a_regular_file_of_its_own_is_read(tmp_path: Path, kind: str) -> None:
    target, path = tmp_path / "target", tmp_path / file_name(DECEMBER_1)
    target.write_text("secret")
    make: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(target),
        "hard link": lambda: path.hardlink_to(target),
        "pipe": lambda: os.mkfifo(path),
        "directory": path.mkdir,
        "absent": lambda: None,
    }
    make[kind]()
    with pytest.raises(OSError):
        read_day(tmp_path, DECEMBER_1)
