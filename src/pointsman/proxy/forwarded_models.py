"""Chains that send the client's model name instead of each member's own: which name, and whom to call with it."""

from dataclasses import replace

from pointsman.core.attempts import Chain
from pointsman.core.candidate import Candidate
from pointsman.core.model_errors import NoModel
from pointsman.core.route import LONGEST_MODEL
from pointsman.wire.json_model import read_model

_MOST_KEPT = 1024


def model_to_forward(body: bytes, chain: Chain) -> str | None:
    """The name to send; None when the body has none, and members are asked for their own.

    Raises NoModel when no member has one either, or the name is no name, and MalformedRequest.
    """
    model = read_model(body)
    if model is None:
        if not any(member.candidate.model for member in chain.members):
            raise NoModel('the request names no model, and no provider of this route has one; set "model"')
        return None
    if not model or len(model) > LONGEST_MODEL or not model.isprintable():
        raise NoModel(f'"model" is not a name of 1 to {LONGEST_MODEL} printable characters')
    return model


class ForwardedModels:
    """Gives candidates with a client's model: the same object for the same name, so that what hangs on it is reused."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], tuple[Candidate, Candidate]] = {}

    def candidate(self, candidate: Candidate, model: str) -> Candidate:
        """What to call."""
        if model == candidate.model:
            return candidate
        known = self._kept.get((id(candidate), model))
        if known is not None and known[0] is candidate:
            return known[1]
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        made = replace(candidate, model=model)
        self._kept[id(candidate), model] = (candidate, made)
        return made
