"""What will keep a provider record from serving inference, told when it is made rather than when a route needs it.

The gateway stores such records: they may be meant for something else. Pure; what refuses them is `routing.resolve`.
"""

from collections.abc import Iterable, Mapping

from pointsman.config.wording import nearest, shown
from pointsman.core.endpoint import Endpoint, parse_endpoint
from pointsman.core.profiles import LOCAL_GGUF, ProviderProfile, known_provider_types, profile_for

_OPERATIONS = ("/chat/completions", "/completions", "/messages", "/responses", "/embeddings", "/models")
"""Paths of single requests, the longest first where one ends in another."""
_EXAMPLE = "http://host:port/v1"


def record_warnings(name: str, provider_type: str, config: Mapping[str, str]) -> list[str]:
    """A line each, with the next step."""
    if provider_type.strip().lower() == LOCAL_GGUF:
        return _model_file(name, config)
    profile = profile_for(provider_type)
    if profile is None:
        return [_unknown_type(provider_type)]
    keys = [key for key in profile.base_url_config_keys if config.get(key, "").strip()]
    found = [_unread(key, value, profile, has_url=bool(keys)) for key, value in sorted(config.items())]
    if keys:
        found.append(_base_url(name, keys[0], config[keys[0]]))
    elif not profile.default_base_url:
        key = profile.base_url_config_keys[0]
        found.append(
            f"it has no base URL, and type {profile.provider_type} has no default; set it with "
            f"'pointsman provider update {name} --config {key}=URL' ({_EXAMPLE})"
        )
    return [warning for warning in found if warning]


def _model_file(name: str, config: Mapping[str, str]) -> list[str]:
    path = config.get("MODEL_PATH", "").strip()
    if path.startswith("/"):
        return []
    said = "its MODEL_PATH is relative, to nobody knows what" if path else "it names no model file"
    return [f"{said}; set it with 'pointsman provider update {name} --config MODEL_PATH=/models/small.gguf'"]


def _unknown_type(provider_type: str) -> str:
    types = known_provider_types()
    near = nearest(provider_type, types)
    meant = f"did you mean {near}?" if near else f"the types it knows are {', '.join(types)}"
    return f"inference cannot be routed to type{shown(provider_type.strip()) or ' given here'}; {meant}"


def _unread(key: str, value: str, profile: ProviderProfile, *, has_url: bool) -> str:
    """Something that looks like a base URL, under a key that nobody reads: requests and the key would go elsewhere."""
    keys = profile.base_url_config_keys
    near = _by_lower_case(key, keys)
    if key in keys or not (near or ("://" in value and not has_url)):
        return ""
    leads = f", and requests go to {profile.default_base_url}" if profile.default_base_url and not has_url else ""
    return f"inference does not read config{shown(key)}{leads}; did you mean {near or keys[0]}?"


def _by_lower_case(key: str, keys: Iterable[str]) -> str:
    spelt = {each.lower(): each for each in keys}
    return spelt.get(nearest(key, spelt), "")


def _base_url(name: str, key: str, value: str) -> str:
    next_step = f"set it with 'pointsman provider update {name} --config {key}=URL' ({_EXAMPLE})"
    try:
        endpoint = parse_endpoint(value)
    except ValueError as error:
        return f"its {key} {str(error).partition(';')[0]}; {next_step}"
    if endpoint.scheme == "gguf":
        return f"its {key} names a model file, which no provider serves; {next_step}"
    return _whole_url(key, endpoint)


def _whole_url(key: str, endpoint: Endpoint) -> str:
    ending = next((each for each in _OPERATIONS if endpoint.path.endswith(each)), "")
    if not ending:
        return ""
    return f"its {key} ends in the path of one kind of request, which is added to it again; leave {ending} off"
