"""What a client and the log hear when the gateway itself is at fault, or its database."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.support.canary import KEY, Finder
from tests.support.rest import BEARER, RunningApi, rest_api


@pytest.fixture
def api(tmp_path: Path) -> Iterator[RunningApi]:
    with rest_api(tmp_path) as api:
        yield api


def fail(text: str) -> None:
    raise ValueError(f"{text} {KEY}")


def test_an_unexpected_error_tells_nothing_but_where(api: RunningApi) -> None:
    @api.api.get("/api/v1/fails/{name}")
    async def fails(name: str) -> None:
        fail(name)

    async def fails_outside(request: Request) -> Response:
        fail(request.url.path)
        return Response()

    api.api.add_route("/outside", fails_outside)
    for path in (f"/api/v1/fails/{KEY}", "/outside"):
        answer = api.ask("GET", path)
        assert (answer.status, answer.json["error"]["code"]) == (500, "internal")
        assert answer.headers["cache-control"] == "no-store"
        assert "log" in answer.error
        assert not Finder({"key": KEY}).find(answer.body)
    assert len(api.records) == 2
    assert all(record.startswith("internal error: ValueError in fail, test_rest_failures.py") for record in api.records)
    assert not Finder({"key": KEY}).find("\n".join(api.records).encode())


def test_a_lost_database_is_told_to_load_balancers_and_operators(api: RunningApi, tmp_path: Path) -> None:
    api.running.provide()
    for file in sorted(tmp_path.glob("pointsman.db*")):
        file.unlink()
    (tmp_path / "pointsman.db").write_bytes(b"this is no database" * 1000)
    api.running.call(api.running.control.store.close())

    health = api.ask("GET", "/health", headers={})
    assert (health.status, health.json) == (503, {"status": "degraded", "version": "0.0.0"})
    assert api.ask("HEAD", "/health", headers={}).status == 503
    for answer in (api.get("/status"), api.post("/accounts", {"name": "a"}), api.get("/providers", headers=BEARER)):
        assert (answer.status, answer.json["error"]["code"]) == (503, "unavailable")
    assert not api.records
