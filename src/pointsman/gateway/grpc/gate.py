"""Who may call what. It stands before every method, so that a new one is closed until somebody decides."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.control_errors import ControlError, InvalidRequest, NotPermitted, Unauthenticated
from pointsman.core.fault_place import fault_place
from pointsman.gateway.auth import Authenticator, Identity
from pointsman.rpc.channel import ACCOUNT_KEY

if TYPE_CHECKING:
    _Method = grpc.RpcMethodHandler[Any, Any]

BUNDLE = "/openshell.inference.v1.Inference/GetInferenceBundle"
HEALTH = "/openshell.v1.OpenShell/Health"

_CALLER: ContextVar[Identity] = ContextVar("caller")
_Unary = Callable[[Any, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[Any]]


def caller() -> Identity:
    """Who makes the call that is being answered."""
    return _CALLER.get()


class Gate(grpc.aio.ServerInterceptor):
    """Identifies every caller, applies the rule of the method, and turns errors into statuses.

    Bundles are for sandboxes only, since they hold keys; health is for everybody with a token; all else is the
    admin's. With `open_to_admin` a call without a token is the admin's: for a loopback listener and clients that know
    of no tokens. It never opens a bundle.
    """

    def __init__(self, authenticator: Authenticator, say: Callable[[str], None], *, open_to_admin: bool) -> None:
        self._authenticator = authenticator
        self._say = say
        self._open_to_admin = open_to_admin

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[_Method | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "_Method | None":
        """Put the rule before the method. Every method we have is unary."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:  # a method that nobody has
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._guarded(handler_call_details.method, handler.unary_unary),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _guarded(self, method: str, behaviour: Any) -> _Unary:
        async def guarded(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
            try:
                _CALLER.set(await self._admitted(method, dict(context.invocation_metadata() or ())))
                return await behaviour(request, context)
            except ControlError as error:
                await refuse(context, error)
            except Exception as error:  # aborting raises BaseException's own kin; what comes here is a bug
                if isinstance(error, grpc.aio.AbortError):
                    raise
                self._say(f"internal error in {method}: {fault_place(error)}")
                await context.abort(grpc.StatusCode.INTERNAL, "internal error; the gateway's log says where")

        return guarded

    async def _admitted(self, method: str, metadata: Mapping[str, str | bytes]) -> Identity:
        """Raises Unauthenticated, NotPermitted, or NotFound for an account that does not exist."""
        bearer = _bearer(metadata)
        if bearer is None and self._open_to_admin and method != BUNDLE:
            identity = Identity(DEFAULT_ACCOUNT, is_admin=True)
        else:
            identity = await self._authenticator.identify(bearer)
        if method == BUNDLE:
            if identity.sandbox_token is None:
                raise NotPermitted("bundles are for sandboxes; make a token: pointsman sandbox token create NAME")
            return identity
        if identity.is_admin:
            return await self._authenticator.admin_of(_account(metadata))
        if method == HEALTH:
            return identity
        raise NotPermitted("a sandbox's token fetches its own bundle and nothing else; use the admin's")


async def refuse(context: "grpc.aio.ServicerContext[Any, Any]", error: ControlError) -> NoReturn:
    """End a call in the status of an error."""
    await context.abort(grpc.StatusCode[error.code], error.text)


def _bearer(metadata: Mapping[str, str | bytes]) -> str | None:
    value = metadata.get("authorization")
    if not isinstance(value, str):
        return None
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("authorization must be 'Bearer TOKEN'")
    return token.strip()


def _account(metadata: Mapping[str, str | bytes]) -> str:
    account = metadata.get(ACCOUNT_KEY, DEFAULT_ACCOUNT)
    if not isinstance(account, str) or not account:
        raise InvalidRequest(f"{ACCOUNT_KEY} must name an account")
    return account
