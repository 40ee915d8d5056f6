"""From a registered model to the route that its alias stands for, and to what can be called. Pure."""

from pointsman.core.ai_model import DIRECT, AiModel
from pointsman.core.ai_model import RUNNER as ON_RUNNER
from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.endpoint import Endpoint, parse_endpoint
from pointsman.core.model_table import Target
from pointsman.core.profiles import OPENAI_COMPATIBLE, OPENAI_PROTOCOLS
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.route import MODEL, RUNNER, Route
from pointsman.core.runner import Runner
from pointsman.core.runner_model import RunnerModel

PROVIDER_PREFIX = "runner:"
"""Before a runner's name, where others have their provider's: in logs and rows of usage. No provider is called so."""
DIRECT_PREFIX = "direct:"
"""The same, before a direct model's alias."""
_NOWHERE = Endpoint("runner", "", 0, "")
"""A runner is asked over its own line: there is nothing to dial."""
_DIALLED = ("http", "https")


def provider_of_runner(runner: Runner) -> str:
    """What stands for it where others have their provider's name."""
    return f"{PROVIDER_PREFIX}{runner.name}"


def route_of_model(model: AiModel, runner: Runner | None) -> Route:
    """What its alias is as a route, which is never stored and has no versions. `runner`: as in `target_of_model`."""
    kind, provider = MODEL, f"{DIRECT_PREFIX}{model.alias}"
    if model.endpoint_type == ON_RUNNER:
        kind, provider = RUNNER, provider_of_runner(runner) if runner is not None else ""
    return Route(model.account, model.alias, provider, model.model_identifier, kind=kind)


def target_of_model(model: AiModel, runner: Runner | None) -> Target:
    """What is called for it. `runner`: its record, None when that is gone. Raises NotPossibleNow."""
    if model.endpoint_type == DIRECT:
        return direct_candidate(model)
    if runner is None or model.runner_id is None:
        raise NotPossibleNow(f"the runner of model {model.alias} was deleted; register the model at another")
    candidate = Candidate(
        model.alias,
        _NOWHERE,
        model.model_identifier,
        (InferenceProtocol.CHAT_COMPLETIONS,),
        "runner",
        provider=provider_of_runner(runner),
        ai_model_id=model.id,
    )
    return RunnerModel(model.account, model.runner_id, model.id, model.api_endpoint, candidate)


def direct_candidate(model: AiModel) -> Candidate:
    """What is called for a direct model: confined, and without a key. Raises NotPossibleNow.

    Its address was checked when the model was made; that nothing but a server is opened must not hang on that.
    """
    try:
        endpoint = parse_endpoint(model.api_endpoint)
    except ValueError:
        endpoint = None
    if endpoint is None or endpoint.scheme not in _DIALLED:
        raise NotPossibleNow(f"the api_endpoint of model {model.alias} is no http:// or https:// URL; change the model")
    protocols = tuple(str(each) for each in OPENAI_PROTOCOLS)
    return Candidate(
        model.alias,
        endpoint,
        model.model_identifier,
        protocols,
        OPENAI_COMPATIBLE,
        provider=f"{DIRECT_PREFIX}{model.alias}",
        is_confined=True,
        ai_model_id=model.id,
    )
