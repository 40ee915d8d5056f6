"""Everything that a route's name may stand for: routes, and registered models, whose aliases are names like theirs."""

from collections.abc import Sequence

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
    runners: dict[str | None, Runner] = {each.id: each for each in await reader.runners(account)}
    models = [route_of_model(each, runners.get(each.runner_id)) for each in await reader.ai_models(account)]
    return sorted((*await reader.routes(account), *models), key=lambda route: route.name)


async def model_target(reader: Reader, route: Route) -> Target:
    """What a registered model's route leads to. Raises NotPossibleNow when it is gone, or its runner."""
    model = await reader.ai_model_by_alias(route.account, route.name)
    if model is None:
        raise NotPossibleNow(f"model {route.name} was deleted; see /api/v1/ai-models")
    return target_of_model(model, await _runner_of(reader, model))


async def runner_behind(reader: Reader, route: Route) -> Runner | None:
    """The runner that a route of kind `runner` leads through; None for any other, and when it is gone."""
    model = await reader.ai_model_by_alias(route.account, route.name) if route.kind == RUNNER else None
    return None if model is None else await _runner_of(reader, model)


async def _runner_of(reader: Reader, model: AiModel) -> Runner | None:
    return None if model.runner_id is None else await reader.runner(model.account, model.runner_id)
