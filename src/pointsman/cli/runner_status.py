"""What `pointsman runner status` tells: who this runner is, whether its gateway has its connection, whether its models
are served. Asks the gateway with the user's key, if there is one, and the approved servers for their models.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pointsman.cli.show import block
from pointsman.core.secret import Secret
from pointsman.runner.allowlist import ApprovedModel
from pointsman.runner.control_api import CallFailed, ControlApi, Seen
from pointsman.runner.discovery import Probed, discover
from pointsman.runner.state import RunnerState

_GATEWAY_SECONDS = 5.0
_UNAUTHENTICATED, _NOT_FOUND = 401, 404


@dataclass(frozen=True, slots=True)
class Presence:
    """What the gateway says. `problem` is why it is not known, or what to do about it."""

    connected: bool | None
    last_seen_at: str | None = None
    problem: str = ""

    @property
    def text(self) -> str:
        """On one line."""
        if self.connected:
            return "yes"
        if self.connected is None:
            return f"not known; {self.problem}"
        seen = f", last seen {self.last_seen_at}" if self.last_seen_at else ""
        return f"no{seen}; {self.problem}"


def presence(state: RunnerState, key: Secret | None) -> Presence:
    """Ask the gateway, briefly. Raises OSError for a file of authorities that cannot be used."""
    try:
        seen: Seen = ControlApi(state.gateway, key, _GATEWAY_SECONDS).runner(state.runner_id)
    except CallFailed as error:
        if error.status == _NOT_FOUND:
            return Presence(False, problem="the gateway does not have this runner; 'pointsman runner register' again")
        if error.status == _UNAUTHENTICATED and key is None:
            return Presence(None, problem="the gateway tells whoever has a key; give --key-file FILE")
        return Presence(None, problem=str(error))
    if seen.is_online:
        return Presence(True, seen.last_seen_at)
    return Presence(
        False, seen.last_seen_at, "start it by 'pointsman runner start'; one that runs already says why in its log"
    )


def problems(approved: Sequence[ApprovedModel]) -> list[str]:
    """Why each of the models would not be answered for now; empty for those that would."""
    places = list(dict.fromkeys(each.endpoint for each in approved))
    probed = dict(zip(places, asyncio.run(discover(places)), strict=True))
    return [_problem(probed[each.endpoint], each) for each in approved]


def _problem(probed: Probed, model: ApprovedModel) -> str:
    if model.model_identifier in probed.models:
        return ""
    if probed.problem:
        return f"{probed.endpoint.url} {probed.problem}"
    return f"{probed.endpoint.url} does not list it"


def as_lines(state: RunnerState, approved: Sequence[ApprovedModel], told: Presence, wrong: Sequence[str]) -> list[str]:
    """For people."""
    pairs = [("Id", state.runner_id), ("Name", state.name), ("Gateway", state.gateway.url), ("Connected", told.text)]
    for each, problem in zip(approved, wrong, strict=True):
        pairs.append(("Approved", f"{each.model_identifier} at {each.endpoint.url} ({each.model_id})"))
        if problem:
            pairs.append(("Problem", problem))
    return block("Runner", pairs if approved else [*pairs, ("Approved", "nothing; 'pointsman runner models' does")])


def as_document(
    state: RunnerState, approved: Sequence[ApprovedModel], told: Presence, wrong: Sequence[str]
) -> dict[str, Any]:
    """For programs."""
    return {
        "runner_id": state.runner_id,
        "name": state.name,
        "gateway": state.gateway.url,
        "connected": told.connected,
        "last_seen_at": told.last_seen_at,
        "problem": told.problem or None,
        "models": [
            {
                "model_id": each.model_id,
                "base_url": each.endpoint.url,
                "model_identifier": each.model_identifier,
                "problem": problem or None,
            }
            for each, problem in zip(approved, wrong, strict=True)
        ],
    }
