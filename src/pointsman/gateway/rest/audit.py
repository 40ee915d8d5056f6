"""`/audit` as HTTP, for the admin: pages of the record, and whether it is the one that was written."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel, Field

from pointsman.core.audit import AuditEntry, AuditQuery
from pointsman.core.chain import NO_HEAD, ChainHead, parse_head
from pointsman.core.control_errors import InvalidRequest
from pointsman.gateway.audit import DEFAULT_PAGE, LONGEST_PAGE, AuditPage, Verification
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.rest.admission import account_of
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.requests import MOMENT_SHAPE, written_exactly

_LONGEST_TEXT = 512
AccountName = Annotated[str, Depends(account_of)]
Limit = Annotated[
    int, Field(ge=1, le=LONGEST_PAGE, strict=True, description="Of one page; it may be shorter."), written_exactly(int)
]
After = Annotated[
    int,
    Field(
        ge=0,
        lt=10**11,
        strict=True,
        description="The next of the page before. Only greater numbers, or with newest_first smaller ones.",
    ),
    written_exactly(int),
]
NewestFirst = Annotated[bool, Field(strict=True, description="Against the order of numbers."), written_exactly(bool)]
AllAccounts = Annotated[bool, Field(strict=True, description="Of every account."), written_exactly(bool)]
Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]
Action = Annotated[str, Field(max_length=_LONGEST_TEXT, description="key.revoke, or key for all of its actions.")]
Since = Annotated[
    str,
    Field(
        max_length=64,
        description="A time in ISO 8601, with its offset; earlier ones are left out.",
        json_schema_extra=MOMENT_SHAPE,
    ),
]
Head = Annotated[
    str,
    Field(
        max_length=96,
        description="NUMBER:DIGEST, as a verification tells it.",
        json_schema_extra={"pattern": "^([0-9]{1,18}:[0-9a-f]{64})?$"},
    ),
]


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
    next: int | None = Field(description="What after is for the next page; null: this is the last one.")

    @classmethod
    def of(cls, page: AuditPage) -> "AuditPageAnswer":
        """A page."""
        return cls(entries=[AuditEntryAnswer.of(each) for each in page.entries], next=page.next or None)


class VerificationAnswer(BaseModel):
    """What was found from after on, as far as one request may look."""

    problems: list[str] = Field(description="Of more than 20 the first, in the order of the record.")
    problem_count: int
    checked: int = Field(description="Entries that this request looked at.")
    head: str = Field(description="The last of them, NUMBER:DIGEST: to go on from, or to be kept elsewhere.")
    complete: bool = Field(description="Whether the record ends there; otherwise ask again with it as after.")

    @classmethod
    def of(cls, found: Verification) -> "VerificationAnswer":
        """What was found."""
        return cls(
            problems=list(found.problems),
            problem_count=found.problem_count,
            checked=found.checked,
            head=str(found.head),
            complete=found.is_complete,
        )


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
            since=_moment(wanted.since),
            newest_first=wanted.newest_first,
        )
        return AuditPageAnswer.of(await self._audit.page(query))

    async def verify(self, after: Head = "", head: Head = "") -> VerificationAnswer:
        """Recompute the chain over the whole record, every account's entries; head is one that you have kept."""
        start, kept = _head("after", after), _head("head", head)
        return VerificationAnswer.of(await self._audit.verify(start or NO_HEAD, kept))


def _moment(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("no offset")
        return max(0.0, moment.timestamp())
    except (ValueError, OverflowError):
        raise InvalidRequest("since is a time such as 2031-12-31T18:00:00Z, with its offset") from None


def _head(name: str, text: str) -> ChainHead | None:
    if not text:
        return None
    try:
        return parse_head(text)
    except ValueError:
        raise InvalidRequest(f"{name} is NUMBER:DIGEST, with 64 hexadecimal digits") from None


def add_audit(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths. Like every path that says nothing else they are the admin's."""
    audit = AuditEndpoints(control)
    for path, endpoint, name in (
        (f"{BASE}/audit", audit.list, "list_audit"),
        (f"{BASE}/audit/verify", audit.verify, "verify_audit"),
    ):
        api.router.add_api_route(path, endpoint, methods=["GET"], operation_id=name)
