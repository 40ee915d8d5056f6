"""The page on verification says what the code does."""

import json
from pathlib import Path

import pytest

from pointsman.core.protocols import InferenceProtocol
from pointsman.gateway.probe import ProbeLimits
from pointsman.routing.probe import FailureKind, probes_for

PAGE = (Path(__file__).parents[3] / "docs/reference/verification.md").read_text(encoding="utf-8")


def test_every_probe_is_a_row_in_its_order() -> None:
    rows = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| `/v1/")]
    probes = probes_for(tuple(InferenceProtocol))
    assert [path.strip(" `") for path, _ in rows] == [probe.path for probe in probes]
    for (_, described), probe in zip(rows, probes, strict=True):
        body = json.loads(probe.body)
        for key in body.keys() - {"messages"}:
            assert f"`{key}` {body[key] if key.startswith('max') else f'`{body[key]}`'}" in described
        assert ("message" in described) == ("messages" in body)


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_of_failure_is_described(kind: FailureKind) -> None:
    assert f"| {kind.value} |" in PAGE


def test_every_bound_is_the_codes() -> None:
    limits, page = ProbeLimits(), " ".join(PAGE.split())
    assert f"{limits.seconds:.0f} s for all requests" in page
    assert f"read for {limits.body_seconds:.0f} s and up to {limits.body_bytes // 1024} KiB" in page
