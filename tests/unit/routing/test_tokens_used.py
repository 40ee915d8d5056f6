"""What a request may come to, and came to: reported where it was, else reckoned and said to be."""

import pytest

from pointsman.core.price import Tokens
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.routing.tokens_used import DEFAULT_OUTPUT_TOKENS, has_used, may_use
from pointsman.wire.output_bound import UNBOUND, OutputBound
from pointsman.wire.usage import TokenUsage


@pytest.mark.parametrize(
    ("received", "bound", "protocol", "path", "tokens"),
    [
        (300, OutputBound(50), P.CHAT_COMPLETIONS, "/v1/chat/completions", Tokens(100, 50)),
        (301, OutputBound(50, 3), P.CHAT_COMPLETIONS, "/v1/chat/completions", Tokens(101, 150)),
        (0, UNBOUND, P.RESPONSES, "/v1/responses", Tokens(0, DEFAULT_OUTPUT_TOKENS)),
        (300, OutputBound(0), P.MESSAGES, "/v1/messages", Tokens(100, 0)),
        (300, UNBOUND, P.EMBEDDINGS, "/v1/embeddings", Tokens(100, 0)),
        (300, OutputBound(9), P.MESSAGES, "/v1/messages/count_tokens", Tokens()),
    ],
)
def test_the_most_is_what_the_body_has_and_the_limit_that_it_names(
    received: int, bound: OutputBound, protocol: str, path: str, tokens: Tokens
) -> None:
    assert may_use(received, bound, protocol, path) == tokens


@pytest.mark.parametrize(
    ("reported", "is_stream", "is_whole", "tokens"),
    [
        (TokenUsage(11, 5), False, True, Tokens(11, 5)),
        (TokenUsage(11, 5), True, True, Tokens(11, 5)),
        (None, False, True, Tokens(100, 201, is_estimated=True)),
        (None, True, True, Tokens(100, 9, is_estimated=True)),
        (TokenUsage(11, -1), True, True, Tokens(11, 9, is_estimated=True)),
        (TokenUsage(-1, 5), True, True, Tokens(100, 5, is_estimated=True)),
        (TokenUsage(11, 1), True, False, Tokens(11, 9, is_estimated=True)),
        (TokenUsage(11, 500), True, False, Tokens(11, 500, is_estimated=True)),
    ],
)
def test_what_is_reported_counts_and_what_is_not_is_reckoned_from_bytes(
    reported: TokenUsage | None, is_stream: bool, is_whole: bool, tokens: Tokens
) -> None:
    used = has_used(reported, 400, 801, protocol=P.MESSAGES, is_stream=is_stream, is_whole=is_whole)
    assert used == tokens


@pytest.mark.parametrize(
    ("protocol", "reported", "tokens"),
    [
        (P.EMBEDDINGS, TokenUsage(8, -1), Tokens(8)),
        (P.EMBEDDINGS, None, Tokens(100, is_estimated=True)),
        (P.MESSAGES, TokenUsage(10, 20, 900, 0, 950), Tokens(960, 20, 900)),
        (P.CHAT_COMPLETIONS, TokenUsage(36, 87, 7, 2), Tokens(36, 87, 7, 2)),
        (P.CHAT_COMPLETIONS, TokenUsage(3, 4, 5, 6), Tokens(3, 4, 3, 4)),
        (P.CHAT_COMPLETIONS, TokenUsage(2**40, 2**40 - 1), Tokens(2**40, 2**40 - 1)),
        (P.CHAT_COMPLETIONS, TokenUsage(2**40 + 1, 2**40 + 1), Tokens(2**40, 2**40)),
    ],
)
def test_embeddings_have_no_output_and_no_part_exceeds_the_whole(
    protocol: str, reported: TokenUsage | None, tokens: Tokens
) -> None:
    assert has_used(reported, 400, 801, protocol=protocol, is_stream=False, is_whole=True) == tokens
