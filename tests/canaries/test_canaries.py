"""Nothing that this run of the tests left behind gives a key or a prompt away. Comes last; see conftest.

The keys and prompts that the tests plant are new in every run (tests/support/canary.py). What the processes wrote and
looked like is in the evidence (tests/support/evidence.py). What must not be searched is what a test wrote itself: its
route and token files, which is where an operator keeps keys.
"""

import base64
import hashlib
import os
import socket
import ssl
from pathlib import Path

import pytest

from tests.support import evidence
from tests.support.canary import KEY, PROMPT, TOKEN, Finder
from tests.support.door import Door, candidate
from tests.support.processes import POINTSMAN, proxy_process, run_to_end
from tests.support.raw_client import RawClient, post
from tests.support.upstream import SOME_BODY, Upstream, UpstreamPeer, begin

pytestmark = pytest.mark.alone

BOTH = Finder({"key": KEY, "token": TOKEN, "prompt": PROMPT})
ONLY_KEY = Finder({"key": KEY, "token": TOKEN})
NOT_TOKEN = Finder({"key": KEY, "prompt": PROMPT})
PLANTED = (".yaml", ".yml", ".token", "_api_key")
HOLDS_ITS_TOKEN = "runner.json"
"""The one file in which a runner keeps its own token."""
FIELDS = f"X-Prompt: {PROMPT}\r\nAuthorization: Bearer {KEY}\r\nCookie: {KEY}\r\n".encode()


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        TOKEN,
        f"Bearer {KEY}",
        f"sk-...{KEY[-8:]}",
        f"{KEY[:11]}***",
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"u:{KEY}".encode()).decode(),
        KEY.encode().hex(),
        hashlib.sha256(KEY.encode()).hexdigest(),
        hashlib.md5(KEY.encode()).hexdigest()[:16],
        base64.b64encode(hashlib.sha256(KEY.encode()).digest()).decode(),
    ],
)
def test_the_search_finds_a_key_in_every_form(text: str) -> None:
    assert BOTH.find(f"some {text} text".encode())


def test_the_search_finds_nothing_where_there_is_nothing() -> None:
    assert not BOTH.find(b"sk-" + bytes(range(256)) * 50)


def test_every_command_runs_with_a_key_and_a_prompt(tmp_path: Path) -> None:
    """So that there is evidence of each kind, whichever tests ran before."""
    routes = """
routes:
  - {{route: inference.local, endpoint: "{}", model: m, protocols: [openai_responses], api_key_env: PLANTED_NAME}}
"""
    log, environ = tmp_path / "events.jsonl", {"PLANTED_NAME": KEY}
    with Upstream() as upstream:
        text = routes.format(upstream.url)
        with proxy_process(text, tmp_path, "--ocsf-log", str(log), environ={**os.environ, **environ}) as proxy:
            context = ssl.create_default_context(cafile=str(proxy.bundle))
            with RawClient(socket.create_connection(("127.0.0.1", proxy.port), 10)) as client:
                client.enter_tunnel(context)
                client.send(post(SOME_BODY, path=f"/v1/responses?key={KEY}&text={PROMPT}".encode(), fields=FIELDS))
                _refuse_with_the_key(upstream.accept())
                assert client.answer().body == b'{"error":"unauthorized"}'
                client.send(post(SOME_BODY, path=f"/v1/nothing?{PROMPT}".encode(), fields=FIELDS))
                assert client.answer().status == 403
        assert log.read_text().count("\n") >= 2
    checked = run_to_end([POINTSMAN, "sandbox", "routes", "check", str(tmp_path / "routes.yaml")], environ=environ)
    assert checked.returncode == 0
    with Upstream() as upstream, Door(candidate(upstream.url)) as door, door.tunnel() as client:
        begin(client, upstream).respond()
        assert client.answer().status == 200


def _refuse_with_the_key(peer: UpstreamPeer) -> None:
    assert KEY.encode() in (peer.request().value(b"authorization") or b"")
    peer.send(b"HTTP/1.1 401 No\r\nContent-Length: 60\r\n\r\n" + f"bad key {KEY}".encode().ljust(60))


@pytest.mark.guarantee("K1")
@pytest.mark.parametrize("kind", ["log", "event", "cli", "output", "process"])
def test_no_log_event_output_or_process_gives_a_canary_away(kind: str) -> None:
    path = evidence.directory() / kind
    # Tests print nothing, as a rule; of every other kind there is some, or what keeps it is broken.
    data = path.read_bytes() if path.exists() or kind != "output" else b""
    assert not BOTH.find(data)


@pytest.mark.guarantee("K1")
def test_no_client_was_sent_the_key() -> None:
    assert not ONLY_KEY.find((evidence.directory() / "client").read_bytes())


@pytest.mark.guarantee("K1")
def test_no_file_holds_a_canary(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In the directories of this process and of those that ran the tests before it."""
    places = [Path(line) for line in (evidence.directory() / "places").read_text().splitlines()]
    assert tmp_path_factory.getbasetemp() in places
    assert all(place.is_dir() for place in places)
    files = [path for place in places for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    found = {
        f"{path}: {what}"
        for path in files
        if not path.name.endswith(PLANTED) and path.stat().st_size < 1 << 26
        for what in (NOT_TOKEN if path.name == HOLDS_ITS_TOKEN else BOTH).find(path.read_bytes())
    }
    assert files
    assert not found
