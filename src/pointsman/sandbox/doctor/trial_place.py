"""Where trials run. Clients read configuration from the directories above them, so these must not be a stranger's."""

import os
import tempfile
from collections.abc import Sequence

_OTHERS = ("/var/tmp", "/tmp")  # noqa: S108  # a directory of its own is made there


def trial_place(here: str, places: Sequence[str] = ()) -> str:
    """The first of `places` in which to make the directories of the trials, and that does not lie below `here`.

    Below it, what lies in `here` would be configuration of the clients. When none suits it is the first after all.
    Without `places` they are `tempfile`'s choice and the usual ones.
    """
    places = places or (tempfile.gettempdir(), *_OTHERS)
    return next((each for each in places if _suits(each, here)), places[0])


def _suits(place: str, here: str) -> bool:
    real, above = os.path.realpath(place), os.path.realpath(here)
    # The list that keeps git from looking further up is separated by colons.
    if ":" in real or os.path.commonpath((real, above)) == above:
        return False
    return os.path.isdir(real) and os.access(real, os.W_OK | os.X_OK)
