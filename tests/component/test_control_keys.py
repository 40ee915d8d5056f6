"""Keys of the data listener, over gRPC and by command, on a real store."""

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from pointsman.core.control_errors import InvalidRequest, NotFound, Unauthenticated
from pointsman.gateway.keys import MOST_ROUTES, KeyDraft
from pointsman.gateway.lifetime import LONGEST_LIFETIME_SECONDS
from pointsman.rpc.gen import control_pb2
from tests.support.client_commands import run_client
from tests.support.control_plane import ADMIN, ADMIN_TOKEN, RunningControlPlane, control_plane


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        running.provide()
        running.point("fast")
        yield running


def made(running: RunningControlPlane, draft: KeyDraft, account: str = "default") -> str:
    _, secret = running.call(running.control.keys.create(account, draft))
    return secret.reveal()


def command(running: RunningControlPlane, tmp_path: Path, *arguments: str) -> str:
    token_file = tmp_path / "admin.token"
    if not token_file.exists():
        token_file.touch(0o600)
        token_file.write_text(ADMIN_TOKEN)
    result = run_client(f"http://127.0.0.1:{running.port}", *arguments, "--token-file", str(token_file))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_key_identifies_its_account_and_what_it_may(running: RunningControlPlane) -> None:
    running.call(running.control.accounts.create("team"))
    secret = made(running, KeyDraft("laptop", permissions=("models:view", "inference")), "team")
    identity = running.call(running.control.authenticator.identify(secret))
    assert (identity.account, identity.is_admin, identity.sandbox_token) == ("team", False, None)
    assert identity.data_key is not None
    assert identity.data_key.permissions == ("models:view", "inference")
    assert identity.data_key.may_use("anything")


def test_a_revoked_or_expired_key_is_none_at_once(running: RunningControlPlane) -> None:
    identify = running.control.authenticator.identify
    revoked, short = made(running, KeyDraft("soon-revoked")), made(running, KeyDraft("short", lifetime_seconds=1))
    for secret in (revoked, short):
        assert running.call(identify(secret)).data_key
    assert running.call(running.control.keys.revoke("default", "soon-revoked"))
    assert not running.call(running.control.keys.revoke("default", "soon-revoked"))
    running.expire()
    for secret in (revoked, short, revoked + "x", "pointsman-key-", "pointsman-key-é"):
        with pytest.raises(Unauthenticated, match="pointsman key create NAME"):
            running.call(identify(secret))


def test_keys_have_256_random_bits_and_are_kept_as_digests_only(running: RunningControlPlane, tmp_path: Path) -> None:
    values = [made(running, KeyDraft()) for _ in range(20)]
    assert all(value.startswith("pointsman-key-") for value in values)
    assert len({value[-43:] for value in values}) == 20  # 32 bytes in base64
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not [value for value in values if value[-20:].encode() in stored]
    assert not [value for value in values if any(value in line for line in running.lines)]


def test_a_key_opens_nothing_of_the_control_plane(running: RunningControlPlane) -> None:
    metadata = (("authorization", f"Bearer {made(running, KeyDraft('laptop'))}"),)
    with pytest.raises(grpc.RpcError) as raised:
        running.commands.ListKeys(control_pb2.ListKeysRequest(), metadata=metadata, timeout=10)
    assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "data listener" in str(raised.value.details())


@pytest.mark.parametrize(
    ("draft", "error", "word"),
    [
        (KeyDraft("a b"), InvalidRequest, "key's name"),
        (KeyDraft("k", permissions=("admin",)), InvalidRequest, "there are inference, models:create"),
        (KeyDraft("k", routes=("nowhere",)), NotFound, "there is no route 'nowhere'"),
        (KeyDraft("k", routes=("inference.local",)), InvalidRequest, "is for sandboxes"),
        (KeyDraft("k", routes=("sandbox-system",)), InvalidRequest, "is for sandboxes"),
        (KeyDraft("k", routes=("fast",) * (MOST_ROUTES + 1)), InvalidRequest, f"at most {MOST_ROUTES}"),
        (KeyDraft("k", lifetime_seconds=0), InvalidRequest, "lifetime"),
        (KeyDraft("k", lifetime_seconds=LONGEST_LIFETIME_SECONDS + 1), InvalidRequest, "lifetime"),
    ],
)
def test_what_no_key_can_be_is_refused(
    running: RunningControlPlane, draft: KeyDraft, error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        made(running, draft)
    assert not running.call(running.control.keys.list("default"))


def test_the_limits_of_a_key_are_kept_to_the_unit(running: RunningControlPlane) -> None:
    made(running, KeyDraft("k", ("inference",), ("fast",) * MOST_ROUTES, LONGEST_LIFETIME_SECONDS))
    [key] = running.call(running.control.keys.list("default"))
    assert (key.permissions, key.routes) == (("inference",), ("fast",))


def test_a_key_is_made_listed_and_revoked_by_command(running: RunningControlPlane, tmp_path: Path) -> None:
    out = tmp_path / "laptop.key"
    shown = command(running, tmp_path, "key", "create", "laptop", "--route", "fast", "--out", str(out))
    assert shown == f"Wrote the key laptop to {out}\n"
    assert out.stat().st_mode & 0o777 == 0o600
    assert running.call(running.control.authenticator.identify(out.read_text().strip())).data_key
    document = json.loads(command(running, tmp_path, "key", "create", "-o", "json", "--permission", "models:view"))
    assert document["name"].startswith("key-")
    assert document["permissions"] == ["models:view"]
    assert running.call(running.control.authenticator.identify(document["key"])).data_key
    listed = json.loads(command(running, tmp_path, "key", "list", "-o", "json"))
    assert {(each["name"], each["state"], *each["routes"]) for each in listed} == {
        (document["name"], "valid"),
        ("laptop", "valid", "fast"),
    }
    assert "key" not in listed[0]
    command(running, tmp_path, "key", "revoke", "laptop")
    with pytest.raises(Unauthenticated):
        running.call(running.control.authenticator.identify(out.read_text().strip()))
    made_bare = command(running, tmp_path, "key", "create", "bare")
    assert made_bare.strip().startswith("pointsman-key-")
    listed = running.commands.ListKeys(control_pb2.ListKeysRequest(), metadata=ADMIN, timeout=10).keys
    assert len(listed) == 3
