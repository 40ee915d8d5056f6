"""Whether final fallbacks are there: one GET each without a key, any status counts, others are not asked."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pointsman.config.gateway_records import FileRecords
from pointsman.core.provider import Provider
from pointsman.core.route import CHAIN, Route, RouteCandidate
from pointsman.core.secret import Secret
from pointsman.gateway.fallback_reach import REACH_LIMITS, unreachable_fallbacks
from tests.support.canary import KEY
from tests.support.probed_upstream import Answer, ProbedUpstream, answer, probed_upstream
from tests.support.probing import run

SOON = replace(REACH_LIMITS, seconds=0.2)
OK = answer(200, b"{}", b"Connection: close\r\n")


def provider(name: str, url: str, kind: str = "openai_compatible", **config: str) -> Provider:
    config = {"OPENAI_BASE_URL": url, "MODEL": "m", **config}
    credentials = {} if "KEY_FILE" in config else {"OPENAI_API_KEY": Secret(KEY)}
    return Provider(f"id-{name}", "default", name, kind, credentials, config, 0.0, 0.0, from_file=True)


def chain(name: str, candidate: str, fallback: str) -> Route:
    candidates = (RouteCandidate(candidate),)
    return Route("default", name, "", "", kind=CHAIN, candidates=candidates, fallback=fallback)


def records(*providers: Provider, fallback: str = "last") -> FileRecords:
    """One chain, whose only candidate is the first provider."""
    return FileRecords(providers, (chain("fast", providers[0].name, fallback),))


@asynccontextmanager
async def fallback(*answers: Answer, path: str = "") -> AsyncIterator[tuple[ProbedUpstream, FileRecords]]:
    async with probed_upstream(*answers) as upstream:
        base = upstream.url.removesuffix("/v1") + path
        yield upstream, records(provider("first", "http://127.0.0.1:1/v1"), provider("last", base))


@pytest.mark.parametrize("status", [200, 302, 401, 404, 429, 500, 599])
def test_any_status_counts(status: int) -> None:
    async def looked() -> None:
        async with fallback(answer(status, b"{}", b"Connection: close\r\n"), path="/v1") as (upstream, found):
            assert await unreachable_fallbacks(found) == ()
            assert len(upstream.requests) == 1

    run(looked())


@pytest.mark.parametrize(("path", "line"), [("/v1", b"GET /v1"), ("/a/b", b"GET /a/b"), ("", b"GET /")])
def test_its_base_url_is_asked_for_without_a_key(path: str, line: bytes) -> None:
    async def looked() -> None:
        async with fallback(OK, path=path) as (upstream, found):
            assert await unreachable_fallbacks(found) == ()
            [request] = upstream.requests
            assert request.line == line + b" HTTP/1.1"
            assert [name for name, _ in request.fields] == [b"host"]
            assert request.body == b""

    run(looked())


@pytest.mark.guarantee("C3")
def test_a_key_file_is_neither_needed_nor_read() -> None:
    async def looked() -> None:
        async with probed_upstream(OK) as upstream:
            last = provider("last", upstream.url, KEY_FILE="/nowhere/last_api_key")
            assert await unreachable_fallbacks(records(provider("first", upstream.url), last)) == ()
            assert len(upstream.requests) == 1

    run(looked())


@pytest.mark.parametrize(
    ("answers", "reason"),
    [((None,), "no answer within 0.2 s"), ((b"SSH-2.0-OpenSSH\r\n\r\n",), "")],
)
def test_silence_and_what_is_not_http_are_told_with_the_route(answers: tuple[Answer, ...], reason: str) -> None:
    async def looked() -> None:
        async with fallback(*answers, path="/v1") as (upstream, found):
            [line] = await unreachable_fallbacks(found, limits=SOON)
            start = f"provider last, the fallback of route fast, does not answer at {upstream.url}: "
            assert line.startswith(start + reason)
            assert line != start
            assert KEY not in line

    run(looked())


def test_each_that_is_away_is_told_once_and_one_that_is_there_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gone = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"

    async def looked() -> None:
        async with probed_upstream(OK) as upstream:
            providers = (provider("a", gone), provider("b", upstream.url), provider("c", "http://no.invalid/v1"))
            routes = (chain("r1", "a", "c"), chain("r2", "b", "a"), chain("r3", "c", "b"), chain("r4", "b", "c"))
            lines = await unreachable_fallbacks(FileRecords(providers, routes))
            assert [line.partition(", does not answer")[0] for line in lines] == [
                "provider c, the fallback of route r1 and 1 more",
                "provider a, the fallback of route r2",
            ]

    run(looked())


def test_only_final_fallbacks_over_http_are_asked() -> None:
    async def looked() -> None:
        local = provider("last", "", "local_gguf", MODEL_PATH="/none.gguf")
        first = provider("first", "http://127.0.0.1:1/v1")
        assert await unreachable_fallbacks(records(first, local)) == ()
        assert await unreachable_fallbacks(records(first, provider("last", "", "mock"))) == ()
        assert await unreachable_fallbacks(records(first, first, fallback="")) == ()

    run(looked())


def test_one_that_was_a_fallback_before_is_not_asked_again_unless_its_record_has_changed() -> None:
    async def looked() -> None:
        first, last = provider("first", "http://127.0.0.1:1/v1"), provider("last", "http://127.0.0.1:1/v1")
        before = records(first, last)
        assert await unreachable_fallbacks(before, before) == ()
        assert len(await unreachable_fallbacks(before, records(first, last, fallback=""))) == 1
        moved = records(first, provider("last", "http://127.0.0.1:1/v2"))
        assert len(await unreachable_fallbacks(moved, before)) == 1

    run(looked())
