"""Who may come in: decided for the route that was matched, before a byte of the body is read."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar

from fastapi import Path
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from pointsman.core.account import ACCOUNT_FIELD, DEFAULT_ACCOUNT
from pointsman.core.bearer import bearer_of
from pointsman.core.control_errors import CallerHalted, ControlError, InvalidRequest, NotPermitted, Unauthenticated
from pointsman.core.data_key import DataKey
from pointsman.core.provider import LONGEST_NAME, NAME_PATTERN, check_name
from pointsman.core.source_network import is_within
from pointsman.gateway.actor import GATEWAY, acting_as, actor_of
from pointsman.gateway.auth import Authenticator
from pointsman.gateway.rest.refusals import error_response, looks_like_a_credential, shape_problems
from pointsman.gateway.rest.strict_request import BodyLimits, StrictRequest

NAME_SHAPE: dict[str, Any] = {"minLength": 1, "maxLength": LONGEST_NAME, "pattern": NAME_PATTERN}
"""For the document. What `check_name` refuses is told in its words, not a validator's."""


class AdminRoute(APIRoute):
    """A path for the admin. It is what a path is unless it says otherwise, so that none is open by oversight."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, behind admission and with every error in our shape."""
        handle = super().get_route_handler()

        async def admitted(bare: Request) -> Response:
            request = StrictRequest(bare.scope, bare.receive)
            try:
                who = await self._admit(request)
                self._check_query(request)
                if self.body_field is not None:
                    await request.load(self.body_limits(request.app.state.body_limits))
                with acting_as(who):
                    return await handle(request)
            except ControlError as error:
                return error_response(error, request.texts())
            except RequestValidationError as error:
                refusal = InvalidRequest(shape_problems(error.errors()))
                return error_response(refusal, request.texts())
            except ClientDisconnect:
                return Response(status_code=400)  # nobody is there to read it

        return admitted

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """A path that is written out is no record's, with no method: `/runners/register` is no runner."""
        if self.param_convertors and scope["path"] in scope["app"].state.written_out:
            return Match.NONE, {}
        return super().matches(scope)

    def body_limits(self, usual: BodyLimits) -> BodyLimits:
        """Bounds of its body."""
        return usual

    async def _admit(self, request: Request) -> str:
        """On whose behalf it is."""
        authenticator: Authenticator = request.app.state.authenticator
        identity = await authenticator.identify(_bearer(request))
        if identity.is_admin:
            account = _named_account(request) or DEFAULT_ACCOUNT
            request.state.account = (await authenticator.admin_of(account)).account
        elif identity.data_key is not None:
            if identity.is_halted:
                raise CallerHalted
            key = identity.data_key
            if key.networks and not is_within(request.client.host if request.client else "", key.networks):
                raise NotPermitted("this key may not be used from this address; ask whoever runs this gateway")
            self._admit_key(request, key)
        else:
            raise NotPermitted("a sandbox's token may fetch its bundle, and nothing else; use the admin's token")
        return actor_of(identity)

    def _admit_key(self, request: Request, key: DataKey) -> None:
        raise NotPermitted("a key is for the data listener, runners and models; use the admin's token")

    def _check_query(self, request: Request) -> None:
        known = {field.alias for each in (self.dependant, *self.dependant.dependencies) for field in each.query_params}
        for name in request.query_params:
            if name not in known:
                told = f"here are {', '.join(sorted(known))}" if known else "here are none"
                raise InvalidRequest(f"unknown query parameter {name!r}; {told}")
            if len(request.query_params.getlist(name)) > 1:
                raise InvalidRequest(f"the query parameter {name} is there twice; send it once")


class KeyRoute(AdminRoute):
    """A path for the admin, and for keys with one permission, each in its own account."""

    permission: ClassVar[str]

    def _admit_key(self, request: Request, key: DataKey) -> None:
        if not key.permits(self.permission):
            raise NotPermitted(f"the key has no permission {self.permission}; make one: pointsman key create --help")
        # The same for accounts that there are and others: a key does not learn which there are.
        if (_named_account(request) or key.account) != key.account:
            raise NotPermitted(f"a key is of one account, and that is not this one; leave {ACCOUNT_FIELD} out")
        request.state.account = key.account
        request.state.only = key.routes


def for_keys(permission: str) -> type[KeyRoute]:
    """The kind of path that a key with this permission may use."""
    return type("KeyRoute", (KeyRoute,), {"permission": permission})


class PublicRoute(AdminRoute):
    """A path for anyone."""

    async def _admit(self, request: Request) -> str:
        return GATEWAY

    def _check_query(self, request: Request) -> None:
        """Nothing of it is read, and what asks for a health is fond of adding to it."""


def _bearer(request: Request) -> str | None:
    values = request.headers.getlist("authorization")
    if len(values) > 1:
        raise Unauthenticated("authorization is there more than once; send one")
    return bearer_of(values[0]) if values else None


def _named_account(request: Request) -> str | None:
    names = request.headers.getlist(ACCOUNT_FIELD)
    if len(names) > 1:
        raise InvalidRequest(f"{ACCOUNT_FIELD} is there {len(names)} times; send it once")
    if not names:
        return None
    check_name(names[0], "account's name")
    return names[0]


def account_of(request: Request) -> str:
    """The account that an admitted request works on."""
    account: str = request.state.account
    return account


def only_of(request: Request) -> tuple[str, ...]:
    """The names that an admitted caller may use; none: all of the account."""
    only: tuple[str, ...] = getattr(request.state, "only", ())
    return only


def name_in_path(name: Annotated[str, Path(json_schema_extra=NAME_SHAPE)]) -> str:
    """A record's name from a path. Raises InvalidRequest for what names nothing."""
    check_name(name, "name")
    if looks_like_a_credential(name):
        raise InvalidRequest("the name in the path looks like a credential; a record's name belongs there")
    return name
