"""Coding agents: what each needs to be told of the door, and whether it was. Pure; no agent is run."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.core.candidate import INFERENCE_LOCAL

_URL = f"https://{INFERENCE_LOCAL}"


@dataclass(frozen=True, slots=True)
class AgentNeeds:
    """How an agent is led to the door: by a variable, or by a file that must name it."""

    variable: str = ""
    value: str = ""
    files: tuple[str, ...] = ()
    """With {HOME}, {CWD} and the like for variables; the first is the one that is advised."""
    lines: str = ""
    """What belongs into it."""


AGENTS = {
    "claude": AgentNeeds("ANTHROPIC_BASE_URL", _URL),
    "codex": AgentNeeds(
        files=("{CODEX_HOME}/config.toml", "{HOME}/.codex/config.toml"),
        lines='model_provider = "door" and [model_providers.door] name = "door", '
        f'base_url = "{_URL}/v1", wire_api = "responses", env_key = "OPENAI_API_KEY"',
    ),
    "opencode": AgentNeeds(
        files=("{CWD}/opencode.json", "{HOME}/.config/opencode/opencode.json"),
        lines='{"provider": {"door": {"npm": "@ai-sdk/openai-compatible", "options": '
        f'{{"baseURL": "{_URL}/v1"}}, "models": {{"any": {{}}}}}}}}}}',
    ),
    "llm": AgentNeeds(
        files=("{LLM_USER_PATH}/extra-openai-models.yaml", "{HOME}/.config/io.datasette.llm/extra-openai-models.yaml"),
        lines=f'- {{model_id: door, model_name: any, api_base: "{_URL}/v1"}}',
    ),
}


@dataclass(frozen=True, slots=True)
class AgentFinding:
    """One agent that is installed."""

    name: str
    path: str
    version: str
    configured: bool
    mend: str = ""


def config_paths(name: str, environ: Mapping[str, str], directory: str) -> tuple[str, ...]:
    """The files that may lead this agent to the door, as far as their variables are set."""
    values = {**environ, "CWD": directory}
    return tuple(
        path.format_map(values) for path in AGENTS[name].files if values.get(path.partition("}")[0].removeprefix("{"))
    )


def judge_agent(
    name: str, found: tuple[str, str], environ: Mapping[str, str], texts: Mapping[str, str], directory: str
) -> AgentFinding:
    """Whether it is led to the door. `found`: path and version; `texts`: what its configuration files hold."""
    path, version = found
    needs = AGENTS[name]
    if needs.variable:
        good = environ.get(needs.variable, "").rstrip("/") == needs.value
        return AgentFinding(name, path, version, good, "" if good else f"export {needs.variable}={needs.value}")
    paths = config_paths(name, environ, directory)
    if any(f"{INFERENCE_LOCAL}" in texts.get(each, "") for each in paths):
        return AgentFinding(name, path, version, configured=True)
    place = paths[0] if paths else os.path.basename(needs.files[0])
    return AgentFinding(name, path, version, configured=False, mend=f"in {place}: {needs.lines}")
