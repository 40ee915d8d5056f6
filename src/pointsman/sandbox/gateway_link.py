"""The line to a gateway: asks for the bundle, over a channel that is made anew when it stops working.

Imports grpc, so `sandbox` imports this only where a gateway is used.
"""

import asyncio

import grpc
import grpc.aio

from pointsman.core.limits import Limits
from pointsman.core.received_bundle import ReceivedBundle
from pointsman.rpc.channel import ChannelFileError, call_metadata, open_aio_channel
from pointsman.rpc.connection_cause import connection_cause, plain_details, was_lost, was_not_made
from pointsman.rpc.convert import bundle_from
from pointsman.rpc.gen import inference_pb2, inference_pb2_grpc
from pointsman.rpc.token_file import TokenFileError, read_token
from pointsman.sandbox.route_refresh import FetchFailed
from pointsman.sandbox.route_source import GatewayRoutes

_Answer = inference_pb2.GetInferenceBundleResponse

_REASONS = {
    grpc.StatusCode.UNAVAILABLE: "gateway_unreachable",
    grpc.StatusCode.CANCELLED: "gateway_unreachable",  # a gateway that ends
    grpc.StatusCode.DEADLINE_EXCEEDED: "gateway_timeout",
    grpc.StatusCode.UNAUTHENTICATED: "token_refused",
    grpc.StatusCode.PERMISSION_DENIED: "not_permitted",
}
_NEW_CHANNEL = ("gateway_unreachable", "gateway_timeout")
"""After these a connection may be one that leads nowhere, and certificates on disk may be newer."""
_ANOTHER_TOKEN = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
"""What another token may mend, so the file is read again."""
_TOO_LARGE = "larger than max"
"""How gRPC words that an answer exceeds our own limit; the status alone may also be the gateway's."""
_MOST_TOLD = 60
"""Characters of the gateway's own words where our next step follows instead of its own: an event is cut at 200."""
_NEXT_STEPS = {
    "token_refused": "make another with 'pointsman sandbox token create NAME' and write it into the token file",
    "not_permitted": "use a sandbox's token, from 'pointsman sandbox token create NAME'",
}


class GatewayLink:
    """Fetches bundles. Make it inside a running event loop; close it there."""

    def __init__(self, routes: GatewayRoutes, limits: Limits) -> None:
        """Raises GatewayFileError."""
        self._routes = routes
        self._limits = limits
        self._token = routes.token
        self._inserted = routes.token
        """The token that is in the last bundle, where routes lead through the gateway itself."""
        self._channel: grpc.aio.Channel | None = open_aio_channel(routes.gateway, limits.bundle_bytes)

    async def close(self) -> None:
        """Drop the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def fetch(self, known: str) -> ReceivedBundle | None:
        """The gateway's bundle, or None when its revision is `known` and the token in it is still the one in use.

        Raises FetchFailed, in bounded time.
        """
        try:
            async with asyncio.timeout(self._limits.bundle_fetch_seconds):
                answer = await self._ask_with_the_newest_token()
        except TimeoutError:
            await self.close()
            raise FetchFailed("gateway_timeout", self._told("no answer in time")) from None
        except grpc.aio.AioRpcError as error:
            raise await self._failure(error) from None
        except ChannelFileError as error:
            raise FetchFailed("certificate_unreadable", str(error)) from None
        except TokenFileError as error:
            raise FetchFailed("token_unreadable", str(error)) from None
        if answer is None:
            raise FetchFailed("gateway_error", self._told("its answer is no bundle; is it another version?"))
        if known and answer.revision == known and self._token == self._inserted:
            return None
        most = self._limits.bundle_routes
        if len(answer.routes) > most:
            raise FetchFailed("bundle_too_large", self._told(f"{len(answer.routes)} routes; at most {most} are taken"))
        self._inserted = self._token
        return bundle_from(answer, self._token)

    async def _ask_with_the_newest_token(self) -> _Answer | None:
        try:
            return await self._ask()
        except grpc.aio.AioRpcError as error:
            if error.code() not in _ANOTHER_TOKEN:
                raise
            token = await asyncio.to_thread(read_token, self._routes.token_file)
            if token == self._token:
                raise
        self._token = token
        return await self._ask()

    async def _ask(self) -> _Answer | None:
        """The answer; None, from grpc, for one that cannot be parsed."""
        if self._channel is None:
            self._channel = open_aio_channel(self._routes.gateway, self._limits.bundle_bytes)
        stub = inference_pb2_grpc.InferenceStub(self._channel)
        call = stub.GetInferenceBundle(
            inference_pb2.GetInferenceBundleRequest(),
            metadata=call_metadata(self._token),
            timeout=self._limits.bundle_fetch_seconds,
        )
        answer: _Answer | None = await call
        return answer

    async def _failure(self, error: grpc.aio.AioRpcError) -> FetchFailed:
        text = error.details() or ""
        reason = _REASONS.get(error.code(), "gateway_error")
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in text:
            reason, text = "bundle_too_large", f"over {self._limits.bundle_bytes} bytes"
        if reason in _NEW_CHANNEL:
            await self.close()
        if reason == "gateway_unreachable" and not (was_not_made(text) or was_lost(text)):
            reason = "gateway_error"  # it was reached, and says that its database was not
        if reason in _NEW_CHANNEL:
            text = connection_cause(text, tls=self._routes.gateway.tls) or plain_details(text)
        text = text or error.code().name
        if self._token.appears_in(text):
            text = error.code().name
        next_step = _NEXT_STEPS.get(reason, "")
        if next_step:  # in place of the gateway's, which may be for somebody else
            text = f"{text.partition(';')[0][:_MOST_TOLD]}; {next_step}"
        return FetchFailed(reason, self._told(text))

    def _told(self, text: str) -> str:
        return f"{self._routes.gateway.url}: {text}"
