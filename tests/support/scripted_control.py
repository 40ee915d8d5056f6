"""A gRPC server that answers as a test tells it to, for what no real gateway would do."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pointsman.rpc.gen import control_pb2, inference_pb2, openshell_pb2

Answer = Callable[[Any], Message]


class Refusal(Exception):
    """Raised by an answer: the call ends with this status."""

    def __init__(self, code: grpc.StatusCode, text: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class ScriptedControl(grpc.GenericRpcHandler):
    """Answers by method name; what has no answer is UNIMPLEMENTED. Remembers what came."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers
        self.port = 0
        self.requests: list[tuple[str, Message]] = []
        self.metadata: list[dict[str, str]] = []
        files = (control_pb2.DESCRIPTOR, inference_pb2.DESCRIPTOR, openshell_pb2.DESCRIPTOR)
        self._methods = {
            f"/{service.full_name}/{method.name}": method
            for file in files
            for service in file.services_by_name.values()
            for method in service.methods
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        method = self._methods.get(handler_call_details.method)
        answer = self._answers.get(method.name) if method else None
        if method is None or answer is None:
            return None

        def behaviour(request: Message, context: grpc.ServicerContext) -> Message:
            self.requests.append((method.name, request))
            self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
            try:
                return answer(request)
            except Refusal as refusal:
                context.abort(refusal.code, refusal.text)

        return grpc.unary_unary_rpc_method_handler(
            behaviour,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )


@contextlib.contextmanager
def scripted_control(
    answers: Mapping[str, Answer], credentials: grpc.ServerCredentials | None = None
) -> Iterator[ScriptedControl]:
    """Serve on loopback until the block ends."""
    gateway = ScriptedControl(answers)
    server = grpc.server(ThreadPoolExecutor(4), handlers=[gateway])
    if credentials is None:
        gateway.port = server.add_insecure_port("127.0.0.1:0")
    else:
        gateway.port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield gateway
    finally:
        server.stop(0).wait(10)
