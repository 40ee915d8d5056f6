"""Which words of a file may be repeated in a message about it.

A message may end in a log or a chat window, and a key pasted into the wrong place must not travel with it: only words
that cannot be keys are shown.
"""

import difflib
import re
from collections.abc import Iterable, Mapping

_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{0,39}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_NEAR = 0.7
"""difflib's ratio from which a word counts as a slip of another; its own default, 0.6, pairs unrelated words."""


def shown(word: str) -> str:
    """The word with a space before it if it is surely no key (letters only), else nothing."""
    return f" {word}" if _WORD.fullmatch(word) else ""


def shown_variable(name: str) -> str:
    """The name of an environment variable with a space before it, if it looks like one and not like a key."""
    return f" {name}" if len(name) <= 64 and _VARIABLE.fullmatch(name) else ""


def nearest(word: str, known: Iterable[str], habits: Mapping[str, str] | None = None) -> str:
    """The known word that `word` is probably a slip of, or an empty string.

    `habits` maps words that other programs use for the same thing.
    """
    word = word.strip().lower()
    if habits and word in habits:
        return habits[word]
    close = difflib.get_close_matches(word[:64], tuple(known), n=1, cutoff=_NEAR)
    return close[0] if close else ""
