"""`/ai-models`, and `/runners/ID/models`, as HTTP: what may be sent, what is answered, and who may."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pointsman.core.ai_model import LONGEST_LABEL
from pointsman.core.context_options import CONTEXT_RULE, written_context
from pointsman.core.data_key import MODELS_CREATE, MODELS_DELETE, MODELS_EDIT, MODELS_VIEW
from pointsman.core.provider import names_a_secret
from pointsman.core.route import LONGEST_MODEL
from pointsman.gateway.ai_models import DEFAULT_PAGE, ModelDraft, SeenModel
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.rest.admission import account_of, for_keys, only_of
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.requests import Context, Limit, Name, Offset
from pointsman.gateway.route_rules import context_of

AccountName = Annotated[str, Depends(account_of)]
Only = Annotated[tuple[str, ...], Depends(only_of)]
_LONGEST_URL = 2048
_CARRIES_A_SECRET = ("authorization", "auth", "headers", "apikey")


class ModelSetting(BaseModel):
    """A model at an OpenAI-compatible server. It has no credential: a runner's is never sent one."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=LONGEST_LABEL, description="For people.")
    model_identifier: str = Field(min_length=1, max_length=LONGEST_MODEL, description="What its server calls it.")
    api_endpoint: str = Field(
        min_length=1,
        max_length=_LONGEST_URL,
        description="Of a runner's model `http://localhost:PORT/v1`, `http://127.0.0.1:PORT/v1` or "
        "`http://[::1]:PORT/v1`; of a direct one a URL that leads to public addresses.",
        examples=["http://localhost:11434/v1"],
    )
    alias: Name | None = Field(
        default=None,
        description="What clients give as their model; unique among routes and models. Left out, a new model gets one "
        "made of its identifier, and one that is changed keeps its own.",
    )
    context: Context | None = Field(
        default=None,
        description=f"What is taken out of conversations: {CONTEXT_RULE}. Left out, a new model has none, and one that "
        "is changed keeps its own.",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_credentials(cls, given: Any) -> Any:
        for key in given if isinstance(given, dict) else ():
            if names_a_secret(key) or key.lower() in _CARRIES_A_SECRET:
                raise ValueError("a credential is there, and a model has none; leave it out")
        return given

    def draft(self) -> ModelDraft:
        """The same for an operation."""
        context = None if self.context is None else context_of(self.context)
        return ModelDraft(self.name, self.model_identifier, self.api_endpoint, self.alias or "", context)


class ModelAnswer(BaseModel):
    """A model that an account has registered."""

    id: str
    name: str
    alias: str
    endpoint_type: Literal["direct", "runner"]
    runner_id: str | None = Field(description="Of a runner's model; it stays when the runner is deleted.")
    api_endpoint: str
    model_identifier: str
    context: str = Field(description="What is taken out of conversations; empty for nothing.")
    available: bool = Field(description="Of a runner's model: whether the runner is connected now.")

    @classmethod
    def of(cls, seen: SeenModel) -> "ModelAnswer":
        """What may be shown of it."""
        model = seen.model
        return cls(
            id=model.id,
            name=model.name,
            alias=model.alias,
            endpoint_type=model.endpoint_type,
            runner_id=model.runner_id,
            api_endpoint=model.api_endpoint,
            model_identifier=model.model_identifier,
            context=written_context(model.context),
            available=seen.is_available,
        )


class ModelList(BaseModel):
    """Models by alias, as many as were asked for."""

    ai_models: list[ModelAnswer]
    total: int = Field(description="How many there are.")


class ModelDeletion(BaseModel):
    """A model was deleted."""

    deleted: bool


class ModelEndpoints:
    """`/ai-models`, and those of a runner."""

    def __init__(self, control: ControlPlane) -> None:
        self._models = control.ai_models

    async def register(
        self, account: AccountName, only: Only, runner_id: str, body: ModelSetting, response: Response
    ) -> ModelAnswer:
        """Register a model of a runner. The same address and identifier once more give the model that there is."""
        seen = await self._models.register(account, runner_id, body.draft(), only)
        if seen.is_new:
            response.headers["location"] = f"{BASE}/ai-models/{seen.model.id}"
        else:
            response.status_code = 200
        return ModelAnswer.of(seen)

    async def create(self, account: AccountName, only: Only, body: ModelSetting, response: Response) -> ModelAnswer:
        """Create a direct model. Addresses that are not public are refused, but for those that the operator allows."""
        seen = await self._models.create(account, body.draft(), only)
        response.headers["location"] = f"{BASE}/ai-models/{seen.model.id}"
        return ModelAnswer.of(seen)

    async def list(
        self, account: AccountName, only: Only, limit: Limit = DEFAULT_PAGE, offset: Offset = 0
    ) -> ModelList:
        """Models by alias, those of deleted runners included, one page of them."""
        page = await self._models.page(account, limit, offset, only)
        return ModelList(ai_models=[ModelAnswer.of(each) for each in page.models], total=page.total)

    async def get(self, account: AccountName, only: Only, model_id: str) -> ModelAnswer:
        """One model."""
        return ModelAnswer.of(await self._models.get(account, model_id, only))

    async def replace(self, account: AccountName, only: Only, model_id: str, body: ModelSetting) -> ModelAnswer:
        """Change a model, but not whose it is. It is checked as a new one, and its runner must approve it anew."""
        return ModelAnswer.of(await self._models.replace(account, model_id, body.draft(), only))

    async def delete(self, account: AccountName, only: Only, model_id: str) -> ModelDeletion:
        """Delete a model."""
        await self._models.delete(account, model_id, only)
        return ModelDeletion(deleted=True)


def add_ai_models(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths."""
    models = ModelEndpoints(control)
    many, one = f"{BASE}/ai-models", f"{BASE}/ai-models/{{model_id}}"
    of_runner = f"{BASE}/runners/{{runner_id}}/models"
    known = {200: {"model": ModelAnswer, "description": "The runner has this model already."}}

    def add(method: str, path: str, endpoint: Callable[..., Any], permission: str, **options: Any) -> None:
        kind = for_keys(permission)
        api.router.add_api_route(path, endpoint, methods=[method], route_class_override=kind, **options)

    registering: dict[str, Any] = {"status_code": 201, "responses": known}
    add("POST", of_runner, models.register, MODELS_CREATE, operation_id="register_ai_model", **registering)
    add("POST", many, models.create, MODELS_CREATE, operation_id="create_ai_model", status_code=201)
    add("GET", many, models.list, MODELS_VIEW, operation_id="list_ai_models")
    add("GET", one, models.get, MODELS_VIEW, operation_id="get_ai_model")
    add("PUT", one, models.replace, MODELS_EDIT, operation_id="replace_ai_model")
    add("DELETE", one, models.delete, MODELS_DELETE, operation_id="delete_ai_model")
