"""A gateway that a test plays: a real gRPC server that answers bundles as it is told to."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NoReturn

import grpc

from pointsman.rpc.gen import inference_pb2
from tests.support.canary import KEY, TOKEN

Message = inference_pb2.GetInferenceBundleResponse
Fault = Callable[[grpc.ServicerContext], None]
"""Called in place of an answer; it aborts the call, or holds it up."""


def resolved(base_url: str, **changes: Any) -> inference_pb2.ResolvedRoute:
    """A route that speaks chat completions."""
    values: dict[str, Any] = {
        "name": "inference.local",
        "base_url": base_url,
        "protocols": ["openai_chat_completions"],
        "api_key": KEY,
        "model_id": "first-model",
        "provider_type": "openai",
    }
    return inference_pb2.ResolvedRoute(**{**values, **changes})


def aborts(code: grpc.StatusCode, details: str = "") -> Fault:
    """A call that ends in a status."""

    def fault(context: grpc.ServicerContext) -> NoReturn:
        context.abort(code, details)

    return fault


def _bundles(answer: Callable[[Any, Any], Message | bytes]) -> grpc.GenericRpcHandler:
    handler = grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=inference_pb2.GetInferenceBundleRequest.FromString,
        response_serializer=lambda given: given if isinstance(given, bytes) else given.SerializeToString(),
    )
    return grpc.method_handlers_generic_handler("openshell.inference.v1.Inference", {"GetInferenceBundle": handler})


class ScriptedGateway:
    """Serves what `bundle` or `fault` say at the time of the call, to whoever has the token, and counts the calls."""

    def __init__(self, *routes: inference_pb2.ResolvedRoute, credentials: grpc.ServerCredentials | None = None) -> None:
        self.bundle: Message | bytes = Message(revision="r0")
        """What is answered; bytes go out as they are."""
        self.fault: Fault | None = None
        self.token = TOKEN
        self.refusal = grpc.StatusCode.UNAUTHENTICATED
        """What another token gets."""
        self.fetches = 0
        self.released = threading.Event()
        """Ends what `hang` holds up."""
        self._revisions = 0
        self._credentials = credentials
        self._changed = threading.Condition()
        self._server: grpc.Server | None = None
        with socket.create_server(("127.0.0.1", 0)) as chosen:
            self.port: int = chosen.getsockname()[1]
        self.serve(*routes)

    @property
    def url(self) -> str:
        if self._credentials is not None:
            return f"https://localhost:{self.port}"
        return f"http://127.0.0.1:{self.port}"

    def serve(self, *routes: inference_pb2.ResolvedRoute) -> None:
        """Answer these from now on, as another revision, and without faults."""
        self._revisions += 1
        self.bundle, self.fault = Message(routes=routes, revision=f"r{self._revisions}"), None

    def hang(self, context: grpc.ServicerContext, seconds: float = 30) -> None:
        """A fault: no answer for so long, or until `released`."""
        self.released.wait(seconds)

    def start(self) -> None:
        """Listen, on the same port every time."""
        server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((_bundles(self.GetInferenceBundle),))
        address = f"127.0.0.1:{self.port}"
        if self._credentials is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, self._credentials)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Listen no more, and cut what is connected."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(None).wait(10)

    def __enter__(self) -> "ScriptedGateway":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.released.set()
        self.stop()

    def GetInferenceBundle(self, request: inference_pb2.GetInferenceBundleRequest, context: Any) -> Message | bytes:
        given = dict(context.invocation_metadata()).get("authorization")
        with self._changed:
            self.fetches += 1
            answer, fault = self.bundle, self.fault
            self._changed.notify_all()
        if fault is not None:
            fault(context)
        if given != f"Bearer {self.token}":
            context.abort(self.refusal, f"no such token: {given}")
        return answer

    def wait_for_fetches(self, more: int = 1, seconds: float = 20) -> None:
        """Until so many more calls have begun: two, for one that began after now to have been answered."""
        with self._changed:
            wanted = self.fetches + more
            assert self._changed.wait_for(lambda: self.fetches >= wanted, seconds), "nobody asks for bundles"
