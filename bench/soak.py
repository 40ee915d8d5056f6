"""100,000 randomised exchanges through the proxy, every byte compared (`make soak`).

Half go through the tunnel, half over the plain listener. Some clients leave in the middle. Every answer carries the
nonce of its request, so an answer that reached another request would be seen; every cut must be visible.
"""

import argparse
import asyncio
import json
import os
import random
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import uvloop

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.exchanges import Exchange, UpstreamServer, exchange

_ERROR = b'data: {"error":{"message":"response truncated: '
_LONGEST_WAIT = 30.0


class WrongBytes(AssertionError):
    """A client received something that its upstream did not send."""


def judge(answer: Exchange, status: int, nonce: str, body: bytes, *, complete: bool) -> str:
    """What became of one exchange. Raises WrongBytes when it is not what it must be."""
    if answer.cut == "before-head":
        if status == 502 and complete:
            return "502"
        raise WrongBytes(f"{answer.nonce}: status {status} for an upstream that died before its head")
    if status == 502 and answer.cut == "reset" and not nonce:
        return "502"  # the reset overtook the head
    if (status, nonce) != (answer.status, answer.nonce):
        raise WrongBytes(f"{answer.nonce}: got status {status} of {nonce!r}")
    if answer.cut == "none":
        if complete and body == answer.body:
            return "whole"
        raise WrongBytes(f"{answer.nonce}: {len(body)} of {len(answer.body)} bytes, complete={complete}")
    if answer.form != "events":
        if not complete and answer.body.startswith(body):
            return "cut seen"
        raise WrongBytes(f"{answer.nonce}: a cut {answer.form} body looked complete or was altered")
    events, mark, _ = body.partition(_ERROR)
    if complete and mark and answer.body.startswith(events) and (not events or events.endswith(b"\n\n")):
        return "error event"
    raise WrongBytes(f"{answer.nonce}: a cut stream did not end in one error event: {body[-200:]!r}")


class Client:
    """One keep-alive client."""

    def __init__(self, port: int, context: ssl.SSLContext | None, rng: random.Random) -> None:
        self._port, self._context, self._rng = port, context, rng
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        if self._context is not None:
            writer.write(b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(self._context, server_hostname="inference.local")
        return reader, writer

    async def one(self, nonce: str) -> str:
        """One exchange, judged."""
        answer = exchange(nonce)
        if self._streams is None:
            self._streams = await self._connect()
        reader, writer = self._streams
        body = json.dumps({"nonce": nonce, "model": self._rng.choice(["x", None, {"model": 1}])}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: inference.local\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        if self._rng.random() < 0.03:
            await asyncio.sleep(self._rng.random() * 0.01)
            self.drop()
            return "client left"
        status, received, data, complete, keep = await self._response(reader)
        if not keep:
            self.drop()
        return judge(answer, status, received, data, complete=complete)

    async def _response(self, reader: asyncio.StreamReader) -> tuple[int, str, bytes, bool, bool]:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        status, nonce = int(lines[0].split()[1]), fields.get("x-nonce", "")
        keep = fields.get("connection") != "close"
        if "content-length" in fields:
            return status, nonce, await reader.readexactly(int(fields["content-length"])), True, keep
        data = b""
        try:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                data += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError) as error:
            # What had arrived of an unfinished chunk belongs to the body as well; it is not needed to judge a prefix.
            del error
            return status, nonce, data, False, False
        return status, nonce, data, True, keep

    def drop(self) -> None:
        """Leave."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def soak(total: int, seed: int, clients: int) -> Counter[str]:
    """Run it; the outcomes by kind."""
    upstream = UpstreamServer()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    numbers = iter(range(total))
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory, Proxies(Path(directory), port) as proxies:

        async def work(index: int) -> None:
            rng = random.Random(f"{seed}-{index}")
            client = Client(proxies.ports[index % 2], proxies.context if index % 2 else None, rng)
            for number in numbers:
                try:
                    async with asyncio.timeout(_LONGEST_WAIT):
                        outcomes[await client.one(f"{seed}-{number}")] += 1
                except TimeoutError:
                    raise WrongBytes(f"{seed}-{number}: no end within {_LONGEST_WAIT:.0f} s") from None
                if number % 10_000 == 9_999:
                    print(f"soak: {number + 1:,} exchanges, {dict(outcomes)}", file=sys.stderr, flush=True)
            client.drop()

        async with asyncio.TaskGroup() as group:
            for index in range(clients):
                group.create_task(work(index))
    await asyncio.sleep(0.2)  # the upstream's connections notice that the proxies have gone
    repeated = [nonce for nonce, count in upstream.answered.items() if count > 1]
    outcomes["sent twice"] = len(repeated)
    server.close()
    return outcomes


class Proxies:
    """The proxy twice, as processes: plain and tunnel."""

    def __init__(self, directory: Path, upstream_port: int) -> None:
        self._directory = directory
        routes = directory / "routes.yaml"
        routes.write_text(
            f"routes: [{{endpoint: 'http://127.0.0.1:{upstream_port}/v1', model: soak-model, api_key: soak,"
            " protocols: [openai_chat_completions]}]\n"
        )
        routes.chmod(0o600)
        listen = ["--inference-routes", str(routes), "--listen", "127.0.0.1:0"]
        plain = Path(__file__).with_name("plain_listener.py")
        tunnel = Path(sys.executable).with_name("pointsman")
        self._commands = [
            [sys.executable, str(plain), *listen],
            [str(tunnel), "sandbox", "proxy", *listen, "--ca-dir", str(directory / "ca")],
        ]

    def __enter__(self) -> "Proxies":
        self._logs = [open(self._directory / f"log{n}", "w+") for n in range(2)]  # noqa: SIM115  # closed in __exit__
        self._processes = [
            subprocess.Popen(command, stderr=log) for command, log in zip(self._commands, self._logs, strict=True)
        ]
        self.ports = [self._wait_ready(n) for n in range(2)]
        self.context = ssl.create_default_context(cafile=str(self._directory / "ca" / "pointsman-ca.pem"))
        return self

    def _wait_ready(self, number: int) -> int:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            text = (self._directory / f"log{number}").read_text()
            if "ready proxy=" in text:
                return int(text.split("ready proxy=")[1].split()[0].rpartition(":")[2])
            time.sleep(0.05)
        raise RuntimeError("the proxy did not start")

    def __exit__(self, *_: object) -> None:
        for process, log in zip(self._processes, self._logs, strict=True):
            process.terminate()
            process.wait(10)
            log.close()
        for number in range(2):
            text = (self._directory / f"log{number}").read_text()
            if "internal error" in text or "Traceback" in text:
                raise WrongBytes(text[-3000:])


def main() -> int:
    """Print the outcomes; 1 when a byte was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--exchanges", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    options = parser.parse_args()
    started = time.monotonic()
    print(f"soak: {options.exchanges:,} exchanges, seed {options.seed}", file=sys.stderr)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            outcomes = runner.run(soak(options.exchanges, options.seed, options.clients))
        except (WrongBytes, ExceptionGroup) as error:
            first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            print(f"soak: WRONG, seed {options.seed}: {first!r}", file=sys.stderr)
            return 1
    print(f"soak: all right in {time.monotonic() - started:.0f} s, seed {options.seed}: {dict(outcomes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
