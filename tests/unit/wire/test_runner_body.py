"""Which model a body names, for every reader of it."""

import pytest

from pointsman.wire.runner_body import asks_for_stream, names_model


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"tiny"}',
        b' {"messages":[{"model":"other"}],"model" : "tiny"}',
        b'{"mod\\u0065l":"t\\u0069ny"}',
        b'{"models":["other"],"model":"tiny"}',
    ],
)
def test_a_body_that_names_the_model_once_names_it(body: bytes) -> None:
    assert names_model(body, "tiny")


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"model":"other"}',
        b'{"model":["tiny"]}',
        b'{"model":"tiny","model":"other"}',
        b'{"model":"other","model":"tiny"}',
        b'{"model":"tiny","m\\u006fdel":"other"}',
        b'{"model":"tiny","MODEL":"other"}',
        b'{"Model":"tiny"}',
        b'{"model":"tiny"',
        b'{"model":"tiny"}}',
        b'{"model":"tiny","x":"\xff"}',
        b'[{"model":"tiny"}]',
        b"",
    ],
)
def test_a_body_that_some_server_could_read_otherwise_does_not(body: bytes) -> None:
    assert not names_model(body, "tiny")


@pytest.mark.parametrize(
    ("body", "asks"),
    [(b'{"stream":true}', True), (b'{"stream":false}', False), (b'{"stream":null}', False), (b'{"stream":1}', False)],
)
def test_a_stream_is_asked_for_by_true_alone(body: bytes, asks: bool) -> None:
    assert asks_for_stream(body) is asks
