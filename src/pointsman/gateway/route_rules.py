"""What a stored route may be, whatever else is stored: which fields go with which kind, and their bounds. Pure."""

from dataclasses import replace

from pointsman.core.context_options import ContextOptions, read_context
from pointsman.core.control_errors import InvalidRequest
from pointsman.core.provider import check_name
from pointsman.core.route import (
    ALIAS,
    CHAIN,
    LONGEST_MODEL,
    LONGEST_TIMEOUT_SECONDS,
    MOST_CANDIDATES,
    RESERVED_NAMES,
    STRATEGIES,
    Route,
    RouteCandidate,
)


def tidied(route: Route) -> Route:
    """Without surrounding space and options that say nothing, and a chain's strategy spelt out."""
    return replace(
        route,
        provider_name=route.provider_name.strip(),
        model=route.model.strip(),
        candidates=tuple(RouteCandidate(each.provider_name.strip(), each.model.strip()) for each in route.candidates),
        strategy=route.strategy.strip() or (STRATEGIES[0] if route.kind == CHAIN else ""),
        fallback=route.fallback.strip(),
        target=route.target.strip(),
        context=None if route.context == ContextOptions() else route.context,
    )


def context_of(text: str) -> ContextOptions:
    """What a client wrote; without any option for none. Raises InvalidRequest."""
    try:
        return read_context(text) or ContextOptions()
    except ValueError as error:
        raise InvalidRequest(f"context: {error}") from None


def check_route(route: Route) -> None:
    """Raises InvalidRequest for what cannot be a route."""
    if route.name not in RESERVED_NAMES:
        check_name(route.name, "route's name")
    if route.kind == ALIAS:
        _check_alias(route)
    elif route.kind == CHAIN:
        _check_chain(route)
    else:
        _check_direct(route)
    _check_seconds("timeout", route.timeout_seconds)
    _check_seconds("request timeout", route.request_timeout_seconds)


def _check_direct(route: Route) -> None:
    if route.candidates or route.strategy or route.fallback or route.request_timeout_seconds or route.target:
        raise InvalidRequest(
            f"route {route.name} leads to one provider, so candidates, strategy, fallback and request timeout do not "
            "go with it; for a chain leave provider and model out, under a name that is not taken"
        )
    if not route.provider_name:
        raise InvalidRequest("provider_name is required: the name of a provider record")
    if not route.model:
        raise InvalidRequest("model_id is required: the model as the provider spells it")
    _check_model(route.model)
    if (route.via_gateway or route.context) and route.name in RESERVED_NAMES:
        flags = "--via-gateway --context …" if route.context else "--via-gateway"
        raise InvalidRequest(
            f"{route.name} has no name on the gateway to go through it by; make a route with {flags}, and "
            "'pointsman inference set --route NAME' leads there"
        )


def _check_chain(route: Route) -> None:
    if route.name in RESERVED_NAMES:
        raise InvalidRequest(
            f"{route.name} cannot be a chain itself; 'pointsman route create NAME --candidate …' makes one, and "
            "'pointsman inference set --route NAME' leads there"
        )
    if route.provider_name or route.model or route.target or route.via_gateway:
        raise InvalidRequest(
            f"route {route.name} is a chain, which has candidates in place of one provider and model, and always goes "
            "through the gateway; leave these out"
        )
    if not route.candidates:
        raise InvalidRequest("a chain needs at least one candidate: --candidate PROVIDER[=MODEL]")
    if len(route.candidates) > MOST_CANDIDATES:
        raise InvalidRequest(f"{len(route.candidates)} candidates; at most {MOST_CANDIDATES}")
    for each in route.candidates:
        check_name(each.provider_name, "provider of a candidate")
        _check_model(each.model)
        if route.candidates.count(each) > 1:
            raise InvalidRequest(f"candidate {each.provider_name} is there twice with one model; name it once")
    if route.strategy not in STRATEGIES:
        raise InvalidRequest(f"there is no strategy {route.strategy[:40]!r}; there are {', '.join(STRATEGIES)}")
    if route.fallback:
        check_name(route.fallback, "fallback")
        if route.fallback in [each.provider_name for each in route.candidates]:
            raise InvalidRequest(f"{route.fallback} is a candidate and the fallback; it can be one of them")


def _check_alias(route: Route) -> None:
    if route.name not in RESERVED_NAMES:
        raise InvalidRequest(f"only {' and '.join(RESERVED_NAMES)} can lead to another route")
    if route != Route(route.account, route.name, "", "", version=route.version, kind=ALIAS, target=route.target):
        raise InvalidRequest(
            f"{route.name} leads to route {route.target[:64]}, which has provider, model and timeout; change them with "
            f"'pointsman route update {route.target[:64]}'"
        )
    if route.target in RESERVED_NAMES:
        raise InvalidRequest(f"{route.name} cannot lead to {route.target}; name a route of 'pointsman route create'")
    check_name(route.target, "route's name")


def _check_model(model: str) -> None:
    if len(model) > LONGEST_MODEL or not model.isprintable():
        raise InvalidRequest(f"the model has over {LONGEST_MODEL} characters, or some that cannot be printed")


def _check_seconds(what: str, seconds: int) -> None:
    if not 0 <= seconds <= LONGEST_TIMEOUT_SECONDS:
        raise InvalidRequest(f"a {what} of {seconds} s; between 1 and {LONGEST_TIMEOUT_SECONDS}, or 0 for the default")
