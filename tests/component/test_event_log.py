"""Where the events of a real proxy go: files that rotate and move, pipes that are closed or full, full disks."""

import os
import re
import signal
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.ocsf import read_events
from tests.support.processes import POINTSMAN, ProxyProcess, proxy_process
from tests.support.raw_client import RawClient, post
from tests.support.waiting import wait_until

ROUTES = """
routes: [{route: inference.local, endpoint: mock://canned, model: m, protocols: [openai_chat_completions]}]
"""
LONG_NAME = "m" * 190
LONG_ROUTES = f"""
routes: [{{route: {LONG_NAME}, endpoint: mock://canned, model: {LONG_NAME}, protocols: [model_discovery]}}]
"""
LONG_PATH = b"/v1/models/" + LONG_NAME.encode()
ONE = ["request_matched", "infer_completed"]
START = ["routes_loaded", "inference_enabled"]


def ask(proxy: ProxyProcess, times: int = 1, path: bytes = b"/v1/chat/completions") -> None:
    """Ask for inference on one connection."""
    with RawClient(socket.create_connection(("127.0.0.1", proxy.port), 20)) as client:
        client.send(b"CONNECT inference.local:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        client.read_until(b"\r\n\r\n")
        client.start_tls(ssl.create_default_context(cafile=str(proxy.bundle)), "inference.local")
        for _ in range(times):
            client.send(b"GET %b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % path if path is LONG_PATH else post())
            assert client.answer().status == 200


def kinds(text: str) -> list[str]:
    return [event["metadata"]["event_code"] for event in read_events(text)]


def test_the_state_of_the_routes_comes_first(tmp_path: Path) -> None:
    log = tmp_path / "events"
    with proxy_process("routes: []\n", tmp_path, "--ocsf-log", str(log)) as proxy:
        proxy.stop()
    events = read_events(log.read_text())
    assert [each["metadata"]["event_code"] for each in events] == ["routes_loaded", "inference_disabled"]
    assert [(each["state_id"], each["unmapped"]["routes"]) for each in events] == [(99, 0), (1, 0)]
    assert proxy.lines[0] == "pointsman: routes_loaded source=file routes=0 system_routes=0\n"
    assert oct(log.stat().st_mode & 0o777) == oct(0o640 & ~current_umask())


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_file_is_rotated_by_its_size_and_no_event_is_lost_or_split(tmp_path: Path) -> None:
    log = tmp_path / "events"
    options = ["--ocsf-log", str(log), "--ocsf-log-size", "64K", "--ocsf-log-keep", "9"]
    with proxy_process(ROUTES, tmp_path, *options) as proxy:
        ask(proxy, 120)
        assert proxy.stop() == 0
    files = [tmp_path / f"events.{number}" for number in range(9, 0, -1)] + [log]
    present = [path for path in files if path.exists()]
    assert len(present) > 2
    assert all(path.stat().st_size <= 65536 for path in present)
    assert [kind for path in present for kind in kinds(path.read_text())] == START + ONE * 120


@pytest.mark.parametrize("signalled", [True, False])
def test_a_file_that_logrotate_moved_is_made_anew(tmp_path: Path, signalled: bool) -> None:
    log, moved = tmp_path / "events", tmp_path / "moved"
    with proxy_process(ROUTES, tmp_path, "--ocsf-log", str(log)) as proxy:
        ask(proxy)
        wait_until(lambda: log.read_text().count("\n") == 4)
        log.rename(moved)
        if signalled:
            proxy.process.send_signal(signal.SIGHUP)
            wait_until(log.exists)
        ask(proxy)
        wait_until(lambda: log.exists() and log.read_text().count("\n") == 2)
        assert proxy.stop() == 0
    assert (kinds(moved.read_text()), kinds(log.read_text())) == (START + ONE, ONE)


def test_without_a_file_sighup_changes_nothing(tmp_path: Path) -> None:
    with proxy_process(ROUTES, tmp_path) as proxy:
        proxy.process.send_signal(signal.SIGHUP)
        ask(proxy)
        assert proxy.stop() == 0


def test_a_reader_that_went_away_stops_nothing_and_is_told_once(tmp_path: Path) -> None:
    with proxy_process(ROUTES, tmp_path, "--ocsf-log", "-", stdout=subprocess.PIPE) as proxy:
        assert proxy.process.stdout is not None
        proxy.process.stdout.close()
        ask(proxy, 3)
        wait_until(lambda: any("Broken pipe" in line for line in proxy.lines))
        ask(proxy, 3)
        assert proxy.stop() == 0
    warnings = [line for line in proxy.lines if "warning" in line]
    assert len(warnings) == 2
    assert warnings[0].startswith("pointsman: warning: events cannot be written to standard output: Broken pipe")
    assert re.fullmatch(r"pointsman: warning: \d+ events could not be written to standard output\n", warnings[1])


def test_a_reader_that_sleeps_holds_up_no_request(tmp_path: Path) -> None:
    with proxy_process(LONG_ROUTES, tmp_path, "--ocsf-log", "-", stdout=subprocess.PIPE) as proxy:
        stdout = proxy.process.stdout
        assert stdout is not None
        ask(proxy, 2000, path=LONG_PATH)  # 5 MB of events: 64 KiB in the pipe, 4 MiB in memory, the rest nowhere
        wait_until(lambda: any("taken too slowly" in line for line in proxy.lines))
        read: list[str] = []
        reader = threading.Thread(target=lambda: read.extend(stdout))
        reader.start()
        wait_until(lambda: len(read) > 1000)
        ask(proxy, path=LONG_PATH)
        wait_until(lambda: "events_dropped" in "".join(read[-400:]))
        assert proxy.stop() == 0
        reader.join(10)
        stdout.close()
    losses = [line for line in read if "events_dropped" in line]
    dropped = sum(each["count"] for each in read_events("".join(losses)))
    assert dropped > 0
    assert len(read) - len(losses) + dropped == len(START) + 2 * 2001


def test_a_full_disk_stops_nothing_and_is_counted(tmp_path: Path) -> None:
    with proxy_process(ROUTES, tmp_path, "--ocsf-log", "/dev/full") as proxy:
        ask(proxy, 3)
        assert proxy.stop() == 0
    warnings = [line for line in proxy.lines if "warning" in line]
    assert [line.split(": ", 1)[1] for line in warnings] == [
        "warning: events cannot be written to /dev/full: No space left on device; they are dropped\n",
        "warning: 8 events could not be written to /dev/full\n",
    ]


def test_a_standard_error_that_nobody_reads_holds_up_no_request(tmp_path: Path) -> None:
    log = tmp_path / "events"
    routes = tmp_path / "routes.yaml"
    routes.write_text(ROUTES)
    command = [POINTSMAN, "sandbox", "proxy", "--inference-routes", str(routes), "--listen", "127.0.0.1:0"]
    command += ["--ca-dir", str(tmp_path / "ca"), "--ocsf-log", str(log)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = 0
        while not port:
            match = re.search(r"ready proxy=\S+:(\d+)", process.stderr.readline())
            port = int(match[1]) if match else 0
        for _ in range(600):  # 110 KB of lines into a pipe of 64 KiB
            with RawClient(socket.create_connection(("127.0.0.1", port), 20)) as client:
                client.send(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.answer().status == 403
        wait_until(lambda: log.read_text().count("\n") == 602)
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--ocsf-log", "{}/no/such/e"], "no such file or directory"),
        (["--ocsf-log", "{}"], "is a directory"),
        (["--ocsf-log-size", "65535"], "too small"),
        (["--ocsf-log-size", "64Q"], "is not a size"),
        (["--ocsf-log-keep", "0"], "not in the range"),
        (["--ocsf-log-keep", "1000"], "not in the range"),
    ],
)
def test_what_cannot_be_is_said_before_the_start(tmp_path: Path, options: list[str], text: str) -> None:
    routes = tmp_path / "routes.yaml"
    routes.write_text(ROUTES)
    command = [POINTSMAN, "sandbox", "proxy", "--inference-routes", str(routes), "--listen", "127.0.0.1:0"]
    command += ["--ca-dir", str(tmp_path / "ca"), *(each.format(tmp_path) for each in options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode in (1, 2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
