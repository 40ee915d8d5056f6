"""When to dial again, and what a gateway meant by closing. Pure."""

import random

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
REPLACED, REVOKED = 4001, 4003


class Backoff:
    """Delays that double from 1 to 30 s, each less up to a half of it, so that many runners don't come at once."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._base = SHORTEST_SECONDS

    def next_delay(self) -> float:
        """Seconds to wait before dialling again."""
        base, self._base = self._base, min(self._base * 2, LONGEST_SECONDS)
        return base * (1 - self._rng.random() / 2)

    def connected_for(self, seconds: float) -> None:
        """A connection has ended. One that lasted counts as health; a gateway that closes at once keeps its delay."""
        if seconds >= LONGEST_SECONDS:
            self._base = SHORTEST_SECONDS


def is_final(code: int | None) -> bool:
    """Whether dialling again would be for nothing, or would only end the answers of the runner that took the line over.

    A runner that dials again itself has closed its former socket, so whoever hears of a newer one has a double.
    """
    return code in (REPLACED, REVOKED)


def explained_close(code: int | None) -> str:
    """What happened, and what to do, for whoever reads the log. The gateway's own words are not repeated."""
    match code:
        case 4001:
            return (
                "another runner has connected with this one's token and replaced it, so this one ends; run one of them "
                "only, or make a second by 'pointsman runner register NAME --config-dir DIR'"
            )
        case 4002:
            return "the gateway heard nothing from this runner for too long; was this machine asleep?"
        case 4003:
            return (
                "the gateway has deleted this runner or given it a new token; run 'pointsman runner register', then "
                "start again"
            )
        case 1008:
            return "the gateway and this runner do not understand each other; are both of one version?"
        case 1009:
            return "a message was larger than agreed; are both of one version?"
        case 1013:
            return "the gateway cannot serve runners now; its log says why"
        case 1001 | 1012:
            return "the gateway is ending or starting anew"
    return "the connection to the gateway was lost"


def explained_refusal(status: int) -> str:
    """What a gateway means that does not open the websocket."""
    match status:
        case 401:
            return "the gateway does not accept this runner's token; run 'pointsman runner register', then start again"
        case 404:
            return "the gateway has no runners at this address; is it the address of its control listener?"
    return f"the gateway answered with status {status}; its log says why"
