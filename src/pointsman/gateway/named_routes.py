"""Everything that a route's name may stand for: routes, and registered models, whose aliases are names like theirs."""

from collections.abc import Sequence

from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.model_table import Target
from pointsman.core.route import Route
from pointsman.routing.registered_models import route_of_model, target_of_model
from pointsman.store.interface import Reader


async def named_route(reader: Reader, account: str, name: str) -> Route | None:
    """The route, or the registered model as one; None for neither."""
    route = await reader.route(account, name)
    if route is not None:
        return route
    model = await reader.ai_model_by_alias(account, name)
    return None if model is None else route_of_model(model)


async def named_routes(reader: Reader, account: str) -> Sequence[Route]:
    """All of an account's, by name."""
    models = [route_of_model(each) for each in await reader.ai_models(account)]
    return sorted((*await reader.routes(account), *models), key=lambda route: route.name)


async def model_target(reader: Reader, route: Route) -> Target:
    """What a registered model's route leads to. Raises NotPossibleNow when it is gone, or its runner."""
    model = await reader.ai_model_by_alias(route.account, route.name)
    if model is None:
        raise NotPossibleNow(f"model {route.name} was deleted; see /api/v1/ai-models")
    runner = None if model.runner_id is None else await reader.runner(route.account, model.runner_id)
    return target_of_model(model, runner)
