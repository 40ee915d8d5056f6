"""An upstream that answers everything and remembers it, for tests of what must not arrive."""

import socket
import threading
from types import TracebackType

from tests.support.door import Door
from tests.support.raw_client import GET_MODELS, Answer, post
from tests.support.upstream import ReceivedRequest, UpstreamPeer

_MARKER = b'{"model":"real-model","marker":1}'


class Recorder:
    """Answers 200 on every connection until it is closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.requests: list[ReceivedRequest] = []
        self._peers: list[UpstreamPeer] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> "Recorder":
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._threads[0].join(10)
        self._listener.close()
        for peer in self._peers:
            peer.shut_down()
        for thread in self._threads[1:]:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            peer = UpstreamPeer(sock)
            self._peers.append(peer)
            thread = threading.Thread(target=self._answer, args=(peer,))
            self._threads.append(thread)
            thread.start()

    def _answer(self, peer: UpstreamPeer) -> None:
        try:
            while True:
                self.requests.append(peer.request())
                peer.respond()
        except (AssertionError, OSError):
            peer.close()


def assert_refused(door: Door, recorder: Recorder, data: bytes, status: int = 400) -> Answer:
    """The bytes get that status and a close, nothing reaches the upstream, and what follows is never read.

    A sound request is glued to the bytes, and sent once more behind the answer. Then one through another tunnel must
    be the only thing that the upstream has seen since.
    """
    seen = len(recorder.requests)
    with door.tunnel() as client:
        client.send(data + GET_MODELS)
        answer = client.answer()
        client.send(GET_MODELS)
        rest = client.read_to_end()
    assert (answer.status, rest, client.how_ended) == (status, b"", "closed")
    assert answer.value(b"connection") == b"close"
    assert_alive(door, recorder, seen)
    return answer


def assert_alive(door: Door, recorder: Recorder, seen: int) -> None:
    """A sound request passes, and is the only one since `seen` were counted."""
    with door.tunnel() as client:
        client.send(post(_MARKER))
        assert client.answer().status == 200
    assert [request.body for request in recorder.requests[seen:]] == [_MARKER]
