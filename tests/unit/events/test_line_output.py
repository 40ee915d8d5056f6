"""Files that are rotated, moved away or full: no line is lost or split without being counted."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pointsman.events.line_output import LinesLost, RotatingFile, StreamOutput

LINE = b"123456789\n"


class Complaints(list[str]):
    """What the operator was told."""


@pytest.fixture
def told() -> Complaints:
    return Complaints()


def rotating(path: Path, told: Complaints, *, most_bytes: int = 100, keep: int = 2) -> RotatingFile:
    return RotatingFile(str(path), most_bytes=most_bytes, keep=keep, complain=told.append)


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir()}


@pytest.mark.parametrize(
    ("size", "expected"),
    [(99, {"e": 99}), (100, {"e": 100}), (101, {"e": 11, "e.1": 90})],
)
def test_a_file_takes_exactly_its_size(tmp_path: Path, told: Complaints, size: int, expected: dict[str, int]) -> None:
    output = rotating(tmp_path / "e", told)
    output.write(LINE * 9)
    output.write(b"x" * (size - 91) + b"\n")
    output.close()
    assert sizes(tmp_path) == expected


def test_one_batch_fills_several_files_and_the_oldest_go(tmp_path: Path, told: Complaints) -> None:
    output = rotating(tmp_path / "e", told)
    output.write(b"".join(b"%09d\n" % number for number in range(45)))
    output.close()
    texts = [(tmp_path / name).read_text().split() for name in ("e.2", "e.1", "e")]
    assert [int(each) for text in texts for each in text] == list(range(20, 45))[-25:]
    assert sizes(tmp_path) == {"e": 50, "e.1": 100, "e.2": 100}
    assert told == []


def test_a_line_that_is_longer_than_a_file_gets_one_of_its_own(tmp_path: Path, told: Complaints) -> None:
    output = rotating(tmp_path / "e", told, keep=5)
    output.write(LINE + b"x" * 300 + b"\n" + LINE)
    output.close()
    assert sizes(tmp_path) == {"e": 10, "e.1": 301, "e.2": 10}


def test_a_size_of_nought_never_rotates(tmp_path: Path, told: Complaints) -> None:
    output = rotating(tmp_path / "e", told, most_bytes=0)
    output.write(LINE * 10_000)
    output.close()
    assert sizes(tmp_path) == {"e": 100_000}


def test_a_file_that_is_there_is_continued_and_counts(tmp_path: Path, told: Complaints) -> None:
    (tmp_path / "e").write_bytes(LINE * 9)
    output = rotating(tmp_path / "e", told)
    output.write(LINE * 2)
    output.close()
    assert sizes(tmp_path) == {"e": 10, "e.1": 100}


@pytest.mark.parametrize("how", ["renamed", "deleted", "replaced"])
def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path, told: Complaints, how: str) -> None:
    path = tmp_path / "e"
    output = rotating(path, told)
    output.write(LINE)
    if how == "deleted":
        path.unlink()
    else:
        path.rename(tmp_path / "moved")
    if how == "replaced":
        path.touch()
    output.write(LINE * 2)
    output.close()
    assert path.read_bytes() == LINE * 2
    assert how == "deleted" or (tmp_path / "moved").read_bytes() == LINE


def test_a_truncated_copy_goes_on_at_the_beginning(tmp_path: Path, told: Complaints) -> None:
    path = tmp_path / "e"
    output = rotating(path, told)
    output.write(LINE * 10)
    os.truncate(path, 0)
    output.write(LINE)
    output.close()
    assert sizes(tmp_path) == {"e": 10}


def test_when_the_directory_has_gone_the_moved_file_is_written_on(tmp_path: Path, told: Complaints) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    output = rotating(directory / "e", told)
    directory.rename(tmp_path / "moved")
    output.write(LINE)
    output.write(LINE)
    assert (tmp_path / "moved" / "e").read_bytes() == LINE * 2
    assert len(told) == 1
    assert "cannot open" in told[0]
    directory.mkdir()
    output.write(LINE)
    output.close()
    assert (directory / "e").read_bytes() == LINE


def test_a_file_that_cannot_be_rotated_grows_and_says_so_once(tmp_path: Path, told: Complaints) -> None:
    (tmp_path / "e.1").mkdir()  # a file cannot take the place of a directory, not even for root
    (tmp_path / "e.1" / "x").touch()
    output = rotating(tmp_path / "e", told, keep=1)
    for _ in range(30):
        output.write(LINE)
    output.close()
    assert (tmp_path / "e").stat().st_size == 300
    assert len(told) == 1
    assert "cannot rotate" in told[0]


def test_two_processes_may_rotate_one_file(tmp_path: Path, told: Complaints) -> None:
    def write(name: bytes) -> None:
        output = rotating(tmp_path / "e", told, most_bytes=1000, keep=900)
        for number in range(2000):
            output.write(b"%b %06d\n" % (name, number))
        output.close()

    writers = [threading.Thread(target=write, args=(name,)) for name in (b"a", b"b")]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    lines = b"".join(path.read_bytes() for path in tmp_path.iterdir()).split(b"\n")[:-1]
    assert sorted(lines) == sorted(b"%b %06d" % (name, number) for name in (b"a", b"b") for number in range(2000))
    assert told == []


def test_a_device_is_written_to_and_never_rotated(told: Complaints) -> None:
    output = rotating(Path("/dev/null"), told)
    output.write(LINE * 1000)
    output.close()


def test_a_full_device_loses_whole_lines_and_counts_them(told: Complaints) -> None:
    output = rotating(Path("/dev/full"), told)
    with pytest.raises(LinesLost) as lost:
        output.write(LINE * 7)
    output.close()
    assert (lost.value.count, lost.value.reason, lost.value.for_good) == (7, "No space left on device", False)


def test_a_named_pipe_without_a_reader_cannot_be_opened(tmp_path: Path, told: Complaints) -> None:
    os.mkfifo(tmp_path / "p")
    with pytest.raises(OSError, match="No such device"):
        rotating(tmp_path / "p", told)


FULL = """
import json, resource, signal, sys
from pointsman.events.line_output import LinesLost, RotatingFile
path, room = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
output = RotatingFile(path, most_bytes=0, keep=1, complain=print)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
lost = []
for number in range(3):
    try:
        output.write(b"".join(b"%d%08d\\n" % (number, each) for each in range(5)))
    except LinesLost as loss:
        lost.append(loss.count)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
output.write(b"the end\\n")
print(json.dumps(lost))
"""


@pytest.mark.parametrize("room", [50, 51, 59, 60, 61, 99, 100, 101, 149, 150])
def test_a_disk_that_fills_up_in_a_line_gets_its_rest_first_when_there_is_room(tmp_path: Path, room: int) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "e"), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lost = sum(json.loads(done.stdout))
    *lines, end = (tmp_path / "e").read_text().splitlines()
    assert end == "the end"
    assert all(len(line) == 9 and line.isdecimal() for line in lines)
    assert len(lines) + lost == 15
    assert len(lines) == -(-room // 10)  # a line that was begun is finished


def test_a_closed_pipe_is_lost_for_good(told: Complaints) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    output = StreamOutput(writing, "a pipe")
    with pytest.raises(LinesLost) as lost:
        output.write(LINE * 3)
    os.close(writing)
    assert (lost.value.count, lost.value.for_good) == (3, True)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_pipe_that_is_shared_gets_whole_lines(blocking: bool) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    received: list[bytes] = []

    def read() -> None:
        while piece := os.read(reading, 1 << 20):
            received.append(piece)

    reader = threading.Thread(target=read)
    reader.start()

    def write(letter: bytes) -> None:
        StreamOutput(writing, "a pipe").write(b"".join(letter * (1 + number % 4000) + b"\n" for number in range(3000)))

    writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    os.close(writing)
    reader.join()
    os.close(reading)
    lines = b"".join(received).split(b"\n")[:-1]
    assert len(lines) == 6000
    assert all(len(set(line)) == 1 for line in lines)
