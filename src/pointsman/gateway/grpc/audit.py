"""`pointsman.v1.Audit`."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.gateway.control import ControlPlane
from pointsman.gateway.grpc.gate import caller
from pointsman.rpc.audit import entry_message, query_of
from pointsman.rpc.gen import audit_pb2 as pb
from pointsman.rpc.gen import audit_pb2_grpc
from pointsman.rpc.gen.hash_chain_pb2 import ChainVerification, VerifyChainRequest
from pointsman.rpc.hash_chain import head_of, kept_head, verification_message

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class AuditServicer(audit_pb2_grpc.AuditServicer):
    """Translates; every decision is an operation's."""

    def __init__(self, control: ControlPlane) -> None:
        self._audit = control.audit

    async def ListAudit(self, request: pb.ListAuditRequest, context: _Context) -> pb.ListAuditResponse:
        """One page of entries."""
        page = await self._audit.page(query_of(request, caller().account))
        return pb.ListAuditResponse(entries=map(entry_message, page.entries), next=page.next)

    async def VerifyAudit(self, request: VerifyChainRequest, context: _Context) -> ChainVerification:
        """Whether the record is the one that was written."""
        return verification_message(await self._audit.verify(head_of(request.after), kept_head(request)))
