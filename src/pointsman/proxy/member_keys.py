"""Keys that lie in files: read for every attempt, so that a rotated one is in use at once."""

from dataclasses import replace
from pathlib import Path

from pointsman.config.secrets import read_secret
from pointsman.core.attempts import Member
from pointsman.core.candidate import Candidate

_MOST_KEPT = 1024


class MemberKeys:
    """Gives members their candidates with the key of the moment; the same object for as long as the key is the same."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Member, Candidate]] = {}

    def candidate(self, member: Member) -> Candidate:
        """What to call. Raises SecretUnreadable."""
        if not member.key_file:
            return member.candidate
        secret = read_secret(Path(member.key_file))
        known = self._kept.get(id(member))
        if known is not None and known[0] is member and known[1].api_key == secret:
            return known[1]
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        candidate = replace(member.candidate, api_key=secret)
        self._kept[id(member)] = (member, candidate)
        return candidate
