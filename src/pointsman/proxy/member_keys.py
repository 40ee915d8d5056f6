"""Keys that lie in files: read for every attempt, so that a rotated one is in use at once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pointsman.config.secrets import SecretUnreadable, read_secret
from pointsman.core.attempts import Member
from pointsman.core.candidate import Candidate

_MOST_KEPT = 1024


class MemberKeys:
    """Gives members their candidates with the key of the moment; the same object for as long as the key is the same."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` hears of a file that cannot be used, once for each reason, and when it can be used again."""
        self._say = say
        self._kept: dict[int, tuple[Member, Candidate]] = {}
        self._told: dict[str, str] = {}

    def candidate(self, member: Member) -> Candidate:
        """What to call. Raises SecretUnreadable."""
        if not member.key_file:
            return member.candidate
        try:
            secret = read_secret(Path(member.key_file))
        except SecretUnreadable as error:
            self._tell(member, str(error))
            raise
        if member.key_file in self._told:
            self._tell(member, "")
        known = self._kept.get(id(member))
        if known is not None and known[0] is member and known[1].api_key == secret:
            return known[1]
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        candidate = replace(member.candidate, api_key=secret)
        self._kept[id(member)] = (member, candidate)
        return candidate

    def _tell(self, member: Member, problem: str) -> None:
        told = self._told.pop(member.key_file, "")
        if problem:
            self._told[member.key_file] = problem
        if problem != told:
            text = f"is passed over: its key file {problem}" if problem else "is asked again: its key file can be read"
            self._say(f"provider {member.provider} {text}")
