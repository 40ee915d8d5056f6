"""`/stats`, `/health/providers` and `/metrics`: their answers as HTTP.

All four take the admin's token, as every path does: they tell the names of providers and how each is used, and looking
at providers makes the gateway call them. Only `/metrics` may be opened, for a scraper that carries no token.
"""

import asyncio
import re
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import Field
from starlette.types import Receive, Scope, Send

from pointsman.core.control_errors import InvalidRequest, NotFound
from pointsman.events.operations_file import DayPieces, read_day
from pointsman.gateway.metrics import CONTENT_TYPE
from pointsman.gateway.provider_health import Found, Looked
from pointsman.gateway.rest.admission import AdminRoute, PublicRoute, account_of
from pointsman.gateway.rest.requests import written_exactly
from pointsman.gateway.stats import live_answer
from pointsman.gateway.watching import Watching

LINES_TYPE = "application/x-ndjson"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
AccountName = Annotated[str, Depends(account_of)]
Day = Annotated[str, Query(alias="date", description="YYYY-MM-DD, in UTC.", max_length=64)]
Load = Annotated[bool, Field(strict=True, description="Load local models, too."), written_exactly(bool)]


class _Lines(StreamingResponse):
    """Closes the file also when the client leaves."""

    def __init__(self, pieces: DayPieces) -> None:
        super().__init__(pieces, media_type=LINES_TYPE)
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

    async def history(self, day: Day) -> Response:
        """The operation log of one day, of all accounts: one JSON object per line."""
        wanted = _parsed(day)
        self._watching.journal.flush()
        try:
            pieces = await asyncio.to_thread(read_day, self._watching.directory, wanted)
        except OSError:
            raise NotFound(f"there is no log of {wanted.isoformat()}; days begin and end in UTC") from None
        return _Lines(pieces)

    async def live(self, account: AccountName) -> Response:
        """Each provider with its quota and what is used of it."""
        rows = await self._watching.sources.live_rows()
        return JSONResponse(live_answer(rows, account))

    async def providers(self, account: AccountName, load: Load = False) -> Response:
        """Whether each provider answers, as of at most half a minute ago."""
        return JSONResponse(_looked(await self._watching.health.look(account, load=load)))

    async def metrics(self) -> Response:
        """For Prometheus."""
        # Not as media_type: that would be completed, and the version must be what Prometheus knows.
        return Response(await self._watching.scrape(), headers={"content-type": CONTENT_TYPE})


def _parsed(day: str) -> date:
    if _DATE.fullmatch(day):
        try:
            return date.fromisoformat(day)
        except ValueError:
            pass
    raise InvalidRequest("date is no day; write it as ?date=2026-12-01")


def _looked(looked: Looked) -> dict[str, Any]:
    return {
        "checked_at": datetime.fromtimestamp(int(looked.checked_at), UTC).isoformat().replace("+00:00", "Z"),
        "providers": [_found(each) for each in looked.found],
    }


def _found(found: Found) -> dict[str, Any]:
    told = asdict(found)
    return {"name": told.pop("provider"), **{name: value for name, value in told.items() if value is not None}}


def add_watching(api: FastAPI, watching: Watching) -> None:
    """Add the paths. They stand beside the control API, not in it: its document leaves them out."""
    endpoints = WatchingEndpoints(watching)
    paths = {
        "/stats/history": endpoints.history,
        "/stats/live": endpoints.live,
        "/health/providers": endpoints.providers,
    }
    for path, endpoint in paths.items():
        api.router.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
    metrics_route = PublicRoute if watching.metrics_are_open else AdminRoute
    api.router.add_api_route(
        "/metrics", endpoints.metrics, methods=["GET"], include_in_schema=False, route_class_override=metrics_route
    )
