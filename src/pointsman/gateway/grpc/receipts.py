"""`pointsman.v1.Receipts`: what can be shown of requests."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.control_errors import InvalidRequest
from pointsman.core.receipt import Receipt
from pointsman.gateway.grpc.gate import caller
from pointsman.gateway.receipts import Receipts
from pointsman.rpc.gen import receipts_pb2 as pb
from pointsman.rpc.gen import receipts_pb2_grpc

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

    async def VerifyReceipts(self, request: pb.VerifyReceiptsRequest, context: _Context) -> pb.VerifyReceiptsResponse:
        """Whether they are the ones that were written, as far as one call may look."""
        after = _head(request.after) if request.HasField("after") else NO_HEAD
        head = _head(request.head) if request.HasField("head") else None
        found = await self._receipts.verify(caller().account, after, head)
        return pb.VerifyReceiptsResponse(
            problems=found.problems,
            problem_count=found.problem_count,
            checked=found.checked,
            head=pb.ReceiptHead(sequence=found.head.sequence, digest=found.head.digest),
            complete=found.is_complete,
        )


def _head(message: pb.ReceiptHead) -> ChainHead:
    if message.sequence < 0 or len(message.digest) != len(NO_HEAD.digest):
        raise InvalidRequest("a head has a number and a digest of 32 bytes")
    return ChainHead(message.sequence, message.digest)


def receipt_message(receipt: Receipt) -> pb.Receipt:
    """A receipt."""
    return pb.Receipt(
        sequence=receipt.sequence,
        request_id=receipt.request_id,
        at=receipt.at,
        account=receipt.account,
        route=receipt.route,
        provider=receipt.provider,
        model=receipt.model,
        policy_version=receipt.policy_version,
        attempts=receipt.attempts,
        status=receipt.status,
        received=receipt.received,
        sent=receipt.sent,
        answered=receipt.answered,
        delivered=receipt.delivered,
        previous=receipt.previous,
        digest=receipt.digest,
    )
