"""The audit record's values to protobuf messages and back."""

from pointsman.core.audit import AuditEntry, AuditQuery
from pointsman.rpc.gen import audit_pb2 as pb


def entry_message(entry: AuditEntry) -> pb.AuditEntry:
    """An entry, as it is stored."""
    return pb.AuditEntry(
        sequence=entry.sequence,
        at=entry.at,
        account=entry.account,
        actor=entry.actor,
        action=entry.action,
        subject=entry.subject,
        before=entry.before,
        after=entry.after,
        previous=entry.previous,
        digest=entry.digest,
    )


def entry_of(message: pb.AuditEntry) -> AuditEntry:
    """The same back."""
    told = (message.account, message.actor, message.action, message.subject, message.before, message.after)
    return AuditEntry(message.sequence, message.at, *told, previous=message.previous, digest=message.digest)


def query_of(request: pb.ListAuditRequest, account: str) -> AuditQuery:
    """What a client asks for."""
    return AuditQuery(
        request.limit,
        after=request.after,
        account="" if request.all_accounts else account,
        actor=request.actor,
        action=request.action,
        subject=request.subject,
        since=request.since,
        newest_first=request.newest_first,
    )
