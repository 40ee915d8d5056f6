"""The dialects a client can speak."""

from collections.abc import Iterable
from enum import StrEnum


class InferenceProtocol(StrEnum):
    """A client's dialect, spelt as route files and bundles spell it."""

    CHAT_COMPLETIONS = "openai_chat_completions"
    COMPLETIONS = "openai_completions"
    RESPONSES = "openai_responses"
    EMBEDDINGS = "openai_embeddings"
    MESSAGES = "anthropic_messages"
    MODEL_DISCOVERY = "model_discovery"


def normalize_protocols(names: Iterable[str]) -> tuple[str, ...]:
    """Trim, lower-case and de-duplicate protocol names, keeping their order; blanks vanish.

    Unknown names are kept: a route may list a protocol that this version does not match.
    """
    return tuple(dict.fromkeys(cleaned for name in names if (cleaned := name.strip().lower())))
