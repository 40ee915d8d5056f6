"""`make acceptance-agents`: real agents, each doing one task with a tool of its own, inside `pointsman sandbox run`.

Installs them (network needed), runs one after the other against a scripted model, and judges what is on disk, what
reached the upstream and what was denied. Transcripts and events stay in build/acceptance. Exits 0 only if all held.
"""

import contextlib
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.agents import AGENTS, CONTENT, DONE, FILE, Agent
from tests.acceptance.chained import chain
from tests.acceptance.install import ROOT, install
from tests.acceptance.script import decide_in
from tests.support.clients import node
from tests.support.llama_server import model_path
from tests.support.processes import POINTSMAN
from tests.support.scripted_model import Asked, ScriptedModel

OUTPUT = ROOT / "build" / "acceptance"
KEY = "sk-canary-a5c0"
SECONDS = 120.0
_SCRIPTED = """
routes:
  - route: inference.local
    endpoint: {url}
    model: scripted-model
    protocols: [openai_chat_completions, openai_responses, anthropic_messages, model_discovery]
    api_key: {key}
"""
_REAL = "routes:\n  - route: inference.local\n    endpoint: gguf://{path}\n"
_REFUSED_HOST = re.compile(r"CONNECT to '([^']+)'")


@dataclass(frozen=True, slots=True)
class Result:
    """One agent's run."""

    agent: Agent
    version: str
    seconds: float
    requests: str
    denied: Counter[str]
    """Hosts, and paths at the door, with how often they were refused."""
    wrong: tuple[str, ...]


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """A directory that the sandbox's user may write, and nobody else needs to reach."""
    with tempfile.TemporaryDirectory(prefix="pointsman-acceptance-") as name:
        nobody = pwd.getpwnam("nobody")
        os.chown(name, nobody.pw_uid, nobody.pw_gid)
        yield Path(name)


def denied(events: Path) -> Counter[str]:
    """What the event log says was refused."""
    found: Counter[str] = Counter()
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["class_uid"] == 4001 and event.get("action_id") == 2:
            detail = str(event.get("status_detail"))
            host = _REFUSED_HOST.search(detail)
            found[host[1] if host else detail] += 1
    return found


@contextlib.contextmanager
def routes_option(routes: str, events: Path) -> Iterator[list[str]]:
    """What tells the sandbox its routes, while they are there."""
    routes_file = events.with_suffix(".yaml")
    routes_file.write_text(routes)
    routes_file.chmod(0o600)
    try:
        yield ["--inference-routes", str(routes_file)]
    finally:
        routes_file.unlink()


def start(
    agent: Agent, directory: Path, options: list[str], where: Path, events: Path
) -> "subprocess.CompletedProcess[str]":
    """Run the agent in a sandbox; nothing is told to it but its arguments."""
    node_directory = str(Path(node("node24")).parent)
    command = [POINTSMAN, "sandbox", "run", *options, "--ocsf-log", str(events)]
    for shown in (str(directory), node_directory):
        command += ["--expose", shown]
    try:
        return subprocess.run(
            [*command, "--", *agent.argv(directory)],
            cwd=where,
            env={**os.environ, "PATH": f"{node_directory}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace")
        return subprocess.CompletedProcess(agent.argv(directory), -1, f"{text}\n[not finished in {SECONDS} s]", None)


def complaints(where: Path, finished: "subprocess.CompletedProcess[str]", asked: list[Asked]) -> Iterator[str]:
    """What a run against the scripted model did not do as it should."""
    file = where / FILE
    if finished.returncode != 0:
        yield f"exit status {finished.returncode}"
    if not file.exists() or file.read_text().strip() != CONTENT.strip():
        yield f"{FILE} was not written"
    if DONE not in finished.stdout:
        yield "the model's last word is not in the transcript"
    sent = {(each.fields.get("authorization"), each.fields.get("x-api-key")) for each in asked}
    if not sent or sent - {(f"Bearer {KEY}", None), (None, KEY)}:
        yield "another key than the route's reached the upstream"


def scripted(
    agent: Agent, directory: Path, model: ScriptedModel, where: Path, events: Path
) -> "tuple[subprocess.CompletedProcess[str], tuple[str, ...]]":
    """Run it against the scripted model, by itself or as the second of a chain; how it went, and what was wrong."""
    if agent.chained:
        with chain(model, KEY) as made:
            finished = start(agent, directory, made.options, where, events)
            return finished, (*complaints(where, finished, model.calls), *made.complaints(len(model.calls)))
    with routes_option(_SCRIPTED.format(url=model.url, key=KEY), events) as options:
        finished = start(agent, directory, options, where, events)
    return finished, tuple(complaints(where, finished, model.requests))


def attempt(agent: Agent, directory: Path) -> Result:
    """Run one agent and judge it."""
    name = re.sub(r"\W+", "-", agent.name)
    events = OUTPUT / f"{name}.events.jsonl"
    program = directory / agent.program
    version = subprocess.run([str(program), *agent.version], capture_output=True, text=True, check=False, cwd=OUTPUT)
    started = time.monotonic()
    with workspace() as where:
        if agent.real_model:
            with routes_option(_REAL.format(path=model_path()), events) as options:
                finished = start(agent, directory, options, where, events)
            requests = "1 real"
            wrong: tuple[str, ...] = (
                () if finished.returncode == 0 and "infer_completed" in finished.stdout else ("no answer",)
            )
        else:
            with ScriptedModel(decide_in(where)) as model:
                finished, wrong = scripted(agent, directory, model, where, events)
                requests = ", ".join(
                    f"{count} {path.removeprefix('/v1/')}"
                    for path, count in Counter(each.path for each in model.requests).items()
                )
    (OUTPUT / f"{name}.transcript.txt").write_text(finished.stdout)
    number = re.search(r"\d+\.\d+\.\d+|\d+\.\d+", version.stdout)
    seconds = time.monotonic() - started
    return Result(agent, number[0] if number else "?", seconds, requests, denied(events), wrong)


def table(results: list[Result]) -> str:
    """The summary, one line an agent."""
    rows = [("agent", "version", "s", "asked", "denied", "task")]
    for each in results:
        refused = ", ".join(f"{host} ×{count}" for host, count in each.denied.most_common()) or "nothing"
        verdict = "; ".join(each.wrong) or "done"
        rows.append((each.agent.name, each.version, f"{each.seconds:.0f}", each.requests, refused, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main(names: list[str]) -> int:
    """Run the agents named, or all; the exit status."""
    if os.geteuid() != 0:
        sys.exit("acceptance: the sandbox needs root: run it with sudo")
    directory = install()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    results = []
    for agent in AGENTS:
        if not names or agent.name in names:
            print(f"acceptance: running {agent.name}", flush=True)
            results.append(attempt(agent, directory))
    summary = table(results)
    (OUTPUT / "summary.txt").write_text(summary + "\n")
    print(f"{summary}\nacceptance: transcripts and events are in {OUTPUT.relative_to(ROOT)}")
    return 1 if any(each.wrong for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
