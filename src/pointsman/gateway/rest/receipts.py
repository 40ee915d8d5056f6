"""`/receipts` as HTTP: what is answered. For the admin alone."""

from typing import Annotated

from fastapi import Depends, FastAPI, Path
from pydantic import BaseModel, Field

from pointsman.core.chain import NO_HEAD
from pointsman.core.receipt import Receipt
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.hash_chain import DEFAULT_PAGE
from pointsman.gateway.rest.admission import account_of
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.hash_chain import After, Head, Limit, NewestFirst, Next, VerificationAnswer, read_head

AccountName = Annotated[str, Depends(account_of)]
RequestId = Annotated[str, Path(min_length=1, max_length=64, pattern="^[0-9a-f-]+$")]


class ReceiptAnswer(BaseModel):
    """A receipt. Hashes are SHA-256 of bodies, in hexadecimal; empty where there was no body to hash."""

    sequence: int
    request_id: str
    at: float = Field(description="When the request ended, in seconds since the epoch.")
    route: str
    provider: str = Field(description="Whose answer it was; empty when nobody answered.")
    model: str
    policy_version: int = Field(description="0: none.")
    attempts: int
    status: int = Field(description="0: the client left before there was one.")
    received: str = Field(description="Of what the client sent.")
    sent: str = Field(description="Of what went to the upstream whose answer it is.")
    answered: str = Field(description="Of what came back, as far as it came.")
    delivered: str = Field(description="Of what the client was handed.")
    previous: str = Field(description="The digest of the receipt before.")
    digest: str = Field(description="Of this receipt, with a key of the gateway's.")

    @classmethod
    def of(cls, receipt: Receipt) -> "ReceiptAnswer":
        """A receipt as it is shown."""
        return cls(
            sequence=receipt.sequence,
            request_id=receipt.request_id,
            at=receipt.at,
            route=receipt.route,
            provider=receipt.provider,
            model=receipt.model,
            policy_version=receipt.policy_version,
            attempts=receipt.attempts,
            status=receipt.status,
            received=receipt.received.hex(),
            sent=receipt.sent.hex(),
            answered=receipt.answered.hex(),
            delivered=receipt.delivered.hex(),
            previous=receipt.previous.hex(),
            digest=receipt.digest.hex(),
        )


class ReceiptList(BaseModel):
    """A page of receipts."""

    receipts: list[ReceiptAnswer]
    next: Next


class ReceiptEndpoints:
    """`/receipts`."""

    def __init__(self, control: ControlPlane) -> None:
        self._receipts = control.receipts

    async def list(
        self, account: AccountName, after: After = 0, limit: Limit = DEFAULT_PAGE, newest_first: NewestFirst = False
    ) -> ReceiptList:
        """Receipts in order of their numbers."""
        page = await self._receipts.page(account, after, limit, newest_first=newest_first)
        return ReceiptList(receipts=[ReceiptAnswer.of(each) for each in page.receipts], next=page.next or None)

    async def get(self, account: AccountName, request_id: RequestId) -> ReceiptAnswer:
        """That of one request."""
        return ReceiptAnswer.of(await self._receipts.get(account, request_id))

    async def verify(self, account: AccountName, after: Head = "", head: Head = "") -> VerificationAnswer:
        """Whether they are the ones that were written; `head` is one that you kept."""
        start, kept = read_head("after", after), read_head("head", head)
        return VerificationAnswer.of(await self._receipts.verify(account, start or NO_HEAD, kept))


def add_receipts(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths."""
    receipts = ReceiptEndpoints(control)
    for path, endpoint, name in (
        ("/receipts", receipts.list, "list_receipts"),
        ("/receipts/{request_id}", receipts.get, "get_receipt"),
        ("/receipt-verification", receipts.verify, "verify_receipts"),
    ):
        api.router.add_api_route(f"{BASE}{path}", endpoint, methods=["GET"], operation_id=name)
