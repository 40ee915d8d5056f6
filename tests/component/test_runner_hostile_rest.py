"""A gateway that answers a runner's commands with what it should not: nothing of it is kept, shown raw, or followed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.runner_endpoint import parse_runner_endpoint
from pointsman.core.secret import Secret
from pointsman.runner.control_api import CallFailed, ControlApi, Registered
from pointsman.runner.gateway_address import read_control_address
from pointsman.runner.state import read_state, write_state
from tests.support import canary
from tests.support.runner_gateway import RUNNER_ID
from tests.support.scripted_rest import ScriptedRest, scripted_rest

_ENDPOINT = parse_runner_endpoint("http://localhost:11434/v1")


@pytest.fixture
def rest() -> Iterator[ScriptedRest]:
    with scripted_rest() as rest:
        yield rest


def _api(rest: ScriptedRest) -> ControlApi:
    return ControlApi(read_control_address(rest.url), Secret(canary.KEY))


_RUNNER = {"id": RUNNER_ID, "name": "laptop", "token": "t"}
_MODEL = {"id": "a1" * 16, "alias": "tiny", "model_identifier": "tiny", "api_endpoint": _ENDPOINT.url}
_ALIKE: tuple[Any, ...] = ("", "x" * 257, "a\nb", "\x1b[2J", "\ud800", "‮", None, 1, ["x"], {"x": 1}, True)
Call = Callable[[ControlApi], Any]


@pytest.mark.parametrize("field", ["id", "name", "token", "model id", "alias"])
@pytest.mark.parametrize("value", _ALIKE, ids=repr)
def test_what_is_no_name_is_not_taken_for_one(rest: ScriptedRest, field: str, value: object) -> None:
    is_model = field in ("model id", "alias")
    changed = field.removeprefix("model ")
    rest.refuse = 201, {**(_MODEL if is_model else _RUNNER), changed: value}
    call: Call = (
        (lambda api: api.register_model(RUNNER_ID, _ENDPOINT, "tiny"))
        if is_model
        else (lambda api: api.register("laptop"))
    )
    if (field, value) == ("token", "x" * 257):
        return  # a token may be that long
    with pytest.raises(CallFailed, match="something else than was asked for") as failed:
        call(_api(rest))
    assert str(failed.value).isprintable()


def test_the_longest_names_are_taken_and_kept(rest: ScriptedRest, tmp_path: Path) -> None:
    longest = "x" * 256
    rest.refuse = 201, {**_MODEL, "id": longest, "alias": longest}
    assert _api(rest).register_model(RUNNER_ID, _ENDPOINT, "tiny") == Registered(longest, longest)
    rest.refuse = 201, {**_RUNNER, "name": longest}
    state = _api(rest).register("laptop")
    write_state(tmp_path, state)
    assert read_state(tmp_path).name == longest


@pytest.mark.parametrize("changed", ["model_identifier", "api_endpoint"])
def test_another_model_than_was_asked_for_is_not_taken(rest: ScriptedRest, changed: str) -> None:
    rest.refuse = 201, {**_MODEL, changed: "http://localhost:1/v1"}
    with pytest.raises(CallFailed, match="something else than was asked for"):
        _api(rest).register_model(RUNNER_ID, _ENDPOINT, "tiny")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_follows_no_redirect(rest: ScriptedRest, status: int) -> None:
    rest.refuse = status, {"error": {"message": "elsewhere"}}
    with pytest.raises(CallFailed):
        _api(rest).register("laptop")
    assert len(rest.asked) == 1


@pytest.mark.parametrize(
    "said", ["\x1b[2J\x07", "a\nb: c", "‮gnp", f"the key {canary.KEY} is wrong", "x" * 100_000], ids=range(5)
)
def test_what_it_says_is_shown_in_one_short_line_without_the_key(rest: ScriptedRest, said: str) -> None:
    rest.refuse = 400, {"error": {"message": said}}
    with pytest.raises(CallFailed) as failed:
        _api(rest).register("laptop")
    assert str(failed.value).isprintable()
    assert canary.KEY not in str(failed.value)
    assert len(str(failed.value)) < 600
