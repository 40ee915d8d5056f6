"""Three runs of `make quota-exactness`: what the data listeners let through is exactly what the quota leaves."""

import asyncio
from pathlib import Path

import pytest
from bench.quota_exactness import exactness

from tests.support.databases import PostgresServer


@pytest.mark.timeout(180)
def test_of_ten_times_as_many_requests_as_places_two_gateways_let_exactly_the_places_through(tmp_path: Path) -> None:
    assert asyncio.run(exactness(tmp_path, 3, gateways=2)) == []


@pytest.mark.timeout(180)
def test_two_gateways_on_postgresql_let_exactly_the_places_through(tmp_path: Path, postgres: PostgresServer) -> None:
    assert asyncio.run(exactness(tmp_path, 3, 2, postgres.url(postgres.new_database()))) == []
