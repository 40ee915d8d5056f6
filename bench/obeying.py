"""A process that does what its parent writes, one line of JSON after the other, and answers each in one line."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

Command = Callable[..., Awaitable[object]]
_ANSWER_SECONDS = 120.0
_LINE_BYTES = 1 << 20


async def obey(commands: Mapping[str, Command]) -> None:
    """Until standard input ends. A command's keyword arguments are the line's other members."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(_LINE_BYTES)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            asked = json.loads(line)
            answer = await commands[asked.pop("do")](**asked)
            print(json.dumps(answer), flush=True)
    finally:
        transport.close()


class Obedient:
    """The parent's end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, command: str, **arguments: object) -> Any:
        """Raises RuntimeError when the process has ended, which says why on standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": command, **arguments}).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), _ANSWER_SECONDS)
        if not line:
            raise RuntimeError(f"the process that was to {command} has ended")
        return json.loads(line)


@contextlib.asynccontextmanager
async def obedient(module: str, *arguments: str) -> AsyncIterator[Obedient]:
    """A module of ours, run as a process; it ends when its standard input does."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdin=pipe, stdout=pipe, limit=_LINE_BYTES
    )
    try:
        yield Obedient(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()
