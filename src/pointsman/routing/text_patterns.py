"""Patterns of RE2: many at once over one text, in time linear in it. Pure; the gateway alone needs the engine.

A pattern is Unicode text and is searched in UTF-8, so that `.` is a character and places are bytes. It ignores case
unless it says `(?-i)`, and `^` and `$` are the ends of a line.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

import re2

from pointsman.wire.json_strings import utf8

LONGEST_PATTERN = 1024
"""Characters."""
MOST_OPEN_STEPS = 2_000
"""Of one pattern (`open_steps`): `[^"]{200}` has 1,600 in UTF-8, `.{60}` 480."""
_SET_MEMORY = 64 * 1024 * 1024
"""What the automaton of all patterns may grow to; it holds the states that texts have led to, and forgets them then."""
_PATTERN_MEMORY = 8 * 1024 * 1024
_WRAPPED = "(?im:%s)"
_FORBIDDEN = {"A": "^", "z": "$", "C": "."}
_PROBE, _PROBE_PATTERN = b"\xf4\x8f\xbf\xbf", r"(?-i)\x{10FFFF}"
_ESCAPE = re.compile(r"\\(.)", re.S)
_TOKEN = re.compile(
    r"(?P<wide>\\[pP](?:\{[^}]*\}|.)|\\[dDwWsS]|\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|(?P<count>(?:[*+?]|\{\d+(?:,\d*)?\})\??)"
    r"|(?P<group>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:|[a-zA-Z-]+\)))?|\))"
    r"|(?P<choice>\|)"
    r"|(?P<edge>\\[bB]|[$^])"
    r"|(?P<letter>\\Q.*?(?:\\E|\Z)|\\x\{[^}]*\}|\\x..|\\[0-7]{1,3}|\\.|.)",
    re.S,
)
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)-([a-zA-Z]+)[:)]")
_CONTROLS = bytes((*range(9), *range(14, 32), 127))
"""Of ASCII, those that are no white space."""
INVISIBLE = re.compile(
    "[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that nobody sees (Default_Ignorable_Code_Point of Unicode 15, control characters but white space, marks of
annotations), and halves of characters."""


def options(memory: int) -> "re2.Options":
    """Of every pattern."""
    made = re2.Options()
    made.max_mem = memory
    made.log_errors = False
    made.never_capture = True
    return made


def pattern_problem(pattern: str) -> str:
    """Why a pattern cannot be used; empty when it can."""
    if len(pattern) > LONGEST_PATTERN:
        return f"is longer than {LONGEST_PATTERN} characters"
    if "\0" in pattern or any("\ud800" <= each <= "\udfff" for each in pattern):
        return "holds a NUL or half a character"
    if plain(pattern) != pattern:
        return (
            "holds characters in a form that no text is searched in; write them plain and composed (NFKC), or as \\x{…}"
        )
    for escaped in _ESCAPE.findall(pattern):
        if escaped in _FORBIDDEN:
            return f"holds \\{escaped}, which means nothing here; write {_FORBIDDEN[escaped]}"
    for _, removed in _FLAGS.findall(pattern):
        if "m" in removed:
            return "switches off (?m); ^ and $ are always the ends of a line"
    try:
        re2.compile(pattern, options(_PATTERN_MEMORY))
        compiled = re2.compile(_WRAPPED % pattern, options(_PATTERN_MEMORY))
    except re2.error as error:
        text = error.args[0] if error.args else ""
        return f"is not understood: {text.decode('utf-8', 'replace') if isinstance(text, bytes) else text}"
    if (steps := open_steps(pattern)) > MOST_OPEN_STEPS:
        return f"has {steps} steps that are open to many characters, more than {MOST_OPEN_STEPS}; write lower counts"
    return "matches the empty text, and so everything" if compiled.search(b"") else ""


def program_size(pattern: str) -> int:
    """How many instructions the engine makes of a pattern. Raises re2.error."""
    return int(re2.compile(_WRAPPED % pattern, options(_PATTERN_MEMORY)).programsize)


def open_steps(pattern: str) -> int:
    """How many of them a hostile text may keep busy at once: each costs up to 25 ns for each byte of it.

    All but those of letters that stand by themselves: these are left one after the other. What is repeated or optional,
    stands for many characters, or is a choice, counts, as often as it is repeated.
    """
    kept: list[str] = []
    is_letter, choices = False, 0
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if kind == "count" and is_letter:
            kept.pop()
        elif kind not in ("count", "wide"):
            kept.append(token[0])
        is_letter = kind == "letter"
        choices += kind == "choice"
    size = program_size(pattern)
    try:
        return max(0, size - program_size("".join(kept))) + choices
    except re2.error:
        return size


def pattern_cost(pattern: str) -> tuple[int, int]:
    """The open steps and the size of a pattern that has no problem."""
    return open_steps(pattern), program_size(pattern)


def plain(text: str) -> str:
    """What readers make of a text: compatibility forms are as what they stand for, what is invisible is not there."""
    return INVISIBLE.sub("", unicodedata.normalize("NFKC", INVISIBLE.sub("", text)))


def looks_as_it_is(text: bytes) -> bool:
    """Whether `plain` changes nothing of a text, as far as that is told at once."""
    return text.isascii() and len(text.translate(None, _CONTROLS)) == len(text)


def folded(name: str) -> str:
    """The same for all names that differ in case, or as `plain` says, only."""
    return plain(plain(name).casefold())


class PatternSet:
    """Compiled once; used on one thread at a time or on many."""

    __slots__ = ("_all", "_each", "_probe", "has_line_ends", "is_one_search", "steps")

    def __init__(self, patterns: Sequence[str]) -> None:
        """Patterns that have no problem (`pattern_problem`)."""
        self._each = [re2.compile(_WRAPPED % pattern, options(_PATTERN_MEMORY)) for pattern in patterns]
        self._all = re2.Set.SearchSet(options(_SET_MEMORY))
        for pattern in patterns:
            self._all.Add(_WRAPPED % pattern)
        self._probe = self._all.Add(_PROBE_PATTERN)
        self._all.Compile()
        # An engine whose memory does not do says of every text that nothing matches it. It does not do from the start,
        # or does for ever: when it is full of states, they are forgotten.
        self.is_one_search: bool = self._all.Match(_PROBE) == [self._probe]
        """Whether all are searched for at once, as the engine's memory allows for what a policy may hold."""
        self.has_line_ends = any("^" in pattern or "$" in pattern for pattern in patterns)
        """Whether it matters where lines begin and end."""
        self.steps = sum(map(open_steps, patterns))
        """What a hostile text may keep busy (`open_steps`)."""

    def matching(self, text: bytes) -> set[int]:
        """Which of them match anywhere, by their places in the sequence."""
        if not self.is_one_search:
            return {number for number in range(len(self._each)) if self.matches(number, text)}
        found: list[int] = self._all.Match(text)
        return {number for number in found if number != self._probe} if found else set()

    def in_forms(self, text: bytes, *, has_controls: bool = True) -> set[int]:
        """Which match a text as it is, or as it looks (`plain`). Without `has_controls` ASCII looks as it is."""
        found = self.matching(text)
        if not text.isascii():
            read = text.decode("utf-8", "surrogatepass")
            made = plain(read)
            if made != read:
                found |= self.matching(utf8(made))
        elif has_controls and len(seen := text.translate(None, _CONTROLS)) != len(text):
            found |= self.matching(seen)
        return found

    def matches(self, number: int, text: bytes) -> bool:
        """Whether one of them does."""
        return self._each[number].search(text) is not None

    def spans(self, number: int, text: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
        """Where one of them does, from the left, without overlaps; never the empty text.

        `start`: what stands before is looked at, and not matched.
        """
        for match in self._each[number].finditer(text, start):
            begin, end = match.span()
            if begin < end:
                yield begin, end
