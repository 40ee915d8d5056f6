"""From a registered model to the route that its alias stands for, and to what can be called. Pure."""

from pointsman.core.ai_model import RUNNER as ON_RUNNER
from pointsman.core.ai_model import AiModel
from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.endpoint import Endpoint
from pointsman.core.model_table import Target
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.route import MODEL, RUNNER, Route
from pointsman.core.runner import Runner
from pointsman.core.runner_model import RunnerModel

PROVIDER_PREFIX = "runner:"
"""Before a runner's name, where others have their provider's: in logs and rows of usage. No provider is called so."""
_NOWHERE = Endpoint("runner", "", 0, "")
"""A runner is asked over its own line: there is nothing to dial."""


def route_of_model(model: AiModel) -> Route:
    """What its alias is as a route. It is never stored as one."""
    kind = RUNNER if model.endpoint_type == ON_RUNNER else MODEL
    return Route(model.account, model.alias, "", model.model_identifier, version=1, kind=kind)


def target_of_model(model: AiModel, runner: Runner | None) -> Target:
    """What is called for it. `runner`: its record, None when that is gone. Raises NotPossibleNow."""
    if model.endpoint_type != ON_RUNNER or model.runner_id is None:
        raise NotPossibleNow(f"model {model.alias} is direct, which is not served yet")
    if runner is None:
        raise NotPossibleNow(f"the runner of model {model.alias} was deleted; register the model at another")
    candidate = Candidate(
        model.alias,
        _NOWHERE,
        model.model_identifier,
        (InferenceProtocol.CHAT_COMPLETIONS,),
        "runner",
        provider=f"{PROVIDER_PREFIX}{runner.name}",
    )
    return RunnerModel(model.account, model.runner_id, model.id, model.api_endpoint, candidate)
