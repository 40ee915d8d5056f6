"""Four runs of `make quota-exactness`: what the data listener lets through is exactly what the quota leaves."""

import asyncio
from pathlib import Path

import pytest
from bench.quota_exactness import exactness

from tests.support.databases import PostgresServer


@pytest.mark.timeout(180)
@pytest.mark.parametrize("gateways", [1, 2])
def test_of_ten_times_as_many_requests_as_places_exactly_the_places_reach_the_upstream(
    tmp_path: Path, gateways: int
) -> None:
    assert asyncio.run(exactness(tmp_path, 4, gateways)) == []


@pytest.mark.timeout(180)
def test_two_gateways_on_postgresql_admit_exactly_the_places_together(tmp_path: Path, postgres: PostgresServer) -> None:
    assert asyncio.run(exactness(tmp_path, 4, 2, postgres.url(postgres.new_database()))) == []
