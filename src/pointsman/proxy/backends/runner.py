"""Calls over a runner's line: one exchange on the bus, pulled frame by frame.

One attempt, whatever happens. A request that did not end is cancelled on every way out. Which runner holds which line
is the hub's; nothing here opens a connection.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from pointsman.bus.interface import Bus, BusError, BusUnavailable, NoReply, NoResponder
from pointsman.bus.subjects import LINES, LIVES, runner_subject
from pointsman.core.errors import MalformedRequest, NoCompatibleRoute, UpstreamProtocol
from pointsman.core.limits import Limits, RunnerLimits
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.runner_errors import PROXY_ERROR, UPSTREAM_ERROR, RunnerError
from pointsman.core.runner_model import RunnerModel
from pointsman.proxy.call import Call
from pointsman.proxy.upstream.exchange import READ_ERROR, BodySink
from pointsman.wire.event_lines import EventEnds, is_done
from pointsman.wire.json_model import is_json_like, splice_model
from pointsman.wire.response import ResponseHead
from pointsman.wire.runner_envelope import clock_of_too_late, pack_request
from pointsman.wire.runner_frames import (
    CANCEL,
    NEXT,
    START,
    FrameError,
    ModelRequest,
    ModelResponse,
    read_from_runner,
)

_OFFLINE, _TIMEOUT = "runner_offline", "runner_proxy_timeout"
_GRACE_SECONDS = 2.0
"""Beyond a request's deadline, for the answer that says so."""
_LOOK_SECONDS = 1.0
"""Between two looks at whether anybody still works for a request: a process that died says nothing."""
_CANCEL_SECONDS, _AGAIN_SECONDS = 5.0, 1.0
"""For a cancel to be acted upon, and until it is tried again."""
_MOST_UNHEARD = 10
"""Cancels that nobody takes: a process that has lost the bus too is back by then, or the runner has gone."""
_LEAST_SUCCESS, _MOST_SUCCESS = 200, 299
_ID_BYTES = 16


class _Asked(msgspec.Struct):
    stream: bool | None = None


def body_for_runner(body: bytes, identifier: str, most_keys: int, most_bytes: int) -> tuple[bytes, bool]:
    """What a model of this identifier is sent of a client's body, and whether a stream is asked for.

    Raises MalformedRequest or RunnerError for what is not sent.
    """
    if not is_json_like(body):
        raise MalformedRequest("request body is not a JSON object")
    sent = b"".join(splice_model(body, msgspec.json.encode(identifier), most_keys)).strip(b" \t\r\n")
    if len(sent) > most_bytes:
        raise RunnerError("runner_request_too_large")
    try:
        return sent, msgspec.json.decode(sent, type=_Asked).stream is True
    except msgspec.DecodeError:
        raise MalformedRequest("stream is neither true nor false") from None


class RunnerBackend:
    """`now` tells seconds since the epoch."""

    def __init__(self, bus: Bus, now: Callable[[], float], limits: Limits, runner_limits: RunnerLimits) -> None:
        self.bus = bus
        self.now = now
        self.ahead = 0.0
        """Seconds by which the clock of whoever holds the lines goes ahead of ours, as far as that was ever told."""
        self.limits = runner_limits
        self._json_keys = limits.json_keys
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, call: Call) -> "RunnerAnswer":
        """Start, and wait for the first frame. Raises RouterError."""
        model = call.runner_model
        if model is None:
            raise UpstreamProtocol("a runner's candidate without a runner")
        if call.protocol != InferenceProtocol.CHAT_COMPLETIONS:
            raise NoCompatibleRoute("a runner's model speaks chat completions alone")
        body, streams = body_for_runner(call.body, model.candidate.model, self._json_keys, self.limits.request_bytes)
        answer = RunnerAnswer(self, model, streams=streams)
        if call.hashes is not None:
            call.hashes.send((body,))
        call.is_sent = True
        try:
            await answer.begin(body)
        except BaseException:
            answer.close()
            raise
        return answer

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run what nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class RunnerAnswer:
    """See Response."""

    def __init__(self, backend: RunnerBackend, model: RunnerModel, *, streams: bool) -> None:
        self._backend = backend
        self._model = model
        self._subject = runner_subject(model.account, model.runner_id)
        self._clock = asyncio.get_running_loop().time
        self._id = secrets.token_hex(_ID_BYTES)
        self._streams = streams
        self._until = self._clock() + backend.limits.lifetime_seconds
        self._first = ModelResponse(self._id)
        self._is_live = False
        """Whether the runner may still be at work for it."""
        self._watching: asyncio.Task[None] | None = None
        self._asking: asyncio.Timeout | None = None
        """In force while a frame is waited for."""
        self._asked_at = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_abandoned = False
        kind = b"text/event-stream" if streams else b"application/json"
        self.head = ResponseHead(200, b"OK", [(b"content-type", kind)])

    async def begin(self, body: bytes) -> None:
        """Raises RunnerError for an answer that is none."""
        start = ModelRequest(self._id, START, self._model.model_id, self._model.base_url, msgspec.Raw(body))
        self._is_live = True
        self._watching = self._backend.start(self._watch())
        first = await self._ask(start)
        if first.error:
            raise RunnerError(first.error, first.status)
        if not _LEAST_SUCCESS <= first.status <= _MOST_SUCCESS:
            raise RunnerError(UPSTREAM_ERROR, first.status)
        if self._streams and first.done and first.data.startswith("{"):  # a server that does not stream
            self._streams = False
            self.head = ResponseHead(200, b"OK", [(b"content-type", b"application/json")])
        if not self._streams:
            _check_completion(first.data)
        elif not _is_line(first.data):
            raise RunnerError(PROXY_ERROR)
        self._first = first

    async def _ask(self, request: ModelRequest) -> ModelResponse:
        """One frame. Raises RunnerError when none came."""
        backend = self._backend
        try:
            async with asyncio.timeout(None) as self._asking:
                frame = read_from_runner(await self._reply(request), backend.limits)
        except NoReply:
            raise RunnerError(_TIMEOUT) from None
        except TimeoutError:  # `_watch` has ended it
            raise RunnerError(_OFFLINE) from None
        except NoResponder:
            self._is_live = request.operation != START
            raise RunnerError(_OFFLINE) from None
        except BusError as error:
            self._is_live = isinstance(error, BusUnavailable)
            raise RunnerError(_OFFLINE) from None
        except FrameError:
            raise RunnerError(PROXY_ERROR) from None
        finally:
            self._asking = None
        if not isinstance(frame, ModelResponse) or (frame.request_id != self._id and not frame.error):
            raise RunnerError(PROXY_ERROR)
        if frame.ends:
            self._is_live = False
        return frame

    async def _reply(self, request: ModelRequest) -> bytes:
        """What the bus brings. Raises BusError.

        What was refused as too late, and is not, was judged by another clock; nothing was done, so it is asked again.
        """
        backend = self._backend
        self._asked_at = self._clock()
        until = min(self._asked_at + backend.limits.idle_seconds, self._until)
        while (seconds := until - self._clock()) > 0:
            payload = pack_request(request, backend.now() + backend.ahead + seconds)
            reply = await backend.bus.request(self._subject, payload, seconds + _GRACE_SECONDS)
            clock = clock_of_too_late(reply)
            if clock is None:
                return reply
            backend.ahead = clock - backend.now()
        raise NoReply("its time is over")

    async def _watch(self) -> None:
        """End the waiting for a frame that nobody works for any more.

        Whoever holds the line learns by it that this process lives, also while its client reads slowly.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            asking = self._asking
            if self._clock() - self._asked_at < _LOOK_SECONDS or await self._lives():
                continue
            if asking is not None and asking is self._asking:  # still
                asking.reschedule(self._clock())

    async def _lives(self) -> bool:
        """False when whoever holds the runner's line knows nothing of the request, or nobody holds it."""
        backend = self._backend
        subject = runner_subject(self._model.account, self._model.runner_id, LINES)
        try:
            return bool(await backend.bus.request(subject, f"{LIVES} {self._id}".encode(), _LOOK_SECONDS))
        except NoResponder:
            return False
        except BusError:
            return True  # who knows; a bus that is away is told to whoever waits

    async def relay(self, sink: BodySink) -> str:
        """Each line, and an empty one behind each event. Returns why it was truncated, or an empty string."""
        if not self._streams:
            sink.body(self._first.data.encode(), last=True)
            return ""
        frame, ends = self._first, EventEnds()
        while True:
            if not _is_line(frame.data):
                return PROXY_ERROR
            line = frame.data.encode()
            if is_done(line):
                sink.body(line + b"\n\n", last=True)
                return ""
            if line:
                sink.body(line + ends.after(line), last=False)
            if frame.done:
                return READ_ERROR
            try:
                await self._room()
                frame = await self._ask(ModelRequest(self._id, NEXT))
            except RunnerError as error:
                return error.code
            if frame.error:
                return RunnerError(frame.error).code

    async def _room(self) -> None:
        """Wait for a client that reads slowly. Raises RunnerError when it does not at all."""
        if not self._flowing.is_set():
            try:
                async with asyncio.timeout(self._backend.limits.idle_seconds):
                    await self._flowing.wait()
            except TimeoutError:
                raise RunnerError(_TIMEOUT) from None
        if self._is_abandoned:
            raise RunnerError(PROXY_ERROR)

    def pause(self) -> None:
        """Ask for no further frame."""
        self._flowing.clear()

    def resume(self) -> None:
        """Go on."""
        self._flowing.set()

    def abandon(self) -> None:
        """See Response. What was asked for already is waited for."""
        self._is_abandoned = True
        self._flowing.set()

    def close(self) -> None:
        """Cancel what has not ended."""
        if self._watching is not None:
            self._watching.cancel()
        if self._is_live:
            self._is_live = False
            self._backend.start(self._cancel())

    async def _cancel(self) -> None:
        """Until somebody has acted upon it: a bus that is away would leave a slot taken."""
        backend, unheard = self._backend, 0
        until = self._clock() + 2 * backend.limits.idle_seconds  # by then whoever holds the line has freed the slot
        while self._clock() < until and unheard < _MOST_UNHEARD:
            payload = pack_request(ModelRequest(self._id, CANCEL), backend.now() + backend.limits.idle_seconds)
            try:
                await backend.bus.request(self._subject, payload, _CANCEL_SECONDS)
                return
            except NoResponder:
                unheard += 1
            except BusError:
                unheard = 0
            await asyncio.sleep(_AGAIN_SECONDS)


def _is_line(data: str) -> bool:
    return "\n" not in data and "\r" not in data


def _check_completion(data: str) -> None:
    try:
        msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        raise RunnerError(UPSTREAM_ERROR) from None
