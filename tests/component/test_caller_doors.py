"""A key that opens nothing opens nothing by any door, in any spelling: halted, revoked, from elsewhere, of nobody."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.source_network import is_within, read_network
from pointsman.core.token_digest import digest_of
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer

DOORS = (
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /v1/responses",
    "POST /v1/embeddings",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "GET /v1/models",
    "GET /v1/models/fast",
    "GET /v1/models/nobody",
    "POST /v1/no/such/path",
)
SPELLINGS = (
    "Authorization: Bearer {}\r\n",
    "authorization: bearer {}\r\n",
    "AUTHORIZATION:BEARER \t {} \r\n",
    "x-api-key: {}\r\n",
    "X-API-KEY:{}\t\r\n",
    "Authorization: Bearer {}\r\nx-api-key: {}\r\n",
)
REFUSED = {
    "halted": (403, "account_halted"),
    "halted-box": (403, "account_halted"),
    "revoked": (401, "invalid_api_key"),
    "elsewhere": (403, "source_not_allowed"),
    "unheard-of": (401, "invalid_api_key"),
    "no-models": (403, "model_not_authorized"),
}


def entries() -> dict[bytes, Entry]:
    table = ModelTable({"fast": candidate("mock://x", route="fast")}, "fast")
    good = Entry(Caller("default", "laptop", KEY), table)
    found = {
        "good": good,
        "halted": replace(good, caller=Caller("team", "laptop", KEY)),
        "halted-box": replace(good, caller=Caller("team", "box", SANDBOX_TOKEN)),
        "revoked": replace(good, valid_until=time.time()),
        "elsewhere": replace(good, networks=(read_network("10.0.0.0/8"), read_network("2001:db8::/32"))),
        "here": replace(good, networks=(read_network("127.0.0.1"),)),
        "no-models": replace(good, may_infer=False),
    }
    return {digest_of(f"pk-{name}"): entry for name, entry in found.items()}


@pytest.fixture(scope="module", params=[False, True], ids=["keys", "open"])
def door(request: pytest.FixtureRequest) -> Iterator[DataDoor]:
    door = DataDoor(table=ModelTable({"fast": candidate("mock://x", route="fast")}, "fast"))
    door.is_open = request.param
    door.keys = entries()
    with door:
        door.halt("team")
        yield door
    assert not door.leftover


def ask(door: DataDoor, line: str, fields: str, more: str = "") -> Answer:
    body = '{"model":"fast"}' if line.startswith("POST") else ""
    with door.connect() as client:
        head = f"{line} HTTP/1.1\r\nHost: a\r\n{fields}{more}Content-Length: {len(body)}\r\n\r\n"
        client.send((head + body).encode())
        return client.answer()


@pytest.mark.guarantee("L5")
@pytest.mark.guarantee("L6")
@pytest.mark.parametrize("key", REFUSED)
def test_a_key_that_opens_nothing_is_refused_at_every_door_in_every_spelling(door: DataDoor, key: str) -> None:
    if key == "unheard-of" and door.is_open:
        return
    status, code = REFUSED[key]
    for line in DOORS:
        for spelling in SPELLINGS:
            answer = ask(door, line, spelling.replace("{}", f"pk-{key}"))
            error = json.loads(answer.body)["error"]
            assert (answer.status, code in str(error) or "/v1/messages" in line) == (status, True), (line, spelling)
            assert f"pk-{key}" not in answer.body.decode()


@pytest.mark.guarantee("L2")
@pytest.mark.parametrize("key", [each for each in REFUSED if each != "unheard-of"])
def test_a_key_that_is_good_does_not_help_one_that_is_not(door: DataDoor, key: str) -> None:
    for first, second in ((key, "good"), ("good", key)):
        fields = f"Authorization: Bearer pk-{first}\r\nx-api-key: pk-{second}\r\n"
        assert ask(door, DOORS[0], fields).status == 401
        joined = f"x-api-key: pk-{first}\r\nx-api-key: pk-{second}\r\n"
        assert door.is_open or ask(door, DOORS[0], joined).status == 401


@pytest.mark.guarantee("L6")
@pytest.mark.parametrize(
    "field", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP", "X-Client-IP", "Via"]
)
def test_no_field_moves_a_client_into_a_network(door: DataDoor, field: str) -> None:
    for value in ("10.0.0.1", "for=10.0.0.1", "2001:db8::1"):
        assert ask(door, DOORS[6], "x-api-key: pk-elsewhere\r\n", f"{field}: {value}\r\n").status == 403
        assert ask(door, DOORS[6], "x-api-key: pk-here\r\n", f"{field}: {value}\r\n").status == 200


@pytest.mark.guarantee("L6")
@pytest.mark.parametrize(
    ("address", "is_in"),
    [
        ("10.0.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("::FFFF:0a00:0001", True),
        ("0:0:0:0:0:ffff:10.0.0.1", True),
        ("11.0.0.1", False),
        ("::ffff:11.0.0.1", False),
        ("::10.0.0.1", False),
        ("64:ff9b::10.0.0.1", False),
        ("2002:0a00:0001::", False),
        ("2001:db8::1", True),
        ("2001:db8::1%eth0", True),
        ("2001:db9::1", False),
        ("010.0.0.1", False),
        ("10.1", False),
        ("167772161", False),
        ("", False),
        ("unix:", False),
    ],
)
def test_an_address_is_in_a_network_whichever_family_it_is_told_in(address: str, is_in: bool) -> None:
    assert is_within(address, (read_network("10.0.0.0/8"), read_network("2001:db8::/32"))) is is_in
