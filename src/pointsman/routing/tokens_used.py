"""How many tokens a request may come to, and did come to. Pure; what an upstream reports is `wire.usage`'s."""

from pointsman.core.price import Tokens
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.wire.output_bound import OutputBound
from pointsman.wire.usage import TokenUsage

DEFAULT_OUTPUT_TOKENS = 4096
"""Reserved for an answer whose request names no limit (ours): most answers are shorter, few models' longest is."""
_LEAST_BYTES = 3
"""Of a request's body for each token, reserved: less only where every word is rare."""
_USUAL_BYTES = 4
"""Of text for each token, as providers say of English."""
_STREAMED_BYTES = 100
"""Of an event stream for each token: less than events of one token have, so that it is not reckoned too little."""
_MOST = 1 << 40
"""Tokens of one prompt or answer: an upstream that reports more lies, and sums must stay within 64 bits."""
NOTHING = Tokens()
_SILENT = TokenUsage(-1, -1)


def may_use(received: int, bound: OutputBound, protocol: str, path: str) -> Tokens:
    """The most that a request with a body of so many bytes is expected to come to."""
    if is_counting(path):
        return NOTHING
    return Tokens(-(-received // _LEAST_BYTES), _longest_output(bound, protocol))


def is_counting(path: str) -> bool:
    """Whether it only asks how many tokens a request would have, which uses none."""
    return path.endswith("/count_tokens")


def _longest_output(bound: OutputBound, protocol: str) -> int:
    if protocol == P.EMBEDDINGS:
        return 0
    return (DEFAULT_OUTPUT_TOKENS if bound.tokens is None else bound.tokens) * bound.answers


def has_used(
    reported: TokenUsage | None, received: int, sent: int, *, protocol: str, is_stream: bool, is_whole: bool
) -> Tokens:
    """What a request came to that was answered with success, or may have been: what nobody reported is reckoned.

    `received`, `sent`: bytes of the two bodies, as the upstream had and sent them. Not `is_whole` is a stream that was
    cut before it had said why it ends: its output is reckoned too, since its upstream may have told the first of its
    tokens only.
    """
    said = _SILENT if reported is None else reported
    incoming, outgoing = said.prompt_tokens, said.output_tokens
    if protocol == P.EMBEDDINGS:
        outgoing, is_whole = max(outgoing, 0), True  # numbers are no tokens
    is_estimated = incoming < 0 or outgoing < 0 or not is_whole
    if incoming < 0:
        incoming = -(-received // _USUAL_BYTES)
    if outgoing < 0 or not is_whole:
        outgoing = max(outgoing, -(-sent // (_STREAMED_BYTES if is_stream else _USUAL_BYTES)))
    if incoming > _MOST or outgoing > _MOST:
        incoming, outgoing = min(incoming, _MOST), min(outgoing, _MOST)
    cached, reasoning = said.cached_tokens, said.reasoning_tokens
    if cached > incoming or reasoning > outgoing:
        cached, reasoning = min(cached, incoming), min(reasoning, outgoing)
    return Tokens(incoming, outgoing, cached, reasoning, is_estimated=is_estimated)
