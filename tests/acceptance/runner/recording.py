"""What stands before a model's server and writes down all that reaches it.

    python -m tests.acceptance.runner.recording PORT MODELS_PORT FILE

Bytes pass as they come. FILE gets a line of JSON for each request, and one for each connection that has ended, which
says who ended it. Says 'ready' when it listens; ends when its standard input does.
"""

import asyncio
import contextlib
import json
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

_numbers = count(1)


class Recording:
    """One file."""

    def __init__(self, file: Path, models_port: int) -> None:
        self._file = file.open("a", buffering=1)
        self._models_port = models_port

    def _write(self, **record: Any) -> None:
        self._file.write(json.dumps({**record, "at": time.time()}) + "\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, and one of its own to the model's server."""
        number = next(_numbers)
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._models_port)
        asking = asyncio.get_running_loop().create_task(self._ask(number, reader, ours))
        answering = asyncio.get_running_loop().create_task(_pass(theirs, writer))
        done, _ = await asyncio.wait((asking, answering), return_when=asyncio.FIRST_COMPLETED)
        self._write(connection=number, ended_by="client" if asking in done else "model")
        for task in (asking, answering):
            task.cancel()
        await asyncio.gather(asking, answering, return_exceptions=True)
        for side in (writer, ours):
            side.close()

    async def _ask(self, number: int, reader: asyncio.StreamReader, ours: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
                self._write(connection=number, head=head.decode("latin-1"), body=body.decode())
                ours.write(head + body)
                await ours.drain()


async def _pass(theirs: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await theirs.read(65536):
            writer.write(data)
            await writer.drain()


async def record(port: int, models_port: int, file: Path) -> None:
    """Until standard input ends."""
    recording = Recording(file, models_port)
    async with await asyncio.start_server(recording.serve, "127.0.0.1", port, limit=1 << 21):
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(record(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
