"""A router of one's own that follows a gateway, on either event loop, beside gRPC of one's own."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import uvloop

import pointsman
from pointsman.rpc.channel import call_metadata, open_aio_channel
from pointsman.rpc.gen import inference_pb2, inference_pb2_grpc
from tests.support.canary import TOKEN
from tests.support.follower import token_file
from tests.support.scripted_gateway import ScriptedGateway, resolved

CHAT: tuple[Any, ...] = ("openai_chat_completions", "POST", "/v1/chat/completions", [], b'{"messages":[]}')


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_system_call_uses_the_routes_of_the_gateway_and_follows_them(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    path = str(token_file(tmp_path, TOKEN))

    async def main(gateway: ScriptedGateway) -> None:
        routes = pointsman.gateway_routes(pointsman.read_gateway_address(gateway.url), path, 0.1)
        async with pointsman.open_gateway_router(routes) as router:
            assert json.loads((await router.system_inference(*CHAT)).body)["model"] == "one"
            gateway.serve(resolved("mock://a", name="sandbox-system", model_id="two"))
            async with asyncio.timeout(20):
                while json.loads((await router.system_inference(*CHAT)).body)["model"] != "two":
                    await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with (
        ScriptedGateway(resolved("mock://a", name="sandbox-system", model_id="one")) as gateway,
        asyncio.Runner(loop_factory=loop) as runner,
    ):
        runner.run(main(gateway))


def test_a_grpc_server_may_run_on_the_same_loop(tmp_path: Path) -> None:
    class Upper(inference_pb2_grpc.InferenceServicer):
        async def GetInferenceBundle(self, request: Any, context: Any) -> Any:
            return inference_pb2.GetInferenceBundleResponse(
                routes=[resolved("mock://a", name="sandbox-system")], revision="r1"
            )

        async def SetClusterInference(self, request: Any, context: Any) -> Any:
            raise NotImplementedError

        GetClusterInference = SetClusterInference

    async def main() -> None:
        server = grpc.aio.server()
        inference_pb2_grpc.add_InferenceServicer_to_server(Upper(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        address = pointsman.read_gateway_address(f"127.0.0.1:{port}")
        routes = pointsman.gateway_routes(address, str(token_file(tmp_path, TOKEN)))
        async with pointsman.open_gateway_router(routes) as router, open_aio_channel(address) as channel:
            assert (await router.system_inference(*CHAT)).status == 200
            stub = inference_pb2_grpc.InferenceStub(channel)
            request = inference_pb2.GetInferenceBundleRequest()
            answer = await stub.GetInferenceBundle(request, metadata=call_metadata(routes.token, "an-account"))
            assert answer.revision == "r1"
        await server.stop(None)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_token_file_that_cannot_be_used_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(pointsman.GatewayFileError):
        pointsman.gateway_routes(pointsman.read_gateway_address("127.0.0.1:1"), str(tmp_path / "none"))
