"""What a route has taken out of long conversations before they are sent on, and how that is written. Pure."""

import re
from dataclasses import dataclass

NO_CONTEXT = "none"
"""How it is written that a route takes nothing out."""
LEAST_TOKENS = 1000
"""Of `most-tokens` (ours): below it little more than a system prompt is left."""
MOST_TOKENS = 10_000_000
"""Of the same (ours): above every model's context, and every body's bytes."""
DUPLICATES, UNUSED_TOOLS, TOKENS = "drop-duplicates", "drop-unused-tools", "most-tokens"
LONGEST_CONTEXT = 80
"""Characters of all of it, written."""
CONTEXT_RULE = f"{DUPLICATES}, {UNUSED_TOOLS} and {TOKENS}=N, with commas between, or {NO_CONTEXT}"
_WHOLE = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """At least one of them; a route that takes nothing out has None in its place."""

    drop_duplicates: bool = False
    """Results of tools, and messages, that are there already, byte for byte."""
    drop_unused_tools: bool = False
    """Tools that a long conversation has never called."""
    most_tokens: int = 0
    """Reckoned, of the whole request: beyond it the oldest turns go. 0: all stay."""

    @property
    def written(self) -> str:
        """As `read_context` takes it."""
        words = [DUPLICATES] * self.drop_duplicates + [UNUSED_TOOLS] * self.drop_unused_tools
        return ",".join([*words, *([f"{TOKENS}={self.most_tokens}"] if self.most_tokens else [])])


def written_context(options: ContextOptions | None) -> str:
    """As it is stored and sent; empty for none."""
    return "" if options is None else options.written


def read_context(text: str) -> ContextOptions | None:
    """Of an empty text, and of `none`, None. Raises ValueError, whose text is for whoever wrote it."""
    if text.strip() in ("", NO_CONTEXT):
        return None
    if len(text) > LONGEST_CONTEXT:
        raise ValueError(f"longer than {LONGEST_CONTEXT} characters; write {CONTEXT_RULE}")
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name in given:
            raise ValueError(f"{name} is there twice; write it once")
        if name not in (DUPLICATES, UNUSED_TOOLS, TOKENS) or bool(equals) != (name == TOKENS):
            raise ValueError(f"{part.strip()!r} is none of its options; write {CONTEXT_RULE}")
        given[name] = value
    return ContextOptions(DUPLICATES in given, UNUSED_TOOLS in given, _tokens(given.get(TOKENS)))


def _tokens(value: str | None) -> int:
    if value is None:
        return 0
    if not _WHOLE.fullmatch(value) or not LEAST_TOKENS <= int(value) <= MOST_TOKENS:
        raise ValueError(f"{TOKENS} is a whole number between {LEAST_TOKENS} and {MOST_TOKENS}")
    return int(value)
