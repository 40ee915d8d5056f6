"""One token, every way to write it into a header: what each listener takes it for."""

from collections.abc import Iterator

import grpc
import pytest

from pointsman.core.caller import KEY, Caller
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.token_digest import digest_of
from pointsman.rpc.gen import control_pb2
from tests.support.control_plane import ADMIN_TOKEN
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.rest import RunningApi, rest_api

T = ADMIN_TOKEN
EVERYWHERE, NOWHERE, DATA, CONTROL = {"data", "rest", "grpc"}, set[str](), {"data"}, {"rest", "grpc"}
AUTH, API_KEY = "authorization", "x-api-key"
SPELLINGS: dict[str, tuple[list[tuple[str, str]], set[str]]] = {
    "Bearer": ([(AUTH, f"Bearer {T}")], EVERYWHERE),
    "bearer": ([(AUTH, f"bearer {T}")], EVERYWHERE),
    "BEARER": ([(AUTH, f"BEARER {T}")], EVERYWHERE),
    "more blanks": ([(AUTH, f"Bearer   {T}")], EVERYWHERE),
    "x-api-key": ([(API_KEY, T)], DATA),
    "both, the same": ([(AUTH, f"Bearer {T}"), (API_KEY, T)], EVERYWHERE),
    "both, of which one is another": ([(AUTH, f"Bearer {T}"), (API_KEY, "another")], CONTROL),
    "both, of which the other is another": ([(AUTH, "Bearer another"), (API_KEY, T)], NOWHERE),
    "an empty x-api-key besides": ([(AUTH, f"Bearer {T}"), (API_KEY, "")], EVERYWHERE),
    "basic, and x-api-key": ([(AUTH, "Basic eDp5"), (API_KEY, T)], DATA),
    "twice the same": ([(AUTH, f"Bearer {T}"), (AUTH, f"Bearer {T}")], NOWHERE),
    "twice, the second another": ([(AUTH, f"Bearer {T}"), (AUTH, "Bearer another")], NOWHERE),
    "x-api-key twice": ([(API_KEY, T), (API_KEY, T)], NOWHERE),
    "a tab for the blank": ([(AUTH, f"Bearer\t{T}")], NOWHERE),
    "no scheme": ([(AUTH, T)], NOWHERE),
    "basic": ([(AUTH, f"Basic {T}")], NOWHERE),
    "a scheme and nothing": ([(AUTH, "Bearer")], NOWHERE),
    "a scheme and a blank": ([(AUTH, "Bearer ")], NOWHERE),
    "empty": ([(AUTH, "")], NOWHERE),
    "more behind it": ([(AUTH, f"Bearer {T} {T}")], NOWHERE),
    "in quotes": ([(AUTH, f'Bearer "{T}"')], NOWHERE),
    "in capitals": ([(AUTH, f"Bearer {T.upper()}")], NOWHERE),
    "none": ([], NOWHERE),
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("spellings")) as api:
        yield api


@pytest.fixture(scope="module")
def data() -> Iterator[DataDoor]:
    door = DataDoor(table=ModelTable({"fast": candidate("mock://a", route="fast")}))
    door.is_open = False
    door.keys[digest_of(T)] = Entry(Caller("default", "laptop", KEY), door.table)
    with door:
        yield door


def _asked(path: str, fields: list[tuple[str, str]]) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: a", "Connection: close", *(f"{name}: {value}" for name, value in fields)]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def _grpc(api: RunningApi, fields: list[tuple[str, str]]) -> bool:
    call = api.running.commands.ListKeys.with_call
    try:
        call(control_pb2.ListKeysRequest(), metadata=tuple(fields), timeout=10)
    except grpc.RpcError as error:
        refused = error
    else:
        return True
    # What gRPC does not let into metadata is not even sent.
    assert refused.code() is grpc.StatusCode.UNAUTHENTICATED or "Invalid metadata" in str(refused.details())
    return False


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_token_is_read_alike_by_every_listener(api: RunningApi, data: DataDoor, spelling: str) -> None:
    fields, expected = SPELLINGS[spelling]
    with data.connect() as client:
        client.send(_asked("/v1/models", fields))
        of_data = client.answer().status
    of_rest = int(api.raw(_asked("/api/v1/status", fields)).split(b" ")[1])
    assert {of_data, of_rest} <= {200, 401}
    let_in = {"data": of_data == 200, "rest": of_rest == 200, "grpc": _grpc(api, fields)}
    assert {name for name, is_in in let_in.items() if is_in} == expected
