"""The numbers that bound things."""

import dataclasses
import re
from pathlib import Path

import pytest

from pointsman.core.limits import DEFAULT_LIMITS, DEFAULT_RUNNER_LIMITS, Limits, RunnerLimits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("body_bytes", 10 * 1024 * 1024),
        ("response_body_bytes", 32 * 1024 * 1024),
        ("connect_head_bytes", 8192),
        ("chunks", 4096),
        ("connect_seconds", 30.0),
        ("chunk_idle_seconds", 120.0),
        ("buffered_seconds", 60.0),
        ("response_header_seconds", 120.0),
    ],
)
def test_the_numbers_of_the_design_are_the_defaults(name: str, value: float) -> None:
    assert getattr(DEFAULT_LIMITS, name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("models", 64),
        ("active_requests", 4),
        ("request_bytes", 1024 * 1024),
        ("data_bytes", 64 * 1024),
        ("response_bytes", 16 * 1024 * 1024),
        ("frame_bytes", 72 * 1024),
        ("connect_seconds", 5.0),
        ("idle_seconds", 60.0),
        ("lifetime_seconds", 600.0),
        ("heartbeat_seconds", 15.0),
        ("unasked_seconds", 15.0),
        ("silence_seconds", 45.0),
    ],
)
def test_the_numbers_of_the_runner_protocol_are_the_defaults(name: str, value: float) -> None:
    assert getattr(DEFAULT_RUNNER_LIMITS, name) == value


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, DEFAULT_RUNNER_LIMITS])
def test_every_limit_is_positive_and_can_be_shrunk_for_a_test(limits: Limits | RunnerLimits) -> None:
    for each in dataclasses.fields(limits):
        assert getattr(limits, each.name) > 0
        assert getattr(dataclasses.replace(limits, **{each.name: 1}), each.name) == 1  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(limits, each.name, 1)


def test_every_limit_has_a_test_at_its_edge_and_every_mark_names_a_limit() -> None:
    marked = set()
    for path in Path(__file__).parents[2].rglob("test_*.py"):
        for decorator in re.findall(r"^@pytest\.mark\.limit\(([^)]*)\)$", path.read_text(), re.M):
            marked.update(re.findall(r'"([\w.]+)"', decorator))
    ours = {each.name for each in dataclasses.fields(Limits)}
    assert marked == ours | {f"runner.{each.name}" for each in dataclasses.fields(RunnerLimits)}
