"""How long a match of a pattern can be, as far as the pattern says so. Pure.

An upper bound in characters, or none. What is not understood here has none, which is always safe: whoever asks then
waits for the whole text.
"""

from functools import lru_cache

_FLAGS = frozenset("imsU-")
_ZERO_WIDTH = frozenset("bBAz")
_SIMPLE = frozenset("aftnrvdDsSwW")
_MOST_DEPTH = 50
_MOST = 1_000_000


class _NotUnderstood(Exception):
    pass


@lru_cache(maxsize=4096)
def longest_match(pattern: str) -> int | None:
    """Characters that a match may have at most; None when there is no bound, or none is known."""
    reading = _Reading(pattern)
    try:
        longest = reading.alternatives(0)
        if not reading.is_done:
            return None
    except (_NotUnderstood, IndexError, ValueError):
        return None
    return longest if longest is not None and longest <= _MOST else None


def _times(longest: int | None, most: int | None) -> int | None:
    if longest == 0 or most == 0:
        return 0
    return None if longest is None or most is None else longest * most


class _Reading:
    """One walk over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._pattern)

    def _next_is(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if self._next_is(text):
            self._at += len(text)
            return True
        return False

    def _char(self) -> str:
        self._at += 1
        return self._pattern[self._at - 1]

    def _until(self, end: str) -> str:
        begin = self._at
        self._at = self._pattern.index(end, begin) + len(end)
        return self._pattern[begin : self._at - len(end)]

    def alternatives(self, depth: int) -> int | None:
        if depth > _MOST_DEPTH:
            raise _NotUnderstood
        longest: int | None = 0
        while True:
            one: int | None = 0
            while not self.is_done and not self._next_is("|") and not self._next_is(")"):
                piece = self._repeated(self._atom(depth))
                one = None if one is None or piece is None else one + piece
            longest = None if longest is None or one is None else max(longest, one)
            if not self._take("|"):
                return longest

    def _repeated(self, longest: int | None) -> int | None:
        while not self.is_done:
            if self._take("*") or self._take("+"):
                longest = _times(longest, None)
            elif self._next_is("{"):
                longest = _times(longest, self._count())
            elif not self._take("?"):
                break
        return longest

    def _count(self) -> int | None:
        """What `{n}`, `{n,}` or `{n,m}` says; anything else in braces may be text."""
        self._take("{")
        least, comma, most = self._until("}").partition(",")
        if not (least.isascii() and least.isdigit() and (not most or (most.isascii() and most.isdigit()))):
            raise _NotUnderstood
        if not comma:
            return max(1, int(least))
        return max(1, int(most)) if most else None

    def _atom(self, depth: int) -> int | None:
        char = self._char()
        if char == "(":
            return self._group(depth)
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        return 0 if char in "^$" else 1

    def _group(self, depth: int) -> int | None:
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                self._until(">")
            else:
                while (char := self._char()) in _FLAGS:
                    pass
                if char == ")":
                    return 0
                if char != ":":
                    raise _NotUnderstood
        longest = self.alternatives(depth + 1)
        if not self._take(")"):
            raise _NotUnderstood
        return longest

    def _class(self) -> int:
        self._take("^")
        is_first = True
        while True:
            if self._take("[:"):
                self._until(":]")
            else:
                char = self._char()
                if char == "]" and not is_first:
                    return 1
                if char == "\\":
                    self._escape()
            is_first = False

    def _escape(self) -> int:
        char = self._char()
        if char in _ZERO_WIDTH:
            return 0
        if char in "pP":
            if self._take("{"):
                self._until("}")
            else:
                self._char()
        elif char == "x":
            if self._take("{"):
                self._until("}")
            else:
                self._at += 2
        elif char.isalnum() and char not in _SIMPLE:
            raise _NotUnderstood  # octal numbers, \Q…\E and what else there may be
        return 1
