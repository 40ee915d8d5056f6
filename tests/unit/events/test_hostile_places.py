"""A log whose directory a sandboxed command can write to: no link makes us write into another file."""

import fcntl
import os
from pathlib import Path

import pytest

from pointsman.events.line_output import LinesLost, RotatingFile


def opened(path: Path, told: list[str], most_bytes: int = 0) -> RotatingFile:
    return RotatingFile(str(path), most_bytes=most_bytes, keep=2, complain=told.append)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_is_not_written_through_from_the_start(tmp_path: Path, link: object) -> None:
    target, path = tmp_path / "start-up-file", tmp_path / "events"
    target.write_text("kept")
    link(target, path)  # type: ignore[operator]
    with pytest.raises(OSError, match="link"):
        opened(path, [])
    assert target.read_text() == "kept"


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_put_in_its_place_is_not_followed_and_no_line_is_lost(tmp_path: Path, link: object) -> None:
    target, path, told = tmp_path / "start-up-file", tmp_path / "events", list[str]()
    target.write_text("kept")
    output = opened(path, told)
    output.write(b"one\n")
    path.rename(tmp_path / "moved")
    link(target, path)  # type: ignore[operator]
    output.write(b"two\n")
    output.write(b"three\n")
    output.close()
    assert target.read_text() == "kept"
    assert (tmp_path / "moved").read_text() == "one\ntwo\nthree\n"
    assert len(told) == 1
    assert "link" in told[0]


def test_a_link_to_the_moved_file_itself_is_not_taken_for_it(tmp_path: Path) -> None:
    path, told = tmp_path / "events", list[str]()
    output = opened(path, told)
    path.rename(tmp_path / "moved")
    path.symlink_to("moved")
    output.write(b"one\n")
    output.close()
    assert (tmp_path / "moved").read_text() == "one\n"
    assert told


def test_a_pipe_put_in_its_place_is_not_written_to(tmp_path: Path) -> None:
    path, told = tmp_path / "events", list[str]()
    output = opened(path, told)
    path.rename(tmp_path / "moved")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    output.write(b"one\n")
    output.close()
    assert os.read(reader, 100) == b""
    os.close(reader)
    assert (tmp_path / "moved").read_text() == "one\n"
    assert "no regular file" in told[0]


def test_links_in_the_places_of_older_files_are_replaced_and_not_followed(tmp_path: Path) -> None:
    target, path = tmp_path / "start-up-file", tmp_path / "events"
    target.write_text("kept")
    (tmp_path / "events.1").symlink_to(target)
    (tmp_path / "events.2").symlink_to(target)
    output = opened(path, [], most_bytes=10)
    for _ in range(4):
        output.write(b"123456789\n")
    output.close()
    assert target.read_text() == "kept"
    assert not (tmp_path / "events.1").is_symlink()


def test_a_full_device_is_still_a_device() -> None:
    output = opened(Path("/dev/full"), [])
    with pytest.raises(LinesLost):
        output.write(b"one\n")
    output.close()


def test_a_lock_held_by_a_reader_delays_no_line(tmp_path: Path) -> None:
    path, told = tmp_path / "events", list[str]()
    output = opened(path, told, most_bytes=10)
    output.write(b"123456789\n")
    reader = os.open(path, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_EX)
    for _ in range(4):
        output.write(b"123456789\n")
    assert path.read_bytes() == b"123456789\n" * 5, "better too large a file than no events"
    assert "locked" in told[0]
    assert len(told) == 1
    os.close(reader)
    output.write(b"123456789\n")
    output.close()
    assert path.read_bytes() == b"123456789\n"
