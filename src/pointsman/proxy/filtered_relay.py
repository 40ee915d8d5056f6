"""A relay whose body goes through a filter: what rules hold back, change or end.

Owns how an answer that a rule ends is told, before and after its first byte, that what takes long is searched beside
the event loop while its upstream waits, and that what is held is counted. What is held is the filter's.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pointsman.core.errors import Overloaded
from pointsman.core.policy import Blocked
from pointsman.proxy.answer_searches import MOST_ON_THE_LOOP, AnswerSearches
from pointsman.proxy.brakes import Brake
from pointsman.proxy.meter import Meter
from pointsman.proxy.relay import Relay
from pointsman.proxy.stages import BodyFilter

BLOCKED = "policy_blocked"
"""The reason that an event stream's client is told."""
BROKEN = "the answer cannot be searched, and a policy applies: internal error"
"""Nothing is meant to raise this."""
TOO_MUCH_HELD = "the answer cannot be searched, and a policy applies: too much is held of all answers together"
MOST_WAITING = 128 * 1024
"""Bytes of an answer that wait for a search of what came before them: beyond it its upstream is read no further. One
read goes beyond it, of at most 256 KiB."""
_SMALL = 16 * 1024
"""Not worth counting: as many of them as there may be connections are 16 MiB."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a filtered answer needs of what is around it."""

    searches: AnswerSearches
    abandon: Callable[[], None]
    """Stops the upstream of an answer of which nothing more may pass."""
    brake: Brake
    """Slows the upstream down while a search is waited for."""
    hold: Callable[[int], None]
    """Counts what is held now, among what all connections hold. Raises Overloaded."""
    begun: Callable[[], None]
    """Told when the head is about to go out."""


class _Piece(NamedTuple):
    """What has come. `is_cut`: nothing, and nothing more will."""

    data: bytes
    last: bool
    is_cut: bool = False


class FilteredRelay(Relay):
    """The head goes out with the first bytes that may pass: until then a rule can still refuse the answer by a status.

    Whoever relays awaits `searched` when the body has ended.
    """

    __slots__ = (
        "_around",
        "_counted",
        "_filter",
        "_idle",
        "_pieces",
        "_refused",
        "_searching",
        "_seen",
        "_sought",
        "_waiting",
        "came",
    )

    _around: Surroundings | None
    _counted: int
    _filter: BodyFilter | None
    _idle: "asyncio.Future[None] | None"
    _pieces: list[_Piece]
    _refused: str
    _searching: "asyncio.Future[tuple[bytes, str]] | None"
    _seen: Meter
    _sought: int
    _waiting: int
    came: int
    """Bytes of the upstream's body."""

    def filter(self, body_filter: BodyFilter, around: Surroundings) -> None:
        """Before anything else."""
        self._filter = body_filter
        self._around = around
        self._refused = ""
        self._seen = Meter(of_responses=self._meter.of_responses)
        self._pieces = []
        self._searching = self._idle = None
        self._counted = self._sought = self._waiting = self.came = 0

    @property
    def meter(self) -> Meter:
        """What the upstream said of its cost, whether that was handed on or not."""
        return self._seen

    @property
    def refused(self) -> str:
        """See Relay."""
        return self._refused

    @property
    def is_searching(self) -> bool:
        """Whether a thread is at it."""
        return self._searching is not None

    def start(self) -> None:
        """The head waits for what may pass, where anything may be refused."""
        if self._filter is not None and not self._filter.holds:
            self._begin()

    def let_go(self) -> None:
        """Of what is held, and of the upstream's answer, which holds this. It has ended, however it did."""
        around, self._around, self._filter = self._around, None, None
        self._pieces = []
        if around is not None and self._counted:
            around.hold(0)

    def body(self, data: bytes, *, last: bool) -> None:
        """Take what one upstream read delivered."""
        if self._refused or self._filter is None:
            return
        if self.hashes is not None:
            self.hashes.come(data)
        if data:
            self._seen.watch(data)
            self.came += len(data)
        self._take(self._filter, _Piece(data, last))

    async def searched(self, *, is_cut: bool) -> None:
        """Until all that came is; of a body that was cut, what was held as well."""
        await self._until_idle()
        held = self._filter
        if is_cut and held is not None and not self._refused and self._tail is not None:
            self._take(held, _Piece(b"", last=False, is_cut=True))
            await self._until_idle()

    async def _until_idle(self) -> None:
        while self._searching is not None:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def _take(self, held: BodyFilter, piece: _Piece) -> None:
        """In the order in which it comes: what takes long, and what comes meanwhile, beside the loop."""
        if self._searching is None and held.work(piece.data, last=piece.last or piece.is_cut) <= MOST_ON_THE_LOOP:
            self._hand_on(piece, *_passed(held, piece))
        else:
            self._pieces.append(piece)
            self._waiting += len(piece.data)
            if self._searching is None:
                self._search(held)
            elif self._waiting > MOST_WAITING and self._around is not None:
                self._around.brake.pause()
        self._count()

    def _search(self, held: BodyFilter) -> None:
        pieces, self._pieces, self._waiting = self._pieces, [], 0
        piece = _Piece(b"".join([each.data for each in pieces]), pieces[-1].last, pieces[-1].is_cut)
        self._sought = len(piece.data)
        if self._around is not None:
            self._searching = self._around.searches.begin(partial(_passed, held, piece))
            self._searching.add_done_callback(partial(self._found, piece))

    def _found(self, piece: _Piece, search: "asyncio.Future[tuple[bytes, str]]") -> None:
        self._searching, self._sought, around = None, 0, self._around
        if not search.cancelled() and around is not None and not self._refused:
            self._hand_on(piece, *search.result())
            if self._pieces and self._filter is not None and not self._refused:
                self._search(self._filter)
            self._count()
            around.brake.resume()  # last: what it has kept may come at once
        if self._searching is None and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _hand_on(self, piece: _Piece, passed: bytes, refused: str) -> None:
        self._refused = refused
        self._hand(passed, last=piece.last and not refused)
        if refused and self._around is not None:
            self._around.abandon()

    def _hand(self, data: bytes, *, last: bool) -> None:
        if data or last:
            self._tell_begin()
            hashes, self.hashes = self.hashes, None  # has been told what came
            super().body(data, last=last)
            self.hashes = hashes
            if hashes is not None:
                hashes.hand(data)

    def _begin(self) -> None:
        self._tell_begin()
        super().start()

    def _tell_begin(self) -> None:
        if not self.has_begun and self._around is not None:
            self._around.begun()

    def _count(self) -> None:
        """What is held. Where that is too much nothing more passes, or nothing more is looked at."""
        if self._around is None or self._filter is None:
            return
        held = 0 if self._refused else self._filter.held + self._sought + self._waiting
        held = held if held > _SMALL else 0
        if held == self._counted:
            return
        self._counted = held
        try:
            self._around.hold(held)
        except Overloaded:
            if self._filter.holds:
                self._refused, self._pieces = TOO_MUCH_HELD, []
                self._around.abandon()
            else:
                self._filter = _Unseen()
            self._counted = 0
            self._around.hold(0)

    def truncate(self, reason: str) -> None:
        """The body ends here. What was held goes first; where a rule ends it, before its first byte, that is all."""
        held = self._filter
        if not self._refused and self._tail is not None and held is not None and self._searching is None:
            passed, self._refused = _passed(held, _Piece(b"", last=False, is_cut=True))
            self._hand(passed, last=False)
            if self._refused:
                return
        self._begin()
        super().truncate(reason)


class _Unseen:
    """For what is looked at no more."""

    holds = False
    held = 0

    def work(self, data: bytes, *, last: bool) -> int:
        return 0

    def receive(self, data: bytes) -> bytes:
        return data

    def finish(self, *, is_whole: bool = True) -> bytes:
        return b""


def _passed(held: BodyFilter, piece: _Piece) -> tuple[bytes, str]:
    """What may go on, and why nothing else may; it touches nothing else, so that a thread may do it."""
    passed = b""
    try:
        if piece.data or not piece.is_cut:
            passed = held.receive(piece.data)
        if piece.last or piece.is_cut:
            passed += held.finish(is_whole=piece.last)
    except Blocked as blocked:
        return passed + blocked.passed, blocked.told
    except Exception:  # what was not searched does not pass, and the connection that brought it goes on
        return (passed, BROKEN) if held.holds else (piece.data, "")
    return passed, ""
