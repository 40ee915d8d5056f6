"""A grpc.aio server that answers every call with the bytes it was given (hexadecimal), and does nothing else."""

import sys
from typing import Any

import grpc.aio
import uvloop


class _Same(grpc.GenericRpcHandler):
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The one handler."""

        async def answer(request: bytes, context: Any) -> bytes:
            return self._answer

        return grpc.unary_unary_rpc_method_handler(answer)


async def serve(answer: bytes) -> None:
    """Until it is ended."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_Same(answer),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"grpc=127.0.0.1:{port}", file=sys.stderr, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(bytes.fromhex(sys.argv[1])))
