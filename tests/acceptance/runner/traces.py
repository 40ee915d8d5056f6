"""What must not be found once all is done: a request sent twice or elsewhere, a prompt or a key where none belongs."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.acceptance.runner.asking import new_nonce
from tests.acceptance.runner.transcript import Tell
from tests.acceptance.runner.world import Step, World
from tests.support import canary

_LOST = 3
"""Requests of the worker that is killed: the one under way, and what it did in half a second before."""
_LEAST_ERROR = 400
_NONCE = re.compile(re.escape(canary.PROMPT) + r"-\d+")


def _reached(made: World) -> Counter[str]:
    """How often each nonce came to a model's server, on all machines together."""
    found: Counter[str] = Counter()
    for host in made.hosts:
        for record in host.records():
            found.update(set(_NONCE.findall(record.get("body", ""))))
    return found


def sent_once(made: World, tell: Tell) -> None:
    """Every nonce at most once."""
    found = _reached(made)
    twice = [nonce for nonce, count in found.items() if count > 1]
    assert not twice, f"sent again: {twice}"
    sent = [nonce for nonce in made.refused if nonce in found]
    assert not sent, f"refused, and sent all the same: {sent}"
    assert all(found[nonce] == 1 for nonce in made.broken)
    tell(f"{len(found)} requests reached llama.cpp, each once, {len(made.broken)} that were cut short among them")
    tell(f"none of the {len(made.refused)} that were refused did")


def nowhere_else(made: World, tell: Tell) -> None:
    """The listeners would have seen it: one request is sent to the other provider in the end."""
    assert (made.loopback.connections, made.loopback.received) == (0, b"")
    tell(f"127.0.0.1:{made.loopback.port} of the gateway's machine: not one connection")
    assert (made.provider.connections, made.provider.received) == (0, b"")
    tell("the other provider, which is also where unknown names lead: not one connection")
    nonce = new_nonce()
    tell(f"a request for it: {made.clients[0].refused('elsewhere', nonce=nonce)}, and it arrived there")
    assert nonce.encode() in made.provider.received


def _files(made: World) -> Iterator[Path]:
    recorded = {host.recorded for host in made.hosts}
    for top in (made.directory, made.server.directory):
        yield from (each for each in top.rglob("*") if each.is_file() and each not in recorded)


def no_canaries(made: World, tell: Tell) -> None:
    """In what all processes said, and in every file that they wrote, those of the database among them."""
    asyncio.run(made.server.execute("CHECKPOINT"))
    said = {program.name: "".join(program.lines) for program in made.programs()}
    for name, text in said.items():
        for what, value in (("prompt", canary.PROMPT), *(("key", each) for each in made.secrets)):
            assert value not in text, f"{name} said a {what}"
    prompt, keys = canary.PROMPT.encode(), [each.encode() for each in made.secrets]
    given = made.given()
    count, size = 0, 0
    for path in _files(made):
        data = path.read_bytes()
        count, size = count + 1, size + len(data)
        assert prompt not in data, f"a prompt is in {path.name}"
        assert path in given or not any(each in data for each in keys), f"a key is in {path.name}"
    assert all(prompt in host.recorded.read_bytes() for host in made.hosts), "the search finds nothing"
    tell(f"{sum(map(len, said.values())):,} characters said by {len(said)} processes, {count} files of {size:,} bytes")
    for name, text in said.items():
        assert "Traceback" not in text, f"{name}: {text[text.index('Traceback') :][:2000]}"
        assert "internal error" not in text, name


def used(made: World, tell: Tell) -> None:
    """A row for each request, whatever became of it; a worker that is killed takes its last ones with it."""

    async def read() -> Counter[int]:
        connection = await made.server.connect(made.database)
        try:
            rows = await connection.fetch("SELECT status FROM usage WHERE provider <> 'elsewhere'")
        finally:
            await connection.close()
        return Counter(row["status"] for row in rows)

    found = asyncio.run(read())
    begun = sum(count for status, count in found.items() if status < _LEAST_ERROR)
    refused = found.total() - begun
    reached = len(_reached(made))
    assert reached - _LOST <= begun <= reached, f"{reached} requests reached llama.cpp, and {begun} are rows"
    assert refused >= len(made.refused), f"{len(made.refused)} were refused, and {refused} are rows"
    tell(", ".join(f"{count} of status {status}" for status, count in sorted(found.items())))


STEPS: tuple[tuple[str, Step], ...] = (
    ("nothing was sent again", sent_once),
    ("nothing was sent elsewhere", nowhere_else),
    ("the usage of every request is in the database", used),
    ("no prompt and no key in any log, file or table", no_canaries),
)
