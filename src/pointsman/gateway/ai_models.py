"""Operations on the models that an account registers: on its runners, and direct ones.

Every operation is given whose account it works on, and looks nowhere else. `only` are the names that a caller may use,
empty for all: whoever may use some has no sight of the others.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from pointsman.core.ai_model import (
    DIRECT,
    MOST_MODELS,
    RUNNER,
    AiModel,
    check_alias,
    check_model,
    default_alias,
)
from pointsman.core.context_options import ContextOptions
from pointsman.core.control_errors import AlreadyExists, InvalidRequest, NotFound, NotPermitted, NotPossibleNow
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.core.route import ALIAS
from pointsman.core.runner import Runner, is_record_id
from pointsman.core.runner_endpoint import parse_runner_endpoint
from pointsman.gateway.direct_endpoint import DirectEndpoints
from pointsman.gateway.runners import Runners
from pointsman.store.interface import Reader, Store, Writer

_MOST_TOLD = 8
"""In one line of the log."""
DEFAULT_PAGE = 100
LARGEST_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """What a client says of a model."""

    name: str
    model_identifier: str
    api_endpoint: str
    alias: str = ""
    """Empty: one is made of the identifier."""
    context: ContextOptions | None = None
    """What is taken out of its conversations; without any option for nothing. None: as it is."""


@dataclass(frozen=True, slots=True)
class SeenModel:
    """A model, and whether it can be called now."""

    model: AiModel
    is_available: bool
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class ModelPage:
    """Some models, and how many there are."""

    models: Sequence[SeenModel]
    total: int


class AiModels:
    """Keeps them. `ids` gives 128 random bits in hexadecimal."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        ids: Callable[[], str],
        say: Callable[[str], None],
        runners: Runners,
        endpoints: DirectEndpoints,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._say = say
        self._runners = runners
        self._endpoints = endpoints

    async def register(self, account: str, runner_id: str, draft: ModelDraft, only: Collection[str] = ()) -> SeenModel:
        """A model of a runner; the one that there is when runner, address and identifier are the same.

        Raises NotFound, InvalidRequest, AlreadyExists or NotPermitted.
        """
        check_model(draft.name, draft.model_identifier)
        _check_use(draft.alias, only)
        url = _runner_url(draft.api_endpoint)
        async with self._store.write() as writer:
            runner = await writer.runner(account, runner_id) if is_record_id(runner_id) else None
            if runner is None:
                raise NotFound("there is no such runner; see /api/v1/runners")
            known = await writer.ai_models_of(account, runner_id)
            wanted = (runner_id, url, draft.model_identifier)
            model = next((each for each in known if each.binding == wanted), None)
            is_new = model is None
            if model is None:
                if len(known) >= DEFAULT_RUNNER_LIMITS.models:
                    raise InvalidRequest(f"runner {runner.name} has {len(known)} models, and no more; delete one first")
                model = await self._insert(writer, account, draft, runner, url)
            _check_use(model.alias, only)
        if is_new:
            self._say(f"model {model.alias} of {account}: registered, {_told(model)} at runner {runner.name}")
        return await self._seen(model, is_new=is_new)

    async def create(self, account: str, draft: ModelDraft, only: Collection[str] = ()) -> SeenModel:
        """A direct model. Raises InvalidRequest, also for an address that may not be dialled, or as `register`."""
        check_model(draft.name, draft.model_identifier)
        _check_use(draft.alias, only)
        url = await self._endpoints.checked(draft.api_endpoint)
        async with self._store.write() as writer:
            model = await self._insert(writer, account, draft, None, url)
            _check_use(model.alias, only)
        self._say(f"model {model.alias} of {account}: created, {_told(model)}")
        return await self._seen(model, is_new=True)

    async def _insert(
        self, writer: Writer, account: str, draft: ModelDraft, runner: Runner | None, url: str
    ) -> AiModel:
        if len(models := await writer.ai_models(account)) >= MOST_MODELS:
            raise InvalidRequest(f"the account has {MOST_MODELS} models, and no more; delete one first")
        if draft.alias:
            await _check_free(writer, account, draft.alias)
        taken = {each.alias for each in models} | {each.name for each in await writer.routes(account)}
        model = AiModel(
            self._ids(),
            account,
            draft.name,
            draft.alias or default_alias(draft.model_identifier, runner.name if runner else "", taken),
            RUNNER if runner else DIRECT,
            runner.id if runner else None,
            url,
            draft.model_identifier,
            self._clock(),
            _taken_out(draft.context, None),
        )
        await writer.insert_ai_model(model)
        return model

    async def get(self, account: str, model_id: str, only: Collection[str] = ()) -> SeenModel:
        """One of them. Raises NotFound."""
        async with self._store.read() as reader:
            model = await _found(reader, account, model_id, only)
        return await self._seen(model)

    async def page(self, account: str, limit: int = 0, offset: int = 0, only: Collection[str] = ()) -> ModelPage:
        """Models by alias, those of deleted runners included; `limit` 0 means 100. Raises InvalidRequest."""
        if limit > LARGEST_PAGE:
            raise InvalidRequest(f"limit {limit} is too large; at most {LARGEST_PAGE}")
        async with self._store.read() as reader:
            models = [each for each in await reader.ai_models(account) if not only or each.alias in only]
        page = models[offset : offset + (limit or DEFAULT_PAGE)]
        return ModelPage(await self._all_seen(account, page), len(models))

    async def replace(self, account: str, model_id: str, draft: ModelDraft, only: Collection[str] = ()) -> SeenModel:
        """Another name, alias, address or identifier; without an alias it keeps its own. Checked as a new one is.

        Raises NotFound, InvalidRequest, AlreadyExists, NotPermitted, or NotPossibleNow for a deleted runner's.
        """
        check_model(draft.name, draft.model_identifier)
        async with self._store.read() as reader:
            before = await _found(reader, account, model_id, only)
        is_direct = before.endpoint_type == DIRECT
        url = await self._endpoints.checked(draft.api_endpoint) if is_direct else _runner_url(draft.api_endpoint)
        async with self._store.write() as writer:
            before = await _found(writer, account, model_id, only)
            if before.runner_id is not None and await writer.runner(account, before.runner_id) is None:
                raise NotPossibleNow("the model's runner was deleted; delete the model, and register it at another")
            alias = draft.alias or before.alias
            if alias != before.alias:
                _check_use(alias, only)
                await _check_free(writer, account, alias)
            model = replace(
                before,
                name=draft.name,
                alias=alias,
                api_endpoint=url,
                model_identifier=draft.model_identifier,
                context=_taken_out(draft.context, before.context),
            )
            await writer.replace_ai_model(model)
            was = ""
            if before.alias != model.alias:
                was = f", was {before.alias}{await _left_behind(writer, account, before.alias)}"
        self._say(f"model {model.alias} of {account}: changed{was}, {_told(model)}")
        return await self._seen(model)

    async def delete(self, account: str, model_id: str, only: Collection[str] = ()) -> None:
        """Raises NotFound."""
        async with self._store.write() as writer:
            model = await _found(writer, account, model_id, only)
            await writer.delete_ai_model(account, model_id)
            left = await _left_behind(writer, account, model.alias)
        self._say(f"model {model.alias} of {account}: deleted{left}")

    async def _seen(self, model: AiModel, *, is_new: bool = False) -> SeenModel:
        (seen,) = await self._all_seen(model.account, (model,))
        return replace(seen, is_new=is_new)

    async def _all_seen(self, account: str, models: Sequence[AiModel]) -> Sequence[SeenModel]:
        """Deleted runners are not asked after, whoever may think that they are there."""
        wanted = {each.runner_id for each in models if each.runner_id is not None}
        connected: Collection[str] = ()
        if wanted:
            async with self._store.read() as reader:
                known = [each.id for each in await reader.runners(account)]
            connected = await self._runners.connected(account, wanted.intersection(known))
        return [SeenModel(each, each.runner_id is None or each.runner_id in connected) for each in models]


def _taken_out(asked: ContextOptions | None, before: ContextOptions | None) -> ContextOptions | None:
    chosen = before if asked is None else asked
    return None if chosen is None or not chosen.written else chosen


def _runner_url(text: str) -> str:
    try:
        return parse_runner_endpoint(text).url
    except ValueError as error:
        raise InvalidRequest(f"api_endpoint {error}") from None


async def _found(reader: Reader, account: str, model_id: str, only: Collection[str]) -> AiModel:
    model = await reader.ai_model(account, model_id) if is_record_id(model_id) else None
    if model is None or (only and model.alias not in only):
        raise NotFound("there is no such model; see /api/v1/ai-models")
    return model


async def _check_free(reader: Reader, account: str, alias: str) -> None:
    """Of models the store sees to it; a route is found here."""
    check_alias(alias)
    if await reader.route(account, alias) is not None:
        raise AlreadyExists(f"there is a route {alias}; choose another alias")


async def _left_behind(reader: Reader, account: str, alias: str) -> str:
    """What still names an alias that is gone, for the log."""
    names = [each.name for each in await reader.routes(account) if each.kind == ALIAS and each.target == alias]
    names += [f"key {each.name}" for each in await reader.keys(account) if alias in each.routes]
    names += [f"sandbox token {each.name}" for each in await reader.sandbox_tokens(account) if each.route == alias]
    told = f"{', '.join(names[:_MOST_TOLD])}{f' and {len(names) - _MOST_TOLD} more' if names[_MOST_TOLD:] else ''}"
    return f" (still named by {told})" if names else ""


def _check_use(alias: str, only: Collection[str]) -> None:
    """Before it is looked for, so that nobody learns which others are taken; where it was made up, in the transaction.

    What was made by one who may not use it is undone.
    """
    if only and alias and alias not in only:
        raise NotPermitted("the key may use some names only, and the model's is none of them; use another key")


def _told(model: AiModel) -> str:
    return f"{model.model_identifier} at {model.api_endpoint}"
