"""Everything that a route's name may stand for: routes, and registered models, whose aliases are names like theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pointsman.core.ai_model import AiModel
from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.model_table import Target
from pointsman.core.route import RUNNER, Route
from pointsman.core.runner import Runner
from pointsman.routing.registered_models import route_of_model, target_of_model
from pointsman.store.interface import Reader


async def named_route(reader: Reader, account: str, name: str) -> Route | None:
    """The route, or the registered model as one; None for neither."""
    route = await reader.route(account, name)
    if route is not None:
        return route
    model = await reader.ai_model_by_alias(account, name)
    return None if model is None else route_of_model(model, await _runner_of(reader, model))


async def named_routes(reader: Reader, account: str) -> Sequence[Route]:
    """All of an account's, by name."""
    registered = await Registered.of(reader, account)
    models = [route_of_model(each, registered.runner_of(each)) for each in registered.models.values()]
    return sorted((*await reader.routes(account), *models), key=lambda route: route.name)


@dataclass(frozen=True, slots=True)
class Registered:
    """All models and runners of an account at one moment, for whoever asks about many."""

    models: Mapping[str, AiModel]
    """By alias."""
    runners: Mapping[str, Runner]
    """By id."""

    @staticmethod
    async def of(reader: Reader, account: str) -> "Registered":
        """Two questions to the store, however many there are."""
        models, runners = await reader.ai_models(account), await reader.runners(account)
        return Registered({each.alias: each for each in models}, {each.id: each for each in runners})

    def runner_of(self, model: AiModel) -> Runner | None:
        """Its record, unless that is gone or there never was one."""
        return None if model.runner_id is None else self.runners.get(model.runner_id)

    def usable(self, alias: str) -> Runner | None:
        """Through which runner a model is asked, None for its own address. Raises NotPossibleNow as `model_target`."""
        model = self.models.get(alias)
        if model is None:
            raise _deleted(alias)
        runner = self.runner_of(model)
        target_of_model(model, runner)
        return runner


async def model_target(reader: Reader, route: Route) -> Target:
    """What a registered model's route leads to. Raises NotPossibleNow when it is gone, or its runner."""
    model = await reader.ai_model_by_alias(route.account, route.name)
    if model is None:
        raise _deleted(route.name)
    return target_of_model(model, await _runner_of(reader, model))


async def runner_behind(reader: Reader, route: Route) -> Runner | None:
    """The runner that a route of kind `runner` leads through; None for any other, and when it is gone."""
    model = await reader.ai_model_by_alias(route.account, route.name) if route.kind == RUNNER else None
    return None if model is None else await _runner_of(reader, model)


def _deleted(alias: str) -> NotPossibleNow:
    return NotPossibleNow(f"model {alias} was deleted; see /api/v1/ai-models")


async def _runner_of(reader: Reader, model: AiModel) -> Runner | None:
    return None if model.runner_id is None else await reader.runner(model.account, model.runner_id)
