"""What a client hears of each failure."""

import pytest

from pointsman.core import errors, model_errors
from pointsman.core.errors import RequestRejected, RouterError, UpstreamError


def every(kind: type[RouterError]) -> list[type[RouterError]]:
    found = [kind, *(deeper for each in kind.__subclasses__() for deeper in every(each))]
    return [each for each in found if each.__module__ == errors.__name__]  # the data listener's are told otherwise


@pytest.mark.parametrize(
    ("kind", "status", "text"),
    [
        (errors.NotInference, 403, "connection not allowed by policy"),
        (errors.NotConfigured, 503, "inference is not configured"),
        (errors.NoCompatibleRoute, 400, "no compatible inference route available"),
        (errors.UpstreamUnavailable, 503, "inference service unavailable"),
        (errors.UpstreamProtocol, 502, "inference service error"),
        (errors.RouterError, 502, "inference service error"),
        (errors.BodyTooLarge, 413, "payload too large"),
        (errors.MalformedRequest, 400, "bad request"),
        (errors.EncodedBody, 415, "encoded request bodies are not accepted"),
        (errors.RequestTimeout, 408, "request timeout"),
        (errors.TargetTooLong, 414, "request target too long"),
        (errors.ExpectationFailed, 417, "expectation failed"),
        (errors.HeadTooLarge, 431, "request header fields too large"),
    ],
)
def test_each_error_has_its_status_and_its_text(kind: type[RouterError], status: int, text: str) -> None:
    assert (kind.status, kind.text) == (status, text)


@pytest.mark.parametrize("kind", every(RouterError), ids=lambda kind: kind.__name__)
def test_what_the_client_hears_does_not_depend_on_the_detail(kind: type[RouterError]) -> None:
    error = kind("cannot reach host.internal:8000")
    assert "internal" not in error.text + error.hint
    assert error.detail == str(error) == "cannot reach host.internal:8000"


@pytest.mark.parametrize("kind", every(RouterError), ids=lambda kind: kind.__name__)
def test_without_a_detail_the_log_gets_the_text(kind: type[RouterError]) -> None:
    assert kind().detail == kind.text


def test_a_rejection_is_the_clients_fault_and_an_upstream_error_is_not() -> None:
    assert all(400 <= kind.status < 500 for kind in every(RequestRejected))
    assert all(kind.status >= 500 for kind in every(UpstreamError))


def test_not_configured_says_what_to_do() -> None:
    assert "'pointsman inference set --provider NAME --model ID'" in errors.NotConfigured.hint
    assert "pointsman sandbox routes check" in errors.NotConfigured.hint
    assert "--inference-routes" in errors.NotConfigured.hint
    assert "fetch_failed" in errors.NotConfigured.hint  # a gateway that is away is not mended by setting a route


def test_the_data_listeners_errors_have_the_words_that_clients_look_at() -> None:
    expected = {
        "UnknownPath": (404, "unknown_url"),
        "NoSuchModel": (404, "model_not_found"),
        "InvalidKey": (401, "invalid_api_key"),
        "NoProviderAvailable": (503, "no_provider_available"),
    }
    kinds = (
        model_errors.UnknownPath,
        model_errors.NoSuchModel,
        model_errors.InvalidKey,
        model_errors.NoProviderAvailable,
    )
    assert {kind.__name__: (kind.status, kind.code) for kind in kinds} == expected
