"""`pointsman.v1.Receipts`: what can be shown of requests."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.gateway.grpc.gate import caller
from pointsman.gateway.receipts import Receipts
from pointsman.rpc.gen import receipts_pb2 as pb
from pointsman.rpc.gen import receipts_pb2_grpc
from pointsman.rpc.gen.hash_chain_pb2 import ChainVerification, VerifyChainRequest
from pointsman.rpc.hash_chain import head_of, kept_head, verification_message
from pointsman.rpc.receipts import receipt_message

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ReceiptsServicer(receipts_pb2_grpc.ReceiptsServicer):
    """Translates; every decision is an operation's."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts

    async def ListReceipts(self, request: pb.ListReceiptsRequest, context: _Context) -> pb.ListReceiptsResponse:
        """A page."""
        account, newest_first = caller().account, request.newest_first
        page = await self._receipts.page(account, request.after, request.limit, newest_first=newest_first)
        return pb.ListReceiptsResponse(receipts=map(receipt_message, page.receipts), next=page.next)

    async def GetReceipt(self, request: pb.GetReceiptRequest, context: _Context) -> pb.Receipt:
        """That of one request."""
        return receipt_message(await self._receipts.get(caller().account, request.request_id.strip()))

    async def VerifyReceipts(self, request: VerifyChainRequest, context: _Context) -> ChainVerification:
        """Whether they are the ones that were written, as far as one call may look."""
        after, head = head_of(request.after), kept_head(request)
        return verification_message(await self._receipts.verify(caller().account, after, head))
