"""What Pointsman knows of each provider type: endpoint, dialects, authentication, headers.

One static table. A type that is not in it gets Bearer authentication and no extras.
Source: the inference-routing design's "Provider Profiles" and its router's header allowlists; embeddings came to it
later. `openai_compatible` is ours: any server that speaks OpenAI's dialects, wherever it is.
"""

from dataclasses import dataclass

from pointsman.core.protocols import InferenceProtocol as P

OPENAI_PROTOCOLS = (P.CHAT_COMPLETIONS, P.COMPLETIONS, P.RESPONSES, P.EMBEDDINGS, P.MODEL_DISCOVERY)
_OPENAI_HEADERS = ("openai-organization", "x-model-id")
OPENAI_COMPATIBLE = "openai_compatible"
"""Any server that speaks OpenAI's dialects."""


@dataclass(frozen=True, slots=True)
class ProviderProfile:
    """Built-in knowledge of one provider type."""

    provider_type: str
    default_base_url: str
    """Empty where only the operator knows it."""
    protocols: tuple[P, ...]
    credential_key_names: tuple[str, ...]
    """Looked up in a provider record in this order; so are the next."""
    base_url_config_keys: tuple[str, ...]
    auth_header: str = "authorization"
    """`authorization` means a Bearer token; any other name carries the bare key."""
    default_headers: tuple[tuple[str, str], ...] = ()
    """Sent unless the client sent a header of that name."""
    passthrough_headers: tuple[str, ...] = ()
    """Request headers, besides the common ones, that reach the upstream."""


_PROFILES = {
    profile.provider_type: profile
    for profile in (
        ProviderProfile(
            "openai",
            "https://api.openai.com/v1",
            OPENAI_PROTOCOLS,
            ("OPENAI_API_KEY",),
            ("OPENAI_BASE_URL",),
            passthrough_headers=_OPENAI_HEADERS,
        ),
        ProviderProfile(
            "anthropic",
            "https://api.anthropic.com/v1",
            (P.MESSAGES, P.MODEL_DISCOVERY),
            ("ANTHROPIC_API_KEY",),
            ("ANTHROPIC_BASE_URL",),
            auth_header="x-api-key",
            default_headers=(("anthropic-version", "2023-06-01"),),
            passthrough_headers=("anthropic-version", "anthropic-beta"),
        ),
        ProviderProfile(
            "nvidia",
            "https://integrate.api.nvidia.com/v1",
            OPENAI_PROTOCOLS,
            ("NVIDIA_API_KEY",),
            ("NVIDIA_BASE_URL",),
            passthrough_headers=("x-model-id",),
        ),
        ProviderProfile(
            OPENAI_COMPATIBLE,
            "",
            OPENAI_PROTOCOLS,
            ("OPENAI_API_KEY",),
            ("BASE_URL", "OPENAI_BASE_URL"),
            passthrough_headers=_OPENAI_HEADERS,
        ),
    )
}

POINTSMAN = "pointsman"
"""Provider type of our own gateway, as a sandbox sees it; no record has it. What a client sends for any provider has to
reach the gateway, which passes on what the chosen one takes."""
_OWN_GATEWAY = ProviderProfile(
    POINTSMAN,
    "",
    tuple(P),
    (),
    (),
    passthrough_headers=("anthropic-version", "anthropic-beta", *_OPENAI_HEADERS),
)
LOCAL_GGUF = "local_gguf"
"""Provider type of a model file that Pointsman runs itself."""
LOCAL_PROTOCOLS = (P.CHAT_COMPLETIONS, P.COMPLETIONS, P.RESPONSES, P.MESSAGES, P.MODEL_DISCOVERY)
"""What a local model serves (DESIGN section 5), and every model is listed."""
MOCK = "mock"
"""Provider type whose answers are canned; nothing is called."""


def profile_for(provider_type: str | None) -> ProviderProfile | None:
    """The profile of a type, or None when the type is unknown. Case and surrounding space don't matter."""
    return _PROFILES.get((provider_type or "").strip().lower())


def profile_of_upstream(provider_type: str) -> ProviderProfile | None:
    """The same for what is called, which may also be our own gateway."""
    return _OWN_GATEWAY if provider_type == POINTSMAN else profile_for(provider_type)


def known_provider_types() -> tuple[str, ...]:
    """Types with a profile, in alphabetical order."""
    return tuple(sorted(_PROFILES))
