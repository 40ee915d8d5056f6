"""The runner as a program: dials its gateway, and dials again, until it is told to end or dialling has no sense."""

import asyncio
import errno
import logging
import random
import signal
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.typing import Subprotocol

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits
from pointsman.proxy.process import until_signalled
from pointsman.runner.allowlist import FILE_NAME, Allowlist
from pointsman.runner.connection import Connection
from pointsman.runner.gateway_address import tls_context, websocket_url
from pointsman.runner.reconnect import Backoff, explained_close, explained_refusal, is_final
from pointsman.runner.state import RunnerState
from pointsman.wire.runner_frames import SUBPROTOCOL

_OPEN_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
_WAITING_FRAMES = 8
_MOST_UNTAKEN = 1024 * 1024
"""Bytes; more than all frames that a runner may owe at once."""
_UNAUTHENTICATED = 401
Say = Callable[[str], None]


class _Socket(ClientConnection):
    """The library's, for a gateway that is not trusted."""

    async def handshake(self, *args: Any, **options: Any) -> None:
        """See the library. An answer that comes before its request fails an assertion of its: a full gateway's does."""
        try:
            await super().handshake(*args, **options)
        except AssertionError:
            self.transport.abort()
            raise ConnectionResetError(errno.ECONNRESET, "it answered before it was asked") from None

    def send_data(self) -> None:
        """See the library. Answers to pings wait for nobody: whoever reads none of them shall fill no memory."""
        super().send_data()
        if self.transport.get_write_buffer_size() > _MOST_UNTAKEN:
            self.transport.abort()


class _Dial(connect):
    """The library's, without its redirects: another place must not be shown the token."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Runner:
    """One runner and its gateway."""

    def __init__(self, state: RunnerState, directory: Path, say: Say, limits: RunnerLimits) -> None:
        """`directory` holds the allowlist. Raises OSError for a file of authorities that cannot be used."""
        self._state = state
        self._say = say
        self._limits = limits
        self._allowlist = Allowlist(directory / FILE_NAME, say)
        self._tls = tls_context(state.gateway)
        self._said = ""

    async def stay_connected(self, rng: random.Random) -> None:
        """Returns when dialling again would be for nothing; what is said then tells why."""
        backoff, clock = Backoff(rng), asyncio.get_running_loop().time
        while True:
            began = clock()
            problem, final = await self._connect_once()
            if problem != self._said:  # a gateway that is away for a night is one line
                self._said = problem
                self._say(problem)
            if final:
                return
            backoff.connected_for(clock() - began)
            await asyncio.sleep(backoff.next_delay())

    async def _connect_once(self) -> tuple[str, bool]:
        """Why it ended, and whether for good."""
        try:
            socket = await self._dialled()
        except InvalidStatus as error:
            status = error.response.status_code
            return explained_refusal(status), status == _UNAUTHENTICATED
        except ssl.SSLCertVerificationError as error:
            return f"{self._where()} is not what it must be: {error.verify_message}; see --gateway-ca", False
        except ssl.SSLError:
            return f"{self._where()} does not speak TLS as it must; is it served as http://?", False
        except TimeoutError:
            return f"{self._where()} did not answer in time; trying again", False
        except OSError as error:
            reason = (error.strerror or "failed").lower()
            return f"cannot reach {self._where()}: {reason}; trying again", False
        except InvalidMessage:
            return f"{self._where()} ended the connection without an answer in HTTP; trying again", False
        except InvalidHandshake:
            return f"{self._where()} does not speak websocket; is it a Pointsman gateway's control listener?", False
        try:
            connection = Connection(socket, self._allowlist.allows, self._limits, served=self._say_ready)
            await connection.serve(self._state.runner_id)
        finally:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await socket.close()
            except TimeoutError:  # a gateway that takes nothing does not take this either
                socket.transport.abort()
        return explained_close(socket.close_code), is_final(socket.close_code)

    def _say_ready(self) -> None:
        self._said = ""
        self._say(f"ready gateway={self._state.gateway.url} runner={self._state.runner_id}")

    def _where(self) -> str:
        return f"the gateway at {self._state.gateway.url}"

    async def _dialled(self) -> ClientConnection:
        options: dict[str, Any] = {"ssl": self._tls} if self._tls is not None else {}
        return await _Dial(
            websocket_url(self._state.gateway, self._state.runner_id),
            additional_headers={"X-Runner-Token": self._state.token.reveal()},
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            create_connection=_Socket,
            user_agent_header="pointsman-runner",
            compression=None,
            proxy=None,
            open_timeout=_OPEN_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            ping_interval=self._limits.heartbeat_seconds,
            ping_timeout=self._limits.silence_seconds - self._limits.heartbeat_seconds,
            max_size=self._limits.start_frame_bytes,
            max_queue=_WAITING_FRAMES,
            logger=_silent(),
            **options,
        )


def _silent() -> logging.Logger:
    """What the library would log holds heads and frames: tokens and prompts."""
    logger = logging.getLogger("pointsman.runner.websocket")
    logger.disabled = True
    return logger


async def run_runner(
    state: RunnerState, directory: Path, say: Say, limits: RunnerLimits = DEFAULT_RUNNER_LIMITS
) -> int:
    """Until SIGINT or SIGTERM, which is 0, or until there is no sense in it, which is 1."""
    runner = Runner(state, directory, say, limits)
    stop, restore = until_signalled(signal.SIGINT, signal.SIGTERM)
    try:
        async with asyncio.TaskGroup() as group:
            working = group.create_task(runner.stay_connected(random.SystemRandom()))
            stopping = group.create_task(stop.wait())
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            stopping.cancel()
        return 0 if stop.is_set() else 1
    finally:
        restore()
