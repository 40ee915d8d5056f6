"""`/stats`, `/health/providers` and `/metrics`: their answers as HTTP.

All four take the admin's token, as every path does: they tell the names of providers and how each is used, and looking
at providers makes the gateway call them. Only `/metrics` may be opened, for a scraper that carries no token.
"""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import Field
from starlette.types import Receive, Scope, Send

from pointsman.events.operations_file import DayPieces
from pointsman.gateway.metrics import CONTENT_TYPE
from pointsman.gateway.provider_health import health_answer
from pointsman.gateway.rest.admission import AdminRoute, PublicRoute, account_of
from pointsman.gateway.rest.requests import written_exactly
from pointsman.gateway.rest.watching_answers import LiveStats, ProvidersHealth
from pointsman.gateway.stats import live_answer
from pointsman.gateway.watching import Watching

AccountName = Annotated[str, Depends(account_of)]
Day = Annotated[
    str | None,
    Query(
        alias="date",
        description="YYYY-MM-DD, in UTC; today if it is left out.",
        max_length=64,
        json_schema_extra={"format": "date"},
    ),
]
Load = Annotated[bool, Field(strict=True, description="Load local models, too."), written_exactly(bool)]


class _Lines(StreamingResponse):
    """Closes the file also when the client leaves."""

    media_type = "application/x-ndjson"

    def __init__(self, pieces: DayPieces) -> None:
        super().__init__(pieces)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pieces.close()


class WatchingEndpoints:
    """Of one gateway."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching

    async def history(self, day: Day = None) -> Response:
        """The operation log of one day, of all accounts: one JSON object per line."""
        return _Lines(await self._watching.history(day))

    async def live(self, account: AccountName) -> Response:
        """Each provider with its quota and what chains have used of it."""
        return JSONResponse(live_answer(await self._watching.sources.live_rows(), account))

    async def providers(self, account: AccountName, load: Load = False) -> Response:
        """Whether each provider answers, as of at most half a minute ago."""
        return JSONResponse(health_answer(await self._watching.health.look(account, load=load)))

    async def metrics(self) -> Response:
        """For Prometheus, in its text format 0.0.4; of all accounts."""
        # Not as media_type: that would be completed, and the version must be what Prometheus knows.
        return Response(await self._watching.scrape(), headers={"content-type": CONTENT_TYPE})


def add_watching(api: FastAPI, watching: Watching) -> None:
    """Add the paths. They stand beside those of `/api/v1`, where monitoring looks for them."""
    endpoints = WatchingEndpoints(watching)
    _add(api, "/stats/live", endpoints.live, "live_stats", responses={200: {"model": LiveStats}})
    _add(api, "/stats/history", endpoints.history, "stats_history", response_class=_Lines)
    _add(api, "/health/providers", endpoints.providers, "providers_health", responses={200: {"model": ProvidersHealth}})
    route_class = PublicRoute if watching.metrics_are_open else AdminRoute
    options = {"response_class": PlainTextResponse, "route_class_override": route_class}
    _add(api, "/metrics", endpoints.metrics, "metrics", **options)


def _add(api: FastAPI, path: str, endpoint: Callable[..., Any], operation_id: str, **options: Any) -> None:
    api.router.add_api_route(path, endpoint, methods=["GET"], operation_id=operation_id, status_code=200, **options)
