"""A route is verified by calling its upstream: what is sent, what is accepted, what each failure is told as."""

import itertools
import json
from typing import Any

import pytest

from pointsman.core.route import ValidatedEndpoint
from pointsman.gateway.probe import ProbeLimits
from tests.support.canary import KEY, Finder
from tests.support.probed_upstream import Answer, ProbedUpstream, answer, probed_upstream
from tests.support.probing import refused, resolved, run, verified
from tests.support.processes import llama_server

OK = answer(200, b"{}")
SHAPE = answer(400, b'{"error":{"code":"not_a_key"}}')
"""The words of these answers share nothing with a random key: every four characters have a `_` among them."""
PING = [{"role": "user", "content": "ping"}]


def paths(upstream: ProbedUpstream) -> list[str]:
    return [request.line.split(b" ")[1].decode() for request in upstream.requests]


# What is sent, and what is accepted


def test_verify_backend_endpoint_uses_route_auth_and_shape() -> None:
    async def main() -> None:
        async with probed_upstream(OK) as upstream:
            (reached,) = await verified(resolved(upstream.url))
            assert reached == ValidatedEndpoint(upstream.url + "/chat/completions", "openai_chat_completions")
        (request,) = upstream.requests
        assert request.line == b"POST /v1/chat/completions HTTP/1.1"
        assert {name.lower() for name, _ in request.fields} == {
            b"host",
            b"authorization",
            b"content-type",
            b"content-length",
        }
        assert request.value(b"authorization") == b"Bearer " + KEY.encode()
        assert request.value(b"content-type") == b"application/json"
        assert json.loads(request.body) == {"model": "gpt-x", "messages": PING, "max_completion_tokens": 32}

    run(main())


def test_an_anthropic_route_is_verified_with_its_own_header_and_version() -> None:
    async def main() -> None:
        async with probed_upstream(OK) as upstream:
            (reached,) = await verified(resolved(upstream.url, "anthropic"))
            assert reached == ValidatedEndpoint(upstream.url + "/messages", "anthropic_messages")
        (request,) = upstream.requests
        assert request.value(b"authorization") is None
        assert request.value(b"x-api-key") == KEY.encode()
        assert request.value(b"anthropic-version") == b"2023-06-01"
        assert json.loads(request.body) == {"model": "gpt-x", "messages": PING, "max_tokens": 32}

    run(main())


def test_verify_backend_endpoint_accepts_mock_routes() -> None:
    mock = resolved("mock://canned")
    assert run(verified(mock)) == (ValidatedEndpoint("mock://canned/v1/chat/completions", "openai_chat_completions"),)


@pytest.mark.parametrize("status", [400, 404, 405, 422])
def test_verify_openai_chat_falls_back_to_max_tokens(status: int) -> None:
    async def main() -> None:
        async with probed_upstream(answer(status, b'{"error":{}}'), OK) as upstream:
            (reached,) = await verified(resolved(upstream.url))
            assert reached.protocol == "openai_chat_completions"
        first, second = (json.loads(request.body) for request in upstream.requests)
        assert (first["max_completion_tokens"], second["max_tokens"]) == (32, 32)
        assert "max_completion_tokens" not in second
        assert upstream.connections == 1

    run(main())


def test_verify_embeddings_model_falls_through_chat_probe() -> None:
    async def main() -> None:
        async with probed_upstream(*[answer(404)] * 4, OK) as upstream:
            (reached,) = await verified(resolved(upstream.url, "openai_compatible"))
            assert reached == ValidatedEndpoint(upstream.url + "/embeddings", "openai_embeddings")
        assert [path.removeprefix("/v1/") for path in paths(upstream)] == [
            "chat/completions",
            "chat/completions",
            "responses",
            "completions",
            "embeddings",
        ]

    run(main())


def test_a_404_for_chat_leads_on_to_messages_where_both_are_spoken() -> None:
    async def main() -> None:
        both = ("openai_chat_completions", "anthropic_messages")
        async with probed_upstream(answer(404), answer(404), OK) as upstream:
            (reached,) = await verified(resolved(upstream.url, protocols=both))
            assert reached.protocol == "anthropic_messages"

    run(main())


def test_any_2xx_is_enough_without_its_body() -> None:
    head = b"HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers: dict[str, Answer] = {
        "no content": answer(204),
        "silence behind the head": iter([head, None]),
        "an endless body": itertools.chain([head], itertools.repeat(b"1000\r\n" + b"x" * 4096 + b"\r\n")),
        "a large body": answer(200, b"x" * 1024 * 1024),
        "rubbish": answer(200, b"\xff\x00"),
    }

    async def main() -> None:
        for given in answers.values():
            async with probed_upstream(given) as upstream:
                assert await verified(resolved(upstream.url), ProbeLimits(seconds=10, body_seconds=99))
                assert len(upstream.requests) == 1

    run(main())


def test_a_real_server_is_verified() -> None:
    with llama_server() as port:
        (reached,) = run(verified(resolved(f"http://127.0.0.1:{port}/v1", "openai_compatible")))
    assert reached == ValidatedEndpoint(f"http://127.0.0.1:{port}/v1/chat/completions", "openai_chat_completions")


# Refusals


@pytest.mark.guarantee("G7")
def test_verify_stops_on_credentials_failure_and_tells_nothing_of_the_key() -> None:
    echo = json.dumps({"error": {"message": f"Incorrect API key: {KEY}", "code": KEY.lower()[:9], "type": "not_a_key"}})

    async def main() -> None:
        async with probed_upstream(answer(401, echo.encode(), b"WWW-Authenticate: %b\r\n" % KEY.encode())) as upstream:
            text = await refused(resolved(upstream.url))
            assert len(upstream.requests) == 1
        assert f"at {upstream.url}: the upstream refused the credentials" in text
        assert "(POST /v1/chat/completions: HTTP 401 not_a_key)" in text
        assert "pointsman provider update prod --credential OPENAI_API_KEY" in text
        assert not Finder({"key": KEY}).find(text.encode())

    run(main())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (answer(403), "the upstream refused the credentials (POST /v1/chat/completions: HTTP 403)"),
        (answer(400, b"API key not valid"), "the upstream refused the credentials (POST"),
        (answer(429, b'{"error":{"type":"too_many_now"}}'), "the upstream is limiting requests (POST"),
        (answer(500, b"oops"), "the upstream reports trouble of its own (POST /v1/chat/completions: HTTP 500)"),
        (answer(503), "the upstream reports trouble of its own"),
        (answer(402), "the upstream's answer was not expected"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the upstream's answer was not expected (POST /v1/chat/completions: malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Le\x00", "the upstream's answer was not expected"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "was not expected"),
        (iter([b""]), "connection closed by the upstream before the end of its response"),
    ],
)
def test_verify_stops_on_any_other_failure(given: Any, told: str) -> None:
    async def main() -> None:
        async with probed_upstream(given) as upstream:
            assert told in await refused(resolved(upstream.url))
            assert len(upstream.requests) == 1

    run(main())


def test_verify_stops_on_rate_limit_after_a_refusal() -> None:
    async def main() -> None:
        async with probed_upstream(SHAPE, answer(429)) as upstream:
            text = await refused(resolved(upstream.url))
            assert len(upstream.requests) == 2
        assert "limiting requests (POST /v1/chat/completions: HTTP 429); try again later" in text

    run(main())


def test_verify_all_probes_request_shape_returns_first() -> None:
    async def main() -> None:
        async with probed_upstream(SHAPE, *[answer(404)] * 4) as upstream:
            text = await refused(resolved(upstream.url))
            assert len(upstream.requests) == 5
        assert "the upstream refused the request (POST /v1/chat/completions: HTTP 400 not_a_key)" in text

    run(main())


@pytest.mark.guarantee("G7")
def test_a_redirect_is_not_followed_but_named() -> None:
    async def main() -> None:
        async with probed_upstream(OK) as elsewhere:
            fields = b"Location: %b/chat/completions\r\n" % elsewhere.url.encode()
            async with probed_upstream(answer(302, fields=fields)) as upstream:
                text = await refused(resolved(upstream.url))
            assert not elsewhere.connections
        assert f"HTTP 302, a redirect to {elsewhere.url.removesuffix('/v1')}, which is never followed" in text
        assert "--config OPENAI_BASE_URL=URL" in text

    run(main())


# Bounds


LIMITS = ProbeLimits(body_bytes=100)


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize(("size", "told"), [(100, "HTTP 400 not_a_key"), (101, "HTTP 400)")])
def test_a_refusal_is_read_up_to_its_limit(size: int, told: str) -> None:
    body = b'{"error":{"code":"not_a_key"}'.ljust(size - 1) + b"}"

    async def main() -> None:
        async with probed_upstream(*[answer(400, body)] * 5) as upstream:
            assert told in await refused(resolved(upstream.url), LIMITS)

    run(main())


@pytest.mark.guarantee("G7")
def test_a_refusal_without_an_end_is_judged_by_its_beginning() -> None:
    head = b"HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n"
    flood = itertools.chain([head], itertools.repeat(b"1000\r\n" + b"x" * 4096 + b"\r\n"))
    trickle = iter([head, b"9\r\nForbidden\r\n", None])

    async def main() -> None:
        for endless in (flood, trickle):
            async with probed_upstream(endless) as upstream:
                assert "HTTP 401" in await refused(resolved(upstream.url), ProbeLimits(body_seconds=0.1))
            assert upstream.sent < 16 * 1024 * 1024  # what kernels hold, not what time allows

    run(main())


@pytest.mark.guarantee("G7")
def test_probes_that_are_each_in_time_may_be_too_slow_together() -> None:
    slow: list[Answer] = [iter([SHAPE.replace(b"Length: 30", b"Length: 31"), None]) for _ in range(5)]

    async def main() -> None:
        async with probed_upstream(*slow) as upstream:
            text = await refused(resolved(upstream.url), ProbeLimits(seconds=0.6, body_seconds=0.2))
            assert len(upstream.requests) < 5
        assert "the upstream cannot be reached (no answer within 0.6 s)" in text

    run(main())


@pytest.mark.guarantee("G7")
def test_silence_ends_with_the_limit() -> None:
    async def main() -> None:
        async with probed_upstream(SHAPE, None) as upstream:
            text = await refused(resolved(upstream.url), ProbeLimits(seconds=0.3))
            assert len(upstream.requests) == 2
        assert "the upstream cannot be reached (no answer within 0.3 s)" in text

    run(main())


def test_silence_ends_with_the_routes_timeout_when_that_is_shorter() -> None:
    async def main() -> None:
        async with probed_upstream(None) as upstream:
            text = await refused(resolved(upstream.url, timeout_seconds=1))
        assert "(no answer within 1 s)" in text
        async with probed_upstream(None) as upstream:
            text = await refused(resolved(upstream.url, timeout_seconds=60), ProbeLimits(seconds=0.2))
        assert "(no answer within 0.2 s)" in text

    run(main())


def test_the_designs_time_limit_is_30_s() -> None:
    assert ProbeLimits().seconds == 30
