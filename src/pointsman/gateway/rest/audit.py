"""`/audit` as HTTP, for the admin: pages of the record, and whether it is the one that was written."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel, Field

from pointsman.core.audit import AuditEntry, AuditQuery
from pointsman.core.chain import NO_HEAD
from pointsman.gateway.audit import AuditPage
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.hash_chain import DEFAULT_PAGE
from pointsman.gateway.rest.admission import account_of
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.hash_chain import After, Head, Limit, NewestFirst, Next, VerificationAnswer, read_head
from pointsman.gateway.rest.moments import moment_field, read_moment
from pointsman.gateway.rest.requests import written_exactly

_LONGEST_TEXT = 512
AccountName = Annotated[str, Depends(account_of)]
AllAccounts = Annotated[bool, Field(strict=True, description="Of every account."), written_exactly(bool)]
Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]
Action = Annotated[str, Field(max_length=_LONGEST_TEXT, description="key.revoke, or key for all of its actions.")]
Since = Annotated[str, moment_field("From then on.")]


@dataclass(frozen=True, slots=True)
class _Wanted:
    since: Since | None = None
    actor: Text = ""
    action: Action = ""
    subject: Text = ""
    newest_first: NewestFirst = False
    all_accounts: AllAccounts = False


Wanted = Annotated[_Wanted, Depends()]


class AuditEntryAnswer(BaseModel):
    """One entry. Before and after are JSON in a text, exactly as the digest is over them."""

    sequence: int
    at: float = Field(description="Seconds since the epoch, with all the digits that the digest is over.")
    account: str
    actor: str = Field(description="admin, key:NAME, sandbox:NAME, runner:NAME, file or gateway.")
    action: str
    subject: str
    before: str = Field(description="Empty for what was not there.")
    after: str = Field(description="Empty for what is gone.")
    previous: str = Field(description="The digest of the entry before, in hexadecimal.")
    digest: str

    @classmethod
    def of(cls, entry: AuditEntry) -> "AuditEntryAnswer":
        """An entry, as it is stored."""
        return cls(
            sequence=entry.sequence,
            at=entry.at,
            account=entry.account,
            actor=entry.actor,
            action=entry.action,
            subject=entry.subject,
            before=entry.before,
            after=entry.after,
            previous=entry.previous.hex(),
            digest=entry.digest.hex(),
        )


class AuditPageAnswer(BaseModel):
    """Entries in the order that was asked for."""

    entries: list[AuditEntryAnswer]
    next: Next

    @classmethod
    def of(cls, page: AuditPage) -> "AuditPageAnswer":
        """A page."""
        return cls(entries=[AuditEntryAnswer.of(each) for each in page.entries], next=page.next or None)


class AuditEndpoints:
    """`/audit`."""

    def __init__(self, control: ControlPlane) -> None:
        self._audit = control.audit

    async def list(
        self, account: AccountName, wanted: Wanted, limit: Limit = DEFAULT_PAGE, after: After = 0
    ) -> AuditPageAnswer:
        """Who changed what: one page."""
        query = AuditQuery(
            limit,
            after=after,
            account="" if wanted.all_accounts else account,
            actor=wanted.actor,
            action=wanted.action,
            subject=wanted.subject,
            since=max(0.0, read_moment(wanted.since) or 0.0),
            newest_first=wanted.newest_first,
        )
        return AuditPageAnswer.of(await self._audit.page(query))

    async def verify(self, after: Head = "", head: Head = "") -> VerificationAnswer:
        """Recompute the chain over the whole record, every account's entries; head is one that you have kept."""
        start, kept = read_head("after", after), read_head("head", head)
        return VerificationAnswer.of(await self._audit.verify(start or NO_HEAD, kept))


def add_audit(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths. Like every path that says nothing else they are the admin's."""
    audit = AuditEndpoints(control)
    for path, endpoint, name in (
        (f"{BASE}/audit", audit.list, "list_audit"),
        (f"{BASE}/audit/verify", audit.verify, "verify_audit"),
    ):
        api.router.add_api_route(path, endpoint, methods=["GET"], operation_id=name)
