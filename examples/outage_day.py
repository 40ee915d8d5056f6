"""A day of outages, run through a real gateway, and what its operation log tells of it.

    .venv/bin/python examples/outage_day.py [REQUESTS]

Three providers on loopback, a chain over them with a mock as its last answer, and five phases of REQUESTS (default 40)
each: all is well; the first is over its limit; the second fails, too; all are down; all is well again. Clients get an
answer every time. Then `/stats/history` is read, and a table printed by provider.
"""

import contextlib
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

NAMES = ("alpha", "beta", "gamma")
RETRY_AFTER = 1
"""Seconds that a provider over its limit asks for: the least that a gateway heeds."""
PATIENCE = 30.0
PHASES: tuple[tuple[str, dict[str, int]], ...] = (
    ("all is well", {}),
    ("alpha is over its limit", {"alpha": 429}),
    ("beta fails, too", {"alpha": 429, "beta": 500}),
    ("all are down", {"alpha": 429, "beta": 500, "gamma": 503}),
    ("all is well again", {}),
)
Event = dict[str, Any]


class Upstream(http.server.ThreadingHTTPServer):
    """Answers chat completions as it is told to: 0 well, else with that status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.status = 0
        self.succeeded = 0


class _Connection(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one piece
    server: Upstream

    def handle(self) -> None:
        with contextlib.suppress(ConnectionResetError):  # nobody reads the rest of an error
            super().handle()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Here I am."}}
        answer: Event = {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}
        if self.server.status:
            answer = {"error": {"message": "not today", "code": "down"}}
        else:
            self.server.succeeded += 1
        data = json.dumps(answer).encode()
        self.send_response(self.server.status or 200)
        if self.server.status == 429:
            self.send_header("Retry-After", str(RETRY_AFTER))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *_: object) -> None:
        """Nothing: the gateway tells."""


@contextlib.contextmanager
def upstreams() -> Iterator[dict[str, Upstream]]:
    """They listen."""
    made = {name: Upstream() for name in NAMES}
    threads = [threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.05}) for each in made.values()]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        for each in made.values():
            each.shutdown()
            each.server_close()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def gateway(directory: Path, urls: dict[str, str]) -> Iterator[dict[str, str]]:
    """A gateway with a chain `fast`; the base URL of each of its listeners."""
    providers = [
        {"name": name, "type": "openai_compatible", "base_url": url, "model": f"{name}-small", "api_key": "none"}
        for name, url in urls.items()
    ]
    route = {"name": "fast", "kind": "chain", "fallback": "local", "candidates": [{"provider": name} for name in urls]}
    config = {"providers": [*providers, {"name": "local", "type": "mock", "model": "mock"}], "routes": [route]}
    path = directory / "pointsman.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML, too
    command = [str(Path(sys.executable).with_name("pointsman")), "gateway", "--config", str(path)]
    command += [f"--data-dir={directory}", *(f"--listen-{each}=127.0.0.1:0" for each in ("data", "control", "grpc"))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith("pointsman: ready "):
                told = dict(word.split("=") for word in line.split()[2:])
                rest = threading.Thread(target=process.stderr.read)  # nothing may fill the pipe
                rest.start()
                yield {name: f"http://{address}" for name, address in told.items()}
                break
        else:
            raise RuntimeError(f"the gateway did not start:\n{said}")
    finally:
        process.terminate()
        process.wait(PATIENCE)
    rest.join()
    process.stderr.close()


def ask(data_url: str) -> None:
    """One request; it must be answered."""
    body = json.dumps({"model": "fast", "messages": [{"role": "user", "content": "Are you there?"}]}).encode()
    request = urllib.request.Request(f"{data_url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        answer.read()


def read(control_url: str, path: str, token: str) -> bytes:
    """What the admin sees."""
    request = urllib.request.Request(control_url + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return bytes(answer.read())


def history(control_url: str, token: str, requests: int, days: set[str]) -> list[Event]:
    """The events of these days, once the last of that many requests has been written."""
    deadline = time.monotonic() + PATIENCE
    while True:
        lines = b"".join(read(control_url, f"/stats/history?date={day}", token) for day in sorted(days)).splitlines()
        events: list[Event] = [json.loads(line) for line in lines]
        if sum(each["event"] == "infer_completed" for each in events) >= requests or time.monotonic() > deadline:
            return events
        time.sleep(0.05)


def table(events: list[Event]) -> list[str]:
    """By provider: what it answered, how often in another's place, how it failed, how fast it was, what it cost."""
    rows = [f"{'provider':10} {'requests':>8} {'fallbacks':>9} {'p50 ms':>7} {'tokens':>7}  failures"]
    for name in (*NAMES, "local"):
        answers = [each for each in events if each["event"] == "infer_completed" and each["provider"] == name]
        failures = Counter(
            each["reason"]
            for each in events
            if (each["event"] == "infer_fallback" and each["from_provider"] == name)
            or (each["event"] in ("infer_retried", "rate_limit_hit") and each["provider"] == name)
        )
        fallbacks = sum(each["fallback"] for each in answers)
        latency = median([each["latency_ms"] for each in answers] or [0])
        tokens = sum(each["prompt_tokens"] + each["completion_tokens"] for each in answers)
        told = ", ".join(f"{reason} {count}" for reason, count in sorted(failures.items()))
        rows.append(f"{name:10} {len(answers):8} {fallbacks:9} {latency:7.0f} {tokens:7}  {told}".rstrip())
    return rows


def live_through(made: dict[str, Upstream], data_url: str, each_phase: int) -> int:
    """The day; how many requests it had."""
    count = 0
    for title, statuses in PHASES:
        for name, upstream in made.items():
            upstream.status = statuses.get(name, 0)
        print(f"{title}: {each_phase} requests", flush=True)
        for _ in range(each_phase):
            ask(data_url)
        count += each_phase
    deadline = time.monotonic() + PATIENCE
    before = made["alpha"].succeeded
    while made["alpha"].succeeded == before and time.monotonic() < deadline:
        ask(data_url)  # until alpha's time is over
        count += 1
        time.sleep(0.05)
    return count


def main(each_phase: int) -> None:
    """Run the day and print what is known of it afterwards."""
    with tempfile.TemporaryDirectory() as name, upstreams() as made:
        directory = Path(name)
        urls = {name: f"http://127.0.0.1:{each.server_address[1]}/v1" for name, each in made.items()}
        with gateway(directory, urls) as listeners:
            days = {datetime.now(UTC).date().isoformat()}
            count = live_through(made, listeners["data"], each_phase)
            days.add(datetime.now(UTC).date().isoformat())
            token = (directory / "admin.token").read_text().strip()
            events = history(listeners["control"], token, count, days)
            live = json.loads(read(listeners["control"], "/stats/live", token))["providers"]
        print("\n".join(["", *table(events), ""]))
        counted = {each["provider_name"]: each["daily_count"] for each in live}
        own = {name: each.succeeded for name, each in made.items()}
        print(f"{count} requests, {sum(each['event'] == 'infer_failed' for each in events)} without an answer")
        agree = {name: counted[name] for name in own} == own
        print(f"/stats/live and the providers' own counts {'agree' if agree else f'differ: {counted}, {own}'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
