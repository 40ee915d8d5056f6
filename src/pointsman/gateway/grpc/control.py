"""`pointsman.v1.Control`: what our own commands need beyond OpenShell's services."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.gateway.control import ControlPlane
from pointsman.gateway.grpc.gate import caller
from pointsman.gateway.keys import KeyDraft
from pointsman.gateway.route_rules import context_of
from pointsman.gateway.routes import RouteChange, RouteEdit, RouteTarget
from pointsman.rpc.convert import (
    account_message,
    endpoint_messages,
    key_message,
    route_candidates,
    route_message,
    token_message,
)
from pointsman.rpc.explained import explanation_message, question
from pointsman.rpc.gen import control_pb2 as pb
from pointsman.rpc.gen import control_pb2_grpc

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ControlServicer(control_pb2_grpc.ControlServicer):
    """Translates; every decision is an operation's."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def SetRoute(self, request: pb.SetRouteRequest, context: _Context) -> pb.RouteChange:
        """Create a route or point it elsewhere."""
        target = RouteTarget(
            request.name.strip(),
            request.provider_name,
            request.model,
            request.timeout_secs,
            is_new=request.create_only,
            candidates=route_candidates(request.candidates),
            strategy=request.strategy,
            fallback=request.fallback,
            request_timeout_seconds=request.request_timeout_secs,
            target=request.target.strip(),
            via_gateway=request.via_gateway,
            context=context_of(request.context),
        )
        return _change(await self._control.routes.set(caller().account, target, verify=not request.no_verify))

    async def UpdateRoute(self, request: pb.UpdateRouteRequest, context: _Context) -> pb.RouteChange:
        """Change what is given, in one step."""
        edit = RouteEdit(
            provider_name=request.provider_name if request.HasField("provider_name") else None,
            model=request.model if request.HasField("model") else None,
            timeout_seconds=request.timeout_secs if request.HasField("timeout_secs") else None,
            candidates=route_candidates(request.candidates) or None,
            strategy=request.strategy if request.HasField("strategy") else None,
            fallback=request.fallback if request.HasField("fallback") else None,
            request_timeout_seconds=(
                request.request_timeout_secs if request.HasField("request_timeout_secs") else None
            ),
            via_gateway=request.via_gateway if request.HasField("via_gateway") else None,
            context=context_of(request.context) if request.HasField("context") else None,
        )
        name = request.name.strip()
        return _change(await self._control.routes.update(caller().account, name, edit, verify=not request.no_verify))

    async def GetRoute(self, request: pb.GetRouteRequest, context: _Context) -> pb.Route:
        """One route, and why it cannot be used, if so."""
        account = caller().account
        route = await self._control.routes.get(account, request.name.strip())
        return route_message(route, await self._control.routes.problem(account, route))

    async def ListRoutes(self, request: pb.ListRoutesRequest, context: _Context) -> pb.ListRoutesResponse:
        """All routes of the account."""
        account = caller().account
        routes = await self._control.routes.list(account)
        problems = await self._control.routes.problems(account, routes)
        return pb.ListRoutesResponse(routes=list(map(route_message, routes, problems)))

    async def DeleteRoute(self, request: pb.DeleteRouteRequest, context: _Context) -> pb.DeleteRouteResponse:
        """Delete a route."""
        return pb.DeleteRouteResponse(deleted=await self._control.routes.delete(caller().account, request.name.strip()))

    async def DeleteProvider(self, request: pb.DeleteProviderRequest, context: _Context) -> pb.DeleteProviderResponse:
        """Delete a provider; refused while routes use it, unless forced."""
        deletion = await self._control.providers.delete(caller().account, request.name.strip(), force=request.force)
        return pb.DeleteProviderResponse(deleted=deletion.deleted, broken_routes=deletion.broken_routes)

    async def CreateSandboxToken(
        self, request: pb.CreateSandboxTokenRequest, context: _Context
    ) -> pb.CreateSandboxTokenResponse:
        """A new token; this answer is its only sight."""
        token, secret = await self._control.sandbox_tokens.create(
            caller().account, request.name.strip(), request.route.strip(), request.lifetime_secs or None
        )
        return pb.CreateSandboxTokenResponse(sandbox_token=token_message(token), token=secret.reveal())

    async def ListSandboxTokens(
        self, request: pb.ListSandboxTokensRequest, context: _Context
    ) -> pb.ListSandboxTokensResponse:
        """All of them, without what would let anyone use them."""
        tokens = await self._control.sandbox_tokens.list(caller().account)
        return pb.ListSandboxTokensResponse(sandbox_tokens=map(token_message, tokens))

    async def RevokeSandboxToken(
        self, request: pb.RevokeSandboxTokenRequest, context: _Context
    ) -> pb.RevokeSandboxTokenResponse:
        """From now on it entitles to nothing."""
        revoked = await self._control.sandbox_tokens.revoke(caller().account, request.name.strip())
        return pb.RevokeSandboxTokenResponse(revoked=revoked)

    async def CreateKey(self, request: pb.CreateKeyRequest, context: _Context) -> pb.CreateKeyResponse:
        """A new key of the data listener; this answer is its only sight."""
        draft = KeyDraft(
            request.name.strip(),
            tuple(request.permissions),
            tuple(request.routes),
            request.lifetime_secs or None,
            tuple(request.networks),
            request.user.strip(),
        )
        key, secret = await self._control.keys.create(caller().account, draft)
        return pb.CreateKeyResponse(key=key_message(key), secret=secret.reveal())

    async def ListKeys(self, request: pb.ListKeysRequest, context: _Context) -> pb.ListKeysResponse:
        """All of them, without what would let anyone use them."""
        return pb.ListKeysResponse(keys=map(key_message, await self._control.keys.list(caller().account)))

    async def RevokeKey(self, request: pb.RevokeKeyRequest, context: _Context) -> pb.RevokeKeyResponse:
        """From now on it opens nothing."""
        return pb.RevokeKeyResponse(revoked=await self._control.keys.revoke(caller().account, request.name.strip()))

    async def CreateAccount(self, request: pb.CreateAccountRequest, context: _Context) -> pb.Account:
        """A new owner of records."""
        return account_message(await self._control.accounts.create(request.name.strip()))

    async def ListAccounts(self, request: pb.ListAccountsRequest, context: _Context) -> pb.ListAccountsResponse:
        """All accounts."""
        return pb.ListAccountsResponse(accounts=map(account_message, await self._control.accounts.list()))

    async def HaltAccount(self, request: pb.HaltAccountRequest, context: _Context) -> pb.Account:
        """Nothing is served for it from now on."""
        return account_message(await self._control.accounts.halt(request.name.strip()))

    async def ResumeAccount(self, request: pb.ResumeAccountRequest, context: _Context) -> pb.Account:
        """It is served again."""
        return account_message(await self._control.accounts.resume(request.name.strip()))

    async def Explain(self, request: pb.ExplainRequest, context: _Context) -> pb.Explanation:
        """What would become of a request."""
        return explanation_message(await self._control.explain.explain(caller().account, question(request)))

    async def GetStatus(self, request: pb.GetStatusRequest, context: _Context) -> pb.GetStatusResponse:
        """What an operator asks first."""
        status = await self._control.status(caller().account)
        return pb.GetStatusResponse(
            version=status.version,
            store=status.store,
            providers=status.providers,
            routes=[route_message(route, problem) for route, problem in status.routes],
            sandbox_tokens=status.sandbox_tokens,
            started_at_ms=round(status.started_at * 1000),
        )


def _change(change: RouteChange) -> pb.RouteChange:
    return pb.RouteChange(
        route=route_message(change.route),
        verified=change.verified,
        validated_endpoints=endpoint_messages(change.endpoints),
    )
