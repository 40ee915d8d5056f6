"""What sharing a model promises, at real processes: a gateway, runners, and a model's server that the test plays."""

import contextlib
import http.client
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.support import canary
from tests.support.model_server import EVENT_STREAM, ModelServer, Visit, whole
from tests.support.shared_model import Laptop, SharedModels, served, shared_models
from tests.support.waiting import wait_until

ASKED: Any = [{"role": "user", "content": f"Answer {canary.PROMPT}."}]
EVENTS = 200
CHUNK = '{"choices":[{"index":0,"delta":{"content":"%s"}}]}'
OPTIONS = {"api_key": "unused", "max_retries": 0, "timeout": 20}


async def answer(visit: Visit) -> None:
    asked = json.loads(visit.body)
    if asked.get("seed") is None:
        if asked.get("stream"):
            await visit.send(EVENT_STREAM + b"data: %b\n\n" % (CHUNK % "begun").encode())
        await visit.gone()
    elif not asked.get("stream"):
        await visit.send(whole((CHUNK % asked["seed"]).encode()))
    else:
        await visit.send(EVENT_STREAM)
        for number in range(EVENTS):
            text = f"{asked['seed']}.{number} "
            await visit.send(f"data: {CHUNK % text}\n\n".encode())
        await visit.send(b"data: [DONE]\n\n")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with served(answer, "tiny", "spare") as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedModels]:
    with shared_models(tmp_path_factory.mktemp("shared")) as shared:
        yield shared


@pytest.fixture(scope="module")
def laptop(shared: SharedModels, server: ModelServer) -> Laptop:
    return shared.laptop(server.url, "tiny", "spare")


@pytest.fixture
def client(shared: SharedModels, laptop: Laptop) -> Iterator[openai.OpenAI]:
    assert laptop.pid
    with openai.OpenAI(base_url=f"{shared.url}/v1", **OPTIONS) as client:  # type: ignore[arg-type]
        yield client


def stays(client: openai.OpenAI, **more: Any) -> Any:
    """A stream that has begun, and goes on until somebody ends it."""
    stream = client.chat.completions.create(**{"model": "tiny", "messages": ASKED, "stream": True, **more})
    assert next(iter(stream)).choices[0].delta.content == "begun"
    return stream


def works(client: openai.OpenAI, model: str = "tiny") -> bool:
    """Whether a whole answer comes."""
    found: Any = client.chat.completions.create(model=model, messages=ASKED, seed=7)
    return bool(found.choices[0].delta["content"] == "7")


def refused(client: openai.OpenAI, model: str = "tiny") -> str | None:
    """The code of what is raised."""
    with pytest.raises(openai.APIStatusError) as caught:
        works(client, model)
    return caught.value.code


@pytest.mark.guarantee("S1")
@pytest.mark.parametrize(
    "url",
    [
        "http://192.168.1.20:11434/v1",
        "http://127.0.0.2:11434/v1",
        "http://0.0.0.0:11434/v1",
        "http://2130706433:11434/v1",
        "http://localhost.:11434/v1",
        "http://localhost/v1",
        "http://localhost:11434",
        "http://localhost:11434/v1/models",
        "http://localhost:11434/v1?x=1",
        "http://localhost:11434/v1#",
        "http://a:b@localhost:11434/v1",
        "https://localhost:11434/v1",
        "file://localhost:11434/v1",
    ],
)
def test_no_address_but_a_loopback_one_is_registered_or_looked_at(
    shared: SharedModels, laptop: Laptop, url: str
) -> None:
    body = {"name": "tiny", "model_identifier": "tiny", "api_endpoint": url}
    status, told = shared.rest("POST", f"/runners/{laptop.runner_id}/models", body)
    assert (status, told["error"]["code"]) == (400, "invalid_argument")
    if url.endswith("20:11434/v1"):  # its own command's rule is the same function; once is enough for a process
        done = laptop.command("models", "--url", url, "--register", "tiny")
        assert (done.returncode, "127.0.0.1" in done.stderr) == (2, True)


@pytest.mark.guarantee("S1", "S8")
def test_an_allowlist_that_was_edited_to_a_foreign_address_allows_nothing_until_it_is_mended(
    client: openai.OpenAI, laptop: Laptop, server: ModelServer
) -> None:
    kept, asked = laptop.allowlist.read_text(), len(server.visits)
    laptop.allowlist.write_text(kept.replace(f"127.0.0.1:{server.port}", f"127.0.0.2:{server.port}", 1))
    assert [refused(client, model) for model in ("tiny", "spare")] == ["runner_model_not_allowed"] * 2
    laptop.allowlist.write_text(kept)
    assert len(server.visits) == asked
    assert works(client)


@pytest.mark.guarantee("S2")
def test_another_account_finds_nothing_of_a_runner_and_cannot_answer_for_it(
    shared: SharedModels, laptop: Laptop, server: ModelServer
) -> None:
    assert shared.rest("POST", "/accounts", {"name": "theirs"})[0] == 201
    all_of_it = ("runners:manage", "models:create", "models:view", "models:edit", "models:delete", "inference")
    permissions = [word for each in all_of_it for word in ("--permission", each)]
    key = shared.operate("key", "create", "stranger", "--account", "theirs", *permissions)
    tiny, runner = shared.model("tiny")["id"], f"/runners/{laptop.runner_id}"
    body = {"name": "tiny", "model_identifier": "tiny", "api_endpoint": server.url}
    for method, path in (
        ("GET", runner),
        ("POST", f"{runner}/models"),
        ("POST", f"{runner}/token"),
        ("DELETE", f"{runner}?force=true"),
        ("GET", f"/ai-models/{tiny}"),
        ("PUT", f"/ai-models/{tiny}"),
        ("DELETE", f"/ai-models/{tiny}"),
    ):
        has_body = method == "PUT" or path.endswith("/models")
        assert shared.rest(method, path, body if has_body else None, key)[0] == 404, (method, path)
    assert shared.rest("GET", "/ai-models", key=key)[1]["total"] == 0
    status, own = shared.rest("POST", "/runners/register", {"name": "laptop"}, key)
    assert status in (200, 201)
    assert shared.rest("GET", f"{runner}/ws", key="", runner_token=own["token"])[0] == 401
    with openai.OpenAI(base_url=f"{shared.url}/v1", **{**OPTIONS, "api_key": key}) as stranger:  # type: ignore[arg-type]
        wait_until(lambda: [each.id for each in stranger.models.list()] == [])  # a new key is in force a moment later
        assert refused(stranger) == "model_not_found"


@pytest.mark.guarantee("S3")
def test_a_lost_allowlist_is_approved_anew_and_the_names_stay(
    client: openai.OpenAI, shared: SharedModels, laptop: Laptop, server: ModelServer
) -> None:
    before = shared.rest("GET", "/ai-models")[1]
    laptop.allowlist.unlink()
    assert refused(client) == "runner_model_not_allowed"
    listed = laptop.command("models", "--url", server.url)
    assert listed.returncode == 0
    assert refused(client) == "runner_model_not_allowed"  # looking is no consent
    words = [word for model in ("tiny", "spare") for word in ("--register", f"{model}@{server.url}")]
    assert laptop.command("models", "--url", server.url, *words).returncode == 0
    assert works(client)
    assert shared.rest("GET", "/ai-models")[1] == before


@pytest.mark.guarantee("S3", "S2")
def test_a_key_without_the_permission_registers_nothing(
    shared: SharedModels, laptop: Laptop, server: ModelServer
) -> None:
    key = shared.operate("key", "create", "curious", "--permission", "models:view", "--permission", "runners:manage")
    body = {"name": "more", "model_identifier": "more", "api_endpoint": server.url}
    before = shared.rest("GET", "/ai-models")[1]
    assert shared.rest("POST", f"/runners/{laptop.runner_id}/models", body, key)[0] == 403
    assert shared.rest("GET", "/ai-models")[1] == before


@pytest.mark.guarantee("S4")
def test_what_is_asked_while_a_runner_is_away_reaches_nobody_then_or_later(
    client: openai.OpenAI, laptop: Laptop, server: ModelServer
) -> None:
    asked = len(server.visits)  # on the gateway's own loopback, at the registered address
    laptop.away()
    assert [refused(client) for _ in range(3)] == ["runner_offline"] * 3
    laptop.start()
    assert works(client)
    assert len(server.visits) == asked + 1


@pytest.mark.guarantee("S5")
def test_four_answers_at_once_come_each_in_its_order(client: openai.OpenAI) -> None:
    def read(seed: int) -> None:
        chunks = client.chat.completions.create(model="tiny", messages=ASKED, seed=seed, stream=True)
        texts[seed] = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    texts: dict[int, str] = {}
    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(1, 5)]
    for each in readers:
        each.start()
    for each in readers:
        each.join(30)
    assert texts == {seed: "".join(f"{seed}.{number} " for number in range(EVENTS)) for seed in range(1, 5)}


@pytest.mark.guarantee("S6")
def test_a_client_that_leaves_in_any_phase_frees_the_server_and_the_slot(
    client: openai.OpenAI, shared: SharedModels, server: ModelServer
) -> None:
    for phase in ("before a head", "in a stream", "in a stream", "before an answer"):
        closed, asked = server.closed, len(server.visits)
        connection = http.client.HTTPConnection("127.0.0.1", shared.gateway.ports["data"], timeout=20)
        body = {"model": "tiny", "messages": ASKED, "stream": phase != "before an answer"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        wait_until(lambda: len(server.visits) > asked)  # noqa: B023
        if phase == "in a stream":
            assert connection.getresponse().readline().startswith(b"data: ")
        since = time.monotonic()
        connection.close()
        wait_until(lambda: server.closed > closed)  # noqa: B023
        assert time.monotonic() - since < 5, phase  # a second, and air for a busy machine
    with contextlib.ExitStack() as streams:
        for _ in range(4):
            streams.enter_context(stays(client))
        assert refused(client) == "runner_busy"
    wait_until(lambda: succeeds(client))


def succeeds(client: openai.OpenAI, model: str = "tiny") -> bool:
    with contextlib.suppress(openai.APIStatusError):
        return works(client, model)
    return False


def rotated(shared: SharedModels, guest: Laptop) -> None:
    assert shared.rest("POST", f"/runners/{guest.runner_id}/token")[0] == 200


def deleted(shared: SharedModels, guest: Laptop) -> None:
    assert shared.rest("DELETE", f"/runners/{guest.runner_id}")[0] == 409
    assert shared.rest("DELETE", f"/runners/{guest.runner_id}?force=true")[0] == 200


def replaced(_: SharedModels, guest: Laptop) -> None:
    guest.start_another()


def killed(_: SharedModels, guest: Laptop) -> None:
    guest.stop(signal.SIGKILL)


@pytest.mark.guarantee("S6")
@pytest.mark.parametrize("end", [rotated, deleted, replaced, killed])
def test_whatever_ends_a_runners_line_ends_its_answers_at_once_and_none_is_resumed(
    client: openai.OpenAI, shared: SharedModels, server: ModelServer, end: Callable[[SharedModels, Laptop], None]
) -> None:
    guest = shared.laptop(server.url, "tiny", name=end.__name__)
    [model] = [each for each in shared.models() if each["runner_id"] == guest.runner_id]
    stream, asked, closed = stays(client, model=model["alias"]), len(server.visits), server.closed
    end(shared, guest)
    with pytest.raises(openai.APIError, match="response truncated: runner_offline"):
        next(stream)
    wait_until(lambda: server.closed > closed)
    if end is replaced:
        assert works(client, model["alias"])
    elif end is not deleted:
        assert refused(client, model["alias"]) == "runner_offline"
    else:
        wait_until(lambda: refused(client, model["alias"]) == "model_not_found")
    assert len(server.visits) == asked + (end is replaced)
    if end is deleted:
        assert {**model, "available": False} in shared.models()


@pytest.mark.guarantee("S8")
def test_a_record_that_was_changed_at_the_gateway_is_refused_by_the_runner(
    client: openai.OpenAI, shared: SharedModels, server: ModelServer
) -> None:
    model = shared.model("spare")
    with served(answer, "spare") as other:
        for change in ({"api_endpoint": other.url}, {"model_identifier": "tiny-2"}):
            body = {name: model[name] for name in ("name", "alias", "api_endpoint", "model_identifier")}
            assert shared.rest("PUT", f"/ai-models/{model['id']}", {**body, **change})[0] == 200
            wait_until(lambda: not succeeds(client, "spare"))  # the listener reads the change
            asked = len(server.visits)
            assert refused(client, "spare") == "runner_model_not_allowed"
            assert (len(server.visits), len(other.visits)) == (asked, 0)
            assert shared.rest("PUT", f"/ai-models/{model['id']}", body)[0] == 200
    wait_until(lambda: succeeds(client, "spare"))


# The last: the gateway is another process afterwards.
@pytest.mark.guarantee("S6")
def test_a_gateway_that_is_killed_resumes_nothing_and_its_runners_come_back(
    client: openai.OpenAI, shared: SharedModels, laptop: Laptop, server: ModelServer
) -> None:
    stream, asked, closed = stays(client), len(server.visits), server.closed
    shared.gateway.end(signal.SIGKILL)
    with pytest.raises(openai.APIConnectionError):
        next(stream)
    wait_until(lambda: server.closed > closed)
    told = len(shared.gateway.lines)
    shared.gateway.start()
    shared.gateway.said(f"runner {laptop.runner_id} of default is connected", told)
    assert works(client)
    assert len(server.visits) == asked + 1
