"""`pointsman.v1.Policies`."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.gateway.control import ControlPlane
from pointsman.gateway.grpc.gate import caller
from pointsman.rpc.gen import policies_pb2 as pb
from pointsman.rpc.gen import policies_pb2_grpc
from pointsman.rpc.policies import policy_message, rules_of

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class PoliciesServicer(policies_pb2_grpc.PoliciesServicer):
    """Translates; every decision is an operation's."""

    def __init__(self, control: ControlPlane) -> None:
        self._policies = control.policies

    async def SetPolicy(self, request: pb.SetPolicyRequest, context: _Context) -> pb.PolicyRecord:
        """A new version, as a dry run."""
        return policy_message(await self._policies.set(caller().account, rules_of(request.rules)))

    async def GetPolicy(self, request: pb.PolicyVersionRequest, context: _Context) -> pb.PolicyRecord:
        """One version."""
        return policy_message(await self._policies.get(caller().account, request.version))

    async def ListPolicies(self, request: pb.ListPoliciesRequest, context: _Context) -> pb.ListPoliciesResponse:
        """All that are kept, without their rules."""
        kept = await self._policies.list(caller().account)
        return pb.ListPoliciesResponse(policies=[policy_message(each, with_rules=False) for each in kept])

    async def EnforcePolicy(self, request: pb.PolicyVersionRequest, context: _Context) -> pb.PolicyRecord:
        """Let a version take effect."""
        return policy_message(await self._policies.enforce(caller().account, request.version))

    async def DryRunPolicy(self, request: pb.PolicyVersionRequest, context: _Context) -> pb.PolicyRecord:
        """Let a version only tell what it would do."""
        return policy_message(await self._policies.dry_run(caller().account, request.version))

    async def RollBackPolicy(self, request: pb.PolicyVersionRequest, context: _Context) -> pb.PolicyRecord:
        """Enforce what was enforced before."""
        return policy_message(await self._policies.rollback(caller().account, request.version))
