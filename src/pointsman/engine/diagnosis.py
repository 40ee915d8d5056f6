"""Why a child failed, in one line, from what it left behind. Pure: what was left behind is passed in."""

import re
import signal

_COMPLAINT = re.compile(r"^[\d.]+ E (?:srv +|cmn +|que +)?[\w ]*?\w+: (?:error loading model: )?(?P<text>.+)$", re.M)
_LONGEST = 300
_SIGNALS = {
    signal.SIGILL: "this processor lacks an instruction that the installed llama.cpp uses",
    signal.SIGKILL: "the system may have run out of memory",
}


def first_complaint(messages: str) -> str:
    """The first error in llama.cpp's log; those that follow are its consequences. Empty when there is none."""
    match = _COMPLAINT.search(messages)
    return match["text"].strip()[:_LONGEST] if match else ""


def how_it_ended(status: int | None) -> str:
    """A process's exit status as `asyncio` gives it: negative for a signal, None while it runs."""
    if status is None:
        return "it did not answer in time"
    if status >= 0:
        return f"it ended with status {status}"
    try:
        number = signal.Signals(-status)
    except ValueError:
        return f"it was killed by signal {-status}"
    hint = _SIGNALS.get(number)
    return f"it was killed by {number.name}" + (f"; {hint}" if hint else "")
