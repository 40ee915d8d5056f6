"""What is explained is what happens: a gateway is asked, then sent the same request, and its upstreams are looked at.

Providers and chains are a file's, direct routes and what inference.local leads to are stored.
"""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.gateway.rest.explained import LARGEST_REQUEST
from tests.support.canary import KEY
from tests.support.operated_gateway import OperatedGateway, operated_gateway
from tests.support.raw_client import Answer, RawClient
from tests.support.rest import Answer as RestAnswer
from tests.support.rest import asked_over_http
from tests.support.upstream import Upstream

LIMITS = (100, 10, 25, 40)
"""Requests a day of p0 to p3."""
CHAINS = ("in_order", "least_used", "weighted")


class Explained:
    """A gateway, and the upstreams of its providers."""

    def __init__(self, gateway: OperatedGateway, upstreams: list[Upstream], directory: Path) -> None:
        self.gateway = gateway
        self.upstreams = upstreams
        self.directory = directory

    def ask(self, *arguments: str, status: int = 0, stdin: str | None = None) -> dict[str, Any]:
        """By command."""
        done = self.gateway.run("explain", *arguments, "-o", "json", stdin=stdin)
        assert done.exit_code == status, done.output
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["tried"] is (status == 0)
        return document

    def rest(self, question: object) -> RestAnswer:
        token = (self.gateway.data_directory / "admin.token").read_text().strip()
        bearer = {"authorization": f"Bearer {token}"}
        return asked_over_http(self.gateway.ports["control"], "POST", "/api/v1/explain", question, bearer)

    def send(self, body: bytes, *, path: str = "/v1/chat/completions", fields: str = "") -> RawClient:
        """To the data listener."""
        client = RawClient(socket.create_connection(("127.0.0.1", self.gateway.ports["data"]), 20))
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        client.send(head.encode() + body)
        return client

    def walked(self, order: list[str], model: str) -> None:
        """Send a request that all but the last of these refuse, and see that nobody else is asked."""
        with self.send(b'{"model":"%b"}' % model.encode()) as client:
            for place, name in enumerate(order, 1):
                peer = self.upstreams[int(name[1:])].accept()
                assert json.loads(peer.request().body)["model"] == f"model-{name}"
                if place < len(order):
                    peer.send(b"HTTP/1.1 404 X\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
                else:
                    peer.respond(fields=b"Content-Type: application/json\r\nConnection: close\r\n")
            answer = client.answer()
        assert answer.status == 200
        assert answer.value(b"x-pointsman-attempts") == str(len(order)).encode()
        assert all(each.saw_nothing() for each in self.upstreams)


def tried(document: dict[str, Any]) -> list[str]:
    return [each["provider_name"] for each in document["candidates"] if each["place"]]


def skips(document: dict[str, Any]) -> dict[str, str]:
    return {each["provider_name"]: each["skip"]["reason"] for each in document["candidates"] if each["skip"]}


def configuration(urls: list[str], secrets: Path) -> dict[str, Any]:
    providers = [
        {"name": f"p{n}", "type": "openai_compatible", "base_url": url, "model": f"model-p{n}", "api_key": "none"}
        for n, url in enumerate(urls)
    ]
    for provider, limit in zip(providers, LIMITS, strict=True):
        provider |= {"daily_request_limit": limit, "requests_per_minute": 1000}  # type: ignore[dict-item]
    providers += [
        {"name": "keyed", "type": "openai", "base_url": urls[0], "model": "k"},
        {"name": "claude", "type": "anthropic", "base_url": urls[0], "model": "c", "api_key": "none"},
        {"name": "once", "type": "openai_compatible", "base_url": urls[3], "model": "model-p3", "api_key": "none"},
    ]
    providers[-1]["daily_request_limit"] = 1  # type: ignore[assignment]
    listed = [{"provider": f"p{n}"} for n in range(3)]
    routes = [{"name": each, "candidates": listed, "strategy": each, "fallback": "p3"} for each in CHAINS]
    routes += [
        {"name": "keys", "candidates": [{"provider": "keyed"}, {"provider": "claude"}, {"provider": "p1"}]},
        {"name": "single", "candidates": [{"provider": "once"}]},
    ]
    return {"secrets_dir": str(secrets), "providers": providers, "routes": routes}


def answer_once(upstream: Upstream) -> None:
    peer = upstream.accept(60)  # a whole gateway starts meanwhile
    peer.request()
    peer.respond(fields=b"Connection: close\r\n")
    peer.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explained]:
    directory = tmp_path_factory.mktemp("explained")
    secrets = directory / "secrets"
    secrets.mkdir(mode=0o700)
    key_file = secrets / "keyed_api_key"
    key_file.touch(0o600)
    key_file.write_text(KEY)
    with ExitStack() as stack:
        upstreams = [stack.enter_context(Upstream()) for _ in LIMITS]
        config = directory / "pointsman.yaml"
        config.write_text(json.dumps(configuration([each.url for each in upstreams], secrets)))
        with ThreadPoolExecutor(1) as asked:
            reached = asked.submit(answer_once, upstreams[-1])  # the fallback is asked at start
            gateway = stack.enter_context(operated_gateway(directory / "data", "--config", str(config)))
            reached.result()
        made = Explained(gateway, upstreams, directory)
        for arguments in (
            ["provider", "create", "--name", "stored", "--type", "openai", "--credential", "OPENAI_API_KEY"],
            ["provider", "update", "stored", "--config", f"OPENAI_BASE_URL={upstreams[0].url}"],
            ["route", "create", "plain", "--provider", "stored", "--model", "model-p0", "--no-verify"],
            ["key", "create", "limited", "--route", "plain", "--out", str(directory / "limited.key")],
            ["key", "create", "free", "--out", str(directory / "free.key")],
        ):
            done = gateway.run(*arguments, environ={"OPENAI_API_KEY": KEY})
            assert done.exit_code == 0, done.output
        yield made
        key_file.unlink()


@pytest.mark.guarantee("G20")
@pytest.mark.parametrize("strategy", ["in_order", "least_used"])
def test_the_order_is_the_one_in_which_upstreams_are_asked(made: Explained, strategy: str) -> None:
    made.walked(["p0"], "in_order")
    made.walked(["p0", "p1"], "in_order")
    made.walked(["p0", "p1", "p2"], "in_order")  # shares of 2 to 3 %, 10 to 20 % and 4 to 8 %
    order = tried(made.ask(strategy))
    assert order == (["p0", "p1", "p2", "p3"] if strategy == "in_order" else ["p0", "p2", "p1", "p3"])
    made.walked(order, strategy)


@pytest.mark.guarantee("G20")
def test_a_strategy_that_remembers_is_told_as_it_is_and_left_alone(made: Explained) -> None:
    firsts = []
    for _ in range(6):
        order = tried(made.ask("weighted"))
        assert tried(made.ask("weighted")) == order
        made.walked(order[:1], "weighted")
        firsts.append(order[0])
    assert len(set(firsts)) > 1


def told(answer: Answer) -> tuple[int, str, str]:
    error = json.loads(answer.body)["error"]
    return answer.status, error.get("code") or "", error["message"]


def denied(document: dict[str, Any]) -> tuple[int, str, str]:
    denial = document["denial"]
    return denial["status"], denial["code"], denial["text"]


REFUSED = {
    "unknown": (b'{"model":"in_ordre"}', "/v1/chat/completions"),
    "nameless": (b"{}", "/v1/chat/completions"),
    "no JSON": (b"in_order", "/v1/chat/completions"),
    "broken": (b'{"model":"in_order"', "/v1/chat/completions"),
    "two models": (b'{"model":"in_order","model":"in_order"}', "/v1/chat/completions"),
    "no string": (b'{"model":7}', "/v1/chat/completions"),
    "dialect": (b'{"model":"in_order"}', "/v1/messages"),
    "path": (b'{"model":"in_order"}', "/v1/chat"),
    "fragment": (b'{"model":"in_order"}', "/v1/chat/completions#a"),
}


@pytest.mark.guarantee("G20")
@pytest.mark.parametrize(("body", "path"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_is_told_in_the_listeners_words(made: Explained, body: bytes, path: str) -> None:
    explained = made.ask("--body", "-", "--path", path, status=1, stdin=body.decode())
    assert not explained["candidates"]
    assert explained["denial"]["stage"] == ("attempts" if body is REFUSED["two models"][0] else "")
    with made.send(body, path=path) as client:
        assert denied(explained) == told(client.answer())
    assert all(each.saw_nothing() for each in made.upstreams)


@pytest.mark.parametrize("over", [0, 1])
def test_a_body_is_as_long_as_a_listener_takes_and_no_longer(made: Explained, over: int) -> None:
    start = b'{"model":"in_order","a":"'
    body = start + b"x" * (DEFAULT_LIMITS.body_bytes + over - len(start) - 2) + b'"}'
    path = made.directory / "body.json"
    path.write_bytes(body)
    explained = made.ask("--body", str(path), status=over)
    over_http = made.rest({"body": body.decode()}).json
    for each in (explained, over_http):
        assert (each["denial"] or {}).get("status") == (413 if over else None)
        assert each["candidates"] == [] or each["candidates"][0]["rewrite"]["body"] == "replaced"


def test_a_question_over_http_has_room_for_a_body_that_is_escaped_and_no_more(made: Explained) -> None:
    empty = len(b'{"body": ""}')
    fits = made.rest(b'{"body": "' + b"x" * (LARGEST_REQUEST - empty) + b'"}')
    assert (fits.status, fits.json["denial"]["status"]) == (200, 413)
    assert made.rest(b'{"body": "' + b"x" * (LARGEST_REQUEST + 1 - empty) + b'"}').status == 413


def test_all_ways_of_asking_get_the_same_answer(made: Explained) -> None:
    by_command = made.ask("in_order", "--header", "Cookie: secret", "--header", "accept")
    over_http = made.rest({"model": "in_order", "header_names": ["Cookie", "accept"]})
    assert over_http.status == 200
    document = over_http.json
    for answered in (by_command, document):
        for each in answered["candidates"]:
            for moving in ("minute_used", "minute_left", "minute_resets_at", "runs_dry_at"):
                del each["quota"][moving]
    assert by_command == document
    assert len(by_command["stages"]) == 10
    assert by_command["candidates"][0]["rewrite"]["headers_dropped"] == ["cookie"]


@pytest.mark.guarantee("G20")
def test_asking_counts_nothing(made: Explained) -> None:
    before = [each["quota"]["daily_used"] for each in made.ask("in_order")["candidates"]]
    for _ in range(5):
        made.ask("in_order")
    assert [each["quota"]["daily_used"] for each in made.ask("in_order")["candidates"]] == before
    made.walked(["p0"], "in_order")
    after = [each["quota"]["daily_used"] for each in made.ask("in_order")["candidates"]]
    assert after == [before[0] + 1, *before[1:]]


@pytest.mark.guarantee("G20")
def test_a_key_is_readable_or_missing_and_never_shown(made: Explained) -> None:
    document = made.ask("keys")
    assert tried(document) == ["keyed", "p1"]
    assert skips(document) == {"claude": "dialect"}
    assert document["candidates"][0]["key"] == {"state": "readable", "source": "file", "problem": ""}
    assert document["candidates"][1]["key"]["state"] == "not_needed"
    key_file = made.directory / "secrets" / "keyed_api_key"
    kept = key_file.rename(key_file.with_name("elsewhere"))
    try:
        document = made.ask("keys")
        made.walked(tried(document), "keys")
    finally:
        kept.rename(key_file)
    assert tried(document) == ["p1"]
    assert skips(document) == {"claude": "dialect", "keyed": "auth_error"}
    [missing] = [each["key"] for each in document["candidates"] if each["provider_name"] == "keyed"]
    assert (missing["state"], missing["source"]) == ("missing", "file")
    assert "no such file" in missing["problem"]


def test_when_nobody_has_room_the_client_is_told_when_to_come_back(made: Explained) -> None:
    assert tried(made.ask("single")) == ["once"]
    with made.send(b'{"model":"single"}') as client:
        peer = made.upstreams[3].accept()
        peer.request()
        peer.respond(fields=b"Content-Type: application/json\r\nConnection: close\r\n")
        assert client.answer().status == 200
    document = made.ask("single", status=1)
    assert skips(document) == {"once": "quota_daily"}
    assert document["candidates"][0]["skip"]["until"] == document["candidates"][0]["quota"]["day_resets_at"]
    with made.send(b'{"model":"single"}') as client:
        answer = client.answer()
    assert denied(document) == told(answer)
    retry_after = answer.value(b"retry-after")
    assert retry_after is not None
    assert abs(document["denial"]["retry_after_seconds"] - int(retry_after)) < 60
    words = made.gateway.run("explain", "single").stdout
    assert "the client gets 503 no_provider_available" in words
    assert "quota_daily: no room today, until " in words


def test_a_direct_route_and_what_a_key_may_use(made: Explained) -> None:
    document = made.ask("plain", "--key-name", "limited")
    (candidate,) = document["candidates"]
    assert (document["kind"], document["runs"], document["version"]) == ("direct", "gateway", 1)
    assert (candidate["provider_name"], candidate["key"]["state"], candidate["quota"]) == ("stored", "readable", None)
    for name, key in (("plain", "limited"), ("in_order", "limited"), ("in_order", "free")):
        secret = (made.directory / f"{key}.key").read_text().strip()
        allowed = (name, key) != ("in_order", "limited")
        document = made.ask(name, "--key-name", key, status=0 if allowed else 1)
        if not allowed:
            with made.send(b'{"model":"in_order"}', fields=f"Authorization: Bearer {secret}\r\n") as client:
                assert denied(document) == told(client.answer())


def test_what_an_agent_gets_is_explained_along_its_way(made: Explained) -> None:
    gateway = made.gateway
    assert made.ask("inference.local", status=1)["denial"]["text"] == "inference is not configured"
    assert gateway.run("inference", "set", "--route", "plain", "--no-verify").exit_code == 0
    document = made.ask("inference.local")
    assert document["steps"] == [{"name": "inference.local", "how": "alias", "to": "plain"}]
    assert (document["route"], document["runs"]) == ("plain", "sandbox")
    assert document["candidates"][0]["rewrite"]["body"] == "pinned"
    document = made.ask("inference.local", "--body", "-", stdin='{"model":"any"}')
    rewrite = document["candidates"][0]["rewrite"]
    assert (rewrite["model_before"], rewrite["model_after"]) == ("any", "model-p0")
    assert gateway.run("route", "update", "plain", "--via-gateway", "--no-verify").exit_code == 0
    assert made.ask("inference.local")["runs"] == "gateway"
    assert gateway.run("sandbox", "token", "create", "box", "--route", "plain").exit_code == 0
    document = made.ask("--sandbox", "box")
    assert document["steps"] == [{"name": "inference.local", "how": "sandbox_token", "to": "plain"}]
    assert gateway.run("sandbox", "token", "revoke", "box").exit_code == 0
    assert made.ask("--sandbox", "box", status=1)["denial"]["status"] == 401


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "name a model"),
        (["in_order", "--body", "-"], "the body names the model"),
        (["in_order", "--key-name", "nobody's"], "pointsman key list"),
        (["in_order", "--sandbox", "nobody's"], "pointsman sandbox token list"),
        (["in_order", "--sandbox", "a", "--key-name", "b"], "name one of them"),
        (["inference.local", "--key-name", "free"], "reached from sandboxes"),
        (["in_order", "--path", "/v1/models"], "answered by the gateway itself"),
        (["in_order", "--path", "/health"], "answered by the gateway itself"),
        (["in_order", *(word for n in range(101) for word in ("--header", f"h{n}"))], "at most 100"),
        (["x" * 257], "at most 256"),
    ],
)
def test_a_question_that_cannot_be_meant_is_refused(made: Explained, arguments: list[str], word: str) -> None:
    done = made.gateway.run("explain", *arguments, stdin="{}")
    assert (done.exit_code, word in done.output) == (1, True), done.output
    assert done.output.count("\n") == 1
