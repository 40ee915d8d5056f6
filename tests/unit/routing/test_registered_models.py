"""What registered models lead to."""

import pytest

from pointsman.core.ai_model import DIRECT, AiModel
from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.endpoint import Endpoint
from pointsman.core.profiles import profile_for
from pointsman.routing.registered_models import direct_candidate, target_of_model
from pointsman.routing.rewrite import base_path


def direct(url: str) -> AiModel:
    return AiModel("0" * 32, "team", "Mine", "mine", DIRECT, None, url, "org/big:7b", 1.0)


@pytest.mark.guarantee("M2")
def test_a_direct_model_is_an_openai_compatible_server_without_a_key_and_confined() -> None:
    made = direct_candidate(direct("https://models.example:8443/v1"))
    profile = profile_for("openai_compatible")
    assert profile is not None
    assert made.endpoint == Endpoint("https", "models.example", 8443, "/v1")
    assert (made.route, made.model, made.provider) == ("mine", "org/big:7b", "direct:mine")
    assert made.protocols == tuple(str(each) for each in profile.protocols)
    assert (made.profile, made.api_key, made.is_confined, made.is_own_gateway) == (profile, None, True, False)
    assert target_of_model(direct("https://models.example:8443/v1"), None) == made


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h", "/v1/chat/completions"),
        ("http://h/v1", "/v1/chat/completions"),
        ("http://h/api/paas/v4", "/api/paas/v4/chat/completions"),
        ("http://h/models", "/models/v1/chat/completions"),
    ],
)
def test_a_direct_models_path_is_joined_as_a_providers_is(url: str, path: str) -> None:
    assert base_path(direct_candidate(direct(url))).join("/v1/chat/completions") == path


@pytest.mark.guarantee("M2")
@pytest.mark.parametrize(
    "url", ["gguf:///etc/passwd", "mock://answers", "unix:///run/x", "h:80/v1", "http://u:p@h/v1", ""]
)
def test_a_record_that_names_no_server_is_not_called(url: str) -> None:
    with pytest.raises(NotPossibleNow, match="model mine is no http:// or https:// URL; change the model"):
        direct_candidate(direct(url))
