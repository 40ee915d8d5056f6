"""Lines wait in a bounded queue for a thread: what writes them never waits, and what is lost is counted and told."""

import threading
import time
from collections.abc import Iterator

import pytest

from pointsman.events.line_output import LinesLost
from pointsman.events.line_writer import LineWriter
from pointsman.testing import FakeClock


class Place:
    """A place that a test opens and shuts."""

    name = "the place"

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.busy = threading.Event()
        self.trouble: LinesLost | None = None
        self.text = ""
        self.reopened: list[str] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.busy.set()
        assert self.open.wait(10)
        if self.trouble is not None:
            raise LinesLost(data.count(b"\n"), str(self.trouble), for_good=self.trouble.for_good)
        self.text += data.decode()

    def reopen(self) -> None:
        self.reopened.append(self.text)

    def close(self) -> None:
        self.closed = True


class Log:
    """A writer, its place, and what it said."""

    def __init__(self, most_pending: int = 100) -> None:
        self.place = Place()
        self.said: list[str] = []
        self.clock = FakeClock()
        self.writer = LineWriter(
            self.place,
            tell_loss=lambda count: f"lost {count}\n",
            complain=self.said.append,
            most_pending=most_pending,
            clock=self.clock,
        )

    def stuck(self) -> None:
        """Let the thread hang in a write of two bytes."""
        self.place.open.clear()
        self.place.busy.clear()
        self.writer.write("0\n")
        assert self.place.busy.wait(10)

    def drained(self) -> None:
        """Wait until nothing is pending."""
        deadline = time.monotonic() + 10
        while self.writer._pending and time.monotonic() < deadline:
            pass
        assert self.writer._pending == 0


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.place.open.set()
    log.writer.close(10)


def test_lines_arrive_in_order_and_closing_waits_for_them(log: Log) -> None:
    for number in range(30):
        log.writer.write(f"{number}\n")
    assert log.writer.close(10) == 0
    assert log.place.text == "".join(f"{number}\n" for number in range(30))
    assert log.place.closed


def test_a_writer_that_was_never_used_closes_its_place(log: Log) -> None:
    assert log.writer.close(10) == 0
    assert log.place.closed


@pytest.mark.parametrize(("size", "taken"), [(97, True), (98, True), (99, False)])
def test_100_bytes_may_wait(log: Log, size: int, taken: bool) -> None:
    log.stuck()
    log.writer.write("x" * (size - 1) + "\n")
    log.place.open.set()
    log.drained()
    assert ("x" in log.place.text) == taken
    assert log.writer.close(10) == (0 if taken else 1)


def test_a_slow_place_never_holds_up_who_writes_and_what_is_lost_is_told_where_it_is_missing(log: Log) -> None:
    log.stuck()
    log.writer.write("1\n")
    for _ in range(10):
        log.writer.write("x\n" * 50)
    log.writer.write("2\n")
    log.place.open.set()
    log.drained()
    assert log.place.text == "0\n1\nlost 500\n2\n"
    assert log.said[0] == "warning: events cannot be written to the place: they are taken too slowly; they are dropped"
    assert log.said[1:] == ["events are written to the place again; 500 were dropped"]
    assert log.writer.close(10) == 500


def test_trouble_is_told_once_and_so_is_its_end(log: Log) -> None:
    log.place.trouble = LinesLost(0, "No space left on device")
    for _ in range(20):
        log.writer.write("x\nx\n")
        log.drained()
    log.place.trouble = None
    log.writer.write("1\n")
    log.drained()
    assert log.place.text == "lost 40\n1\n"
    assert len(log.said) == 2
    assert "No space left on device" in log.said[0]
    assert "40 were dropped" in log.said[1]


@pytest.mark.parametrize(("seconds", "warnings"), [(59.9, 1), (60.0, 2)])
def test_trouble_that_comes_and_goes_is_told_once_a_minute(log: Log, seconds: float, warnings: int) -> None:
    for _ in range(2):
        log.place.trouble = LinesLost(0, "broken")
        log.writer.write("x\n")
        log.drained()
        log.place.trouble = None
        log.writer.write("1\n")
        log.drained()
        log.clock.advance(seconds)
    assert sum("warning" in each for each in log.said) == warnings
    assert log.place.text == "lost 1\n1\n" * 2


def test_a_place_that_is_gone_is_left_alone(log: Log) -> None:
    log.stuck()
    log.place.trouble = LinesLost(0, "Broken pipe", for_good=True)
    log.writer.write("1\n2\n")
    log.place.open.set()
    log.drained()
    log.place.trouble = None
    log.writer.write("3\n")
    log.writer.reopen()
    assert log.writer.close(10) == 4
    assert log.place.text == ""
    assert len(log.said) == 1


def test_a_place_that_is_stuck_does_not_keep_the_process_from_ending(log: Log) -> None:
    log.stuck()
    log.writer.write("1\n2\n")
    assert log.writer.close(-1) == 3


def test_a_file_is_opened_again_behind_the_lines_that_came_before(log: Log) -> None:
    log.writer.write("1\n")
    log.writer.reopen()
    log.writer.write("2\n")
    log.writer.close(10)
    assert log.place.reopened == ["1\n"]
    assert log.place.text == "1\n2\n"
