"""`/runners` as HTTP: what may be sent, what is answered, and who may."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field

from pointsman.core.data_key import RUNNERS_MANAGE
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.rest.admission import account_of, for_keys, only_of
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.requests import Name, written_exactly
from pointsman.gateway.runners import Registration, SeenRunner

AccountName = Annotated[str, Depends(account_of)]
Only = Annotated[tuple[str, ...], Depends(only_of)]
Force = Annotated[
    bool,
    Field(strict=True, description="Delete it although it is connected; its calls end."),
    written_exactly(bool),
]


class NewRunner(BaseModel):
    """A runner to register, or one that needs a new token."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: Name | None = Field(default=None, description="Unique in the account. Required without runner_id.")
    runner_id: str | None = Field(
        default=None, max_length=64, description="Of a runner whose token is replaced; what is connected by it ends."
    )


class RunnerAnswer(BaseModel):
    """A runner."""

    id: str
    name: str
    presence: Literal["online", "offline"] = Field(description="Whether it is connected now.")
    created_at: datetime
    last_seen_at: datetime | None = Field(description="When it was connected last; null: never.")

    @classmethod
    def of(cls, seen: SeenRunner) -> "RunnerAnswer":
        """What may be shown of it."""
        return cls(**_fields(seen))


class RunnerToken(RunnerAnswer):
    """A runner with its new token. It is shown this once; what was connected by the old one is not any more."""

    token: str

    @classmethod
    def shown(cls, made: Registration) -> "RunnerToken":
        """The only sight of it."""
        return cls(**_fields(SeenRunner(made.runner, is_connected=False)), token=made.token.reveal())


def _fields(seen: SeenRunner) -> dict[str, Any]:
    runner = seen.runner
    return {
        "id": runner.id,
        "name": runner.name,
        "presence": "online" if seen.is_connected else "offline",
        "created_at": datetime.fromtimestamp(runner.created_at, UTC),
        "last_seen_at": None if runner.last_seen_at is None else datetime.fromtimestamp(runner.last_seen_at, UTC),
    }


class RunnerList(BaseModel):
    """All runners, by name."""

    runners: list[RunnerAnswer]


class RunnerDeletion(BaseModel):
    """A runner was deleted."""

    deleted: bool
    unavailable_models: list[str] = Field(description="Aliases. The models stay, as history.")


class RunnerEndpoints:
    """`/runners`."""

    def __init__(self, control: ControlPlane) -> None:
        self._runners = control.runners

    async def register(self, account: AccountName, body: NewRunner, response: Response) -> RunnerToken:
        """Register a runner, or replace the token of one. A name that is taken is refused without its runner_id."""
        made = await self._runners.register(account, body.name or "", body.runner_id or "")
        if made.is_new:
            response.headers["location"] = f"{BASE}/runners/{made.runner.id}"
        else:
            response.status_code = 200
        return RunnerToken.shown(made)

    async def list(self, account: AccountName) -> RunnerList:
        """All runners by name; their tokens are not kept."""
        return RunnerList(runners=[RunnerAnswer.of(each) for each in await self._runners.list(account)])

    async def get(self, account: AccountName, runner_id: str) -> RunnerAnswer:
        """One runner."""
        return RunnerAnswer.of(await self._runners.get(account, runner_id))

    async def rotate(self, account: AccountName, runner_id: str) -> RunnerToken:
        """Replace a runner's token; what is connected by the old one ends."""
        return RunnerToken.shown(await self._runners.rotate(account, runner_id))

    async def delete(self, account: AccountName, only: Only, runner_id: str, force: Force = False) -> RunnerDeletion:
        """Delete a runner; refused while it is connected, unless forced. Its models stay, and are unavailable."""
        models = await self._runners.delete(account, runner_id, force=force)
        seen = [alias for alias in models if not only or alias in only]
        return RunnerDeletion(deleted=True, unavailable_models=seen)


def add_runners(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths."""
    runners = RunnerEndpoints(control)
    many, one = f"{BASE}/runners", f"{BASE}/runners/{{runner_id}}"
    replaced = {200: {"model": RunnerToken, "description": "The token was replaced."}}
    for method, path, endpoint, options in (
        ("POST", f"{many}/register", runners.register, {"status_code": 201, "responses": replaced}),
        ("GET", many, runners.list, {}),
        ("GET", one, runners.get, {}),
        ("POST", f"{one}/token", runners.rotate, {}),
        ("DELETE", one, runners.delete, {}),
    ):
        name = f"{endpoint.__name__}_runner{'s' if path == many else ''}{'_token' if path.endswith('/token') else ''}"
        given: dict[str, Any] = {"operation_id": name, "route_class_override": for_keys(RUNNERS_MANAGE), **options}
        api.router.add_api_route(path, endpoint, methods=[method], **given)
