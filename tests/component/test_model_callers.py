"""Whose keys and tokens open what on the data listener, and in which words the others are refused."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import anthropic
import openai
import pytest

from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.token_digest import digest_of
from pointsman.proxy.stages import Stages
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer

OTHER = ModelTable({name: candidate("mock://x", route=name) for name in ("theirs", "more")}, "theirs")
OURS = ModelTable({name: candidate("mock://x", route=name) for name in ("fast", "slow")}, "slow")


def entries() -> dict[bytes, Entry]:
    now = time.time()
    all_of_them = Entry(Caller("other", "all", KEY), OTHER)
    found = {
        "all": all_of_them,
        "one": replace(all_of_them, caller=Caller("other", "one", KEY), table=OTHER.only(("theirs",))),
        "more": replace(all_of_them, caller=Caller("other", "more", KEY), table=OTHER.only(("more",))),
        "box": Entry(Caller("other", "one", SANDBOX_TOKEN), OTHER.only(("more",))),
        "gone": replace(all_of_them, valid_until=now),
        "soon": replace(all_of_them, valid_until=now + 600),
        "odd": replace(all_of_them, may_infer=False),
    }
    return {digest_of(name): entry for name, entry in found.items()}


class Asked:
    def __init__(self, door: DataDoor) -> None:
        self.door = door
        self.callers: list[Caller] = []
        door.stages = Stages(usage_record=lambda record: self.callers.append(record.caller))
        door.keys = entries()
        door.table = OURS

    def models(self, fields: str = "") -> list[str] | int:
        with self.door.connect() as client:
            client.send(f"GET /v1/models HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode())
            answer = client.answer()
        return [each["id"] for each in json.loads(answer.body)["data"]] if answer.status == 200 else answer.status

    def call(self, model: str | None, fields: str = "", path: str = "/v1/chat/completions") -> Answer:
        body = json.dumps({"model": model} if model else {})
        with self.door.connect() as client:
            head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
            client.send((head + body).encode())
            return client.answer()


@pytest.fixture
def closed() -> Iterator[Asked]:
    door = DataDoor()
    door.is_open = False
    asked = Asked(door)
    with door:
        yield asked
    assert not door.leftover


@pytest.fixture
def open_() -> Iterator[Asked]:
    asked = Asked(DataDoor())
    with asked.door:
        yield asked
    assert not asked.door.leftover


def error_of(answer: Answer) -> tuple[int, str, str]:
    error = json.loads(answer.body)["error"]
    return answer.status, error["code"], error["message"]


@pytest.mark.parametrize("listener", ["closed", "open_"])
@pytest.mark.guarantee("L1")
def test_a_key_gives_its_accounts_routes_and_those_only(listener: str, request: pytest.FixtureRequest) -> None:
    asked: Asked = request.getfixturevalue(listener)
    for fields in ("Authorization: Bearer all\r\n", "authorization: bearer  all\r\n", "x-api-key: soon\r\n"):
        assert asked.models(fields) == ["theirs", "more"]
    assert asked.models("x-api-key: one\r\nAuthorization: Bearer one\r\n") == ["theirs"]
    assert asked.models("x-api-key: box\r\n") == ["more"]


@pytest.mark.parametrize("listener", ["closed", "open_"])
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ("x-api-key: gone\r\n", 401),
        ("x-api-key: odd\r\n", 403),
        ("x-api-key: one\r\nAuthorization: Bearer all\r\n", 401),
        ("x-api-key: one\r\nAuthorization: Bearer dummy\r\n", 401),
    ],
)
@pytest.mark.guarantee("L2")
def test_a_key_that_is_known_and_not_good_is_refused_everywhere(
    listener: str, fields: str, status: int, request: pytest.FixtureRequest
) -> None:
    asked: Asked = request.getfixturevalue(listener)
    assert asked.models(fields) == status
    assert asked.call("theirs", fields).status == status


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "x-api-key: wrong\r\n",
        "x-api-key: Bearer all\r\n",
        "x-api-key: é\r\n",
        "Authorization: Basic all\r\n",
        "x-api-key: a\r\nAuthorization: Bearer b\r\n",
    ],
)
def test_a_key_that_nobody_knows_is_refused_unless_the_listener_is_open(
    closed: Asked, open_: Asked, fields: str
) -> None:
    assert closed.models(fields) == 401
    assert closed.call("fast", fields).status == 401
    assert open_.models(fields) == ["fast", "slow"]
    assert open_.call("fast", fields).status == 200


@pytest.mark.guarantee("L1")
def test_a_route_that_the_key_may_not_use_is_403_and_one_that_is_not_there_404(closed: Asked) -> None:
    status, code, message = error_of(closed.call("more", "x-api-key: one\r\n"))
    assert (status, code) == (403, "model_not_authorized")
    assert message == "this key may not use the model 'more'; GET /v1/models lists those that it may use"
    assert error_of(closed.call("fast", "x-api-key: more\r\n"))[:2] == (404, "model_not_found")
    assert closed.call("more", "x-api-key: more\r\n").status == 200
    assert closed.call("more", "x-api-key: all\r\n").status == 200


@pytest.mark.parametrize(("key", "status"), [("one", 403), ("more", 200), ("all", 200)])
def test_one_model_is_looked_up_by_the_same_rule(closed: Asked, key: str, status: int) -> None:
    with closed.door.connect() as client:
        client.send(f"GET /v1/models/more HTTP/1.1\r\nHost: a\r\nx-api-key: {key}\r\n\r\n".encode())
        assert client.answer().status == status


@pytest.mark.guarantee("L1")
def test_the_nearest_name_is_never_one_that_the_key_may_not_use(closed: Asked) -> None:
    assert "did you mean 'more'" in error_of(closed.call("mroe", "x-api-key: more\r\n"))[2]
    closed.door.keys = {
        digest: replace(entry, table=replace(entry.table, default="")) for digest, entry in closed.door.keys.items()
    }
    assert error_of(closed.call("mroe", "x-api-key: one\r\n")) == (
        404,
        "model_not_found",
        "the model 'mroe' does not exist; GET /v1/models lists what there is",
    )


@pytest.mark.parametrize(
    ("key", "model", "route"),
    [("one", "gpt-4o", b"theirs"), ("one", None, b"theirs"), ("all", "gpt-4o", b"theirs")],
)
def test_the_default_route_is_for_keys_that_may_use_it(
    closed: Asked, key: str, model: str | None, route: bytes
) -> None:
    assert closed.call(model, f"x-api-key: {key}\r\n").value(b"x-pointsman-route") == route
    assert closed.call(model, "x-api-key: more\r\n").status == 404


def test_what_a_key_may_not_use_does_not_lead_to_the_default_route(closed: Asked) -> None:
    assert closed.call("more", "x-api-key: one\r\n").status == 403


def test_an_account_that_is_not_the_keys_lends_it_neither_names_nor_a_default(open_: Asked) -> None:
    assert open_.call("fast", "x-api-key: more\r\n").status == 404
    assert open_.call("theirs").value(b"x-pointsman-route") == b"slow"


def test_who_sent_a_request_is_told_by_kind_and_name(open_: Asked) -> None:
    for fields in ("x-api-key: one\r\n", "x-api-key: box\r\n", "x-api-key: dummy\r\n", ""):
        open_.call("more", fields)
    assert [(each.account, each.kind, each.shown_name) for each in open_.callers] == [
        ("other", "key", "one"),
        ("other", "sandbox", "sandbox:one"),
        ("default", "", ""),
        ("default", "", ""),
    ]


def test_a_key_stops_at_the_moment_at_which_it_ends(closed: Asked) -> None:
    digest = digest_of("all")
    entry = closed.door.keys[digest]
    with closed.door.connect() as client:
        for ends_in, status in ((60, 200), (0, 401)):
            closed.door.keys = {digest: replace(entry, valid_until=time.time() + ends_in)}
            client.send(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: all\r\n\r\n")
            assert client.answer().status == status


@pytest.mark.parametrize(
    ("fields", "model", "status", "kind"),
    [
        ("", "theirs", 401, "authentication_error"),
        ("x-api-key: gone\r\n", "theirs", 401, "authentication_error"),
        ("x-api-key: one\r\nAuthorization: Bearer all\r\n", "theirs", 401, "authentication_error"),
        ("x-api-key: odd\r\n", "theirs", 403, "permission_error"),
        ("x-api-key: one\r\n", "more", 403, "permission_error"),
        ("x-api-key: more\r\n", "nobody", 404, "not_found_error"),
    ],
)
def test_every_refusal_is_in_the_words_of_its_dialect(
    closed: Asked, fields: str, model: str, status: int, kind: str
) -> None:
    openais = closed.call(model, fields)
    anthropics = closed.call(model, fields, "/v1/messages")
    error = json.loads(anthropics.body)
    assert openais.status == anthropics.status == status
    assert (error["type"], error["error"]["type"]) == ("error", kind)
    assert error["error"]["message"] == error_of(openais)[2]
    assert error["request_id"].encode() == anthropics.value(b"x-pointsman-request-id")


def test_the_official_clients_raise_what_their_users_look_for(closed: Asked) -> None:
    url = f"http://127.0.0.1:{closed.door.address[1]}"
    for key, expected, other in (
        ("gone", openai.AuthenticationError, anthropic.AuthenticationError),
        ("one", openai.PermissionDeniedError, anthropic.PermissionDeniedError),
    ):
        with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client, pytest.raises(expected):
            client.chat.completions.create(model="more", messages=[])
        with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0) as claude, pytest.raises(other):
            claude.messages.create(model="more", max_tokens=1, messages=[{"role": "user", "content": "hello"}])
