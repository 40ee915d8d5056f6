"""Receipts as messages."""

from pointsman.core.receipt import Receipt
from pointsman.rpc.gen import receipts_pb2 as pb


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
