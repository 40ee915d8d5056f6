"""Who may call what. It stands before every method, so that a new one is closed until somebody decides."""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import grpc
import grpc.aio

from pointsman.core.account import ACCOUNT_FIELD, DEFAULT_ACCOUNT
from pointsman.core.bearer import bearer_of
from pointsman.core.control_errors import ControlError, InvalidRequest, NotPermitted, Unauthenticated
from pointsman.core.fault_place import fault_place
from pointsman.core.provider import check_name
from pointsman.gateway.actor import acting_as, actor_of
from pointsman.gateway.auth import Authenticator, Identity

if TYPE_CHECKING:
    _Method = grpc.RpcMethodHandler[Any, Any]

BUNDLE = "/openshell.inference.v1.Inference/GetInferenceBundle"
HEALTH = "/openshell.v1.OpenShell/Health"

_CALLER: ContextVar[Identity] = ContextVar("caller")
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Unary = Callable[[Any, _Context], Awaitable[Any]]


def caller() -> Identity:
    """Who makes the call that is being answered."""
    return _CALLER.get()


class Gate(grpc.aio.ServerInterceptor):
    """Identifies every caller, applies the rule of the method, and turns errors into statuses.

    Bundles are for sandboxes only, since they hold keys; health is for everybody with a token; all else is the
    admin's. With `open_to_admin` a call without a token is the admin's: for a loopback listener and clients that know
    of no tokens. It never opens a bundle.

    A caller is judged by what comes before the message, and whoever is refused is answered without waiting for one:
    otherwise calls whose message never comes would, at no cost, take the place of all others.
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
        method = handler_call_details.method
        try:
            identity = await self._admitted(method, handler_call_details.invocation_metadata or ())
        except Exception as error:
            return _refusing(self._as_control_error(method, error))
        return grpc.unary_unary_rpc_method_handler(
            self._guarded(method, identity, handler.unary_unary),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _guarded(self, method: str, identity: Identity, behaviour: Any) -> _Unary:
        async def guarded(request: Any, context: _Context) -> Any:
            _CALLER.set(identity)
            try:
                with acting_as(actor_of(identity)):
                    return await behaviour(request, context)
            except Exception as error:  # being cancelled is no Exception
                await refuse(context, self._as_control_error(method, error))

        return guarded

    def _as_control_error(self, method: str, error: Exception) -> ControlError:
        if isinstance(error, ControlError):
            return error
        self._say(f"internal error in {method}: {fault_place(error)}")
        return ControlError("internal error; the gateway's log says where")

    async def _admitted(self, method: str, metadata: "Sequence[tuple[str, str | bytes]]") -> Identity:
        """Raises Unauthenticated, NotPermitted, InvalidRequest, or NotFound for an account that does not exist."""
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
        if identity.data_key is not None:
            raise NotPermitted("a key is for the data listener, and nothing else; use the admin's token")
        raise NotPermitted("a sandbox's token fetches its own bundle and nothing else; use the admin's")


def _refusing(error: ControlError) -> "_Method":
    """A method that answers at once. Only one that reads a stream may: for a single message the library waits."""

    async def answer(_: Any, context: _Context) -> NoReturn:
        await refuse(context, error)

    return grpc.stream_unary_rpc_method_handler(answer)


async def refuse(context: _Context, error: ControlError) -> NoReturn:
    """End a call in the status of an error."""
    await context.abort(grpc.StatusCode[error.code], error.text)


def _bearer(metadata: "Sequence[tuple[str, str | bytes]]") -> str | None:
    values = [value for key, value in metadata if key == "authorization"]
    if len(values) > 1:
        raise Unauthenticated("authorization is there more than once; send one")
    if not values:
        return None
    token = bearer_of(str(values[0]))
    if not token:
        raise Unauthenticated("authorization must be 'Bearer TOKEN'")
    return token


def _account(metadata: "Sequence[tuple[str, str | bytes]]") -> str:
    names = [value for key, value in metadata if key == ACCOUNT_FIELD] or [DEFAULT_ACCOUNT]
    if len(names) > 1:
        raise InvalidRequest(f"{ACCOUNT_FIELD} is there {len(names)} times; send it once")
    check_name(str(names[0]), "account's name")
    return str(names[0])
