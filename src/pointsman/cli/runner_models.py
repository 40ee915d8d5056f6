"""Which of the models that were found are approved: by options, or by whoever sits at the terminal."""

import asyncio
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import click

from pointsman.cli.show import show_json, told
from pointsman.cli.table import table
from pointsman.core.context_options import read_context
from pointsman.core.runner_endpoint import RunnerEndpoint, parse_runner_endpoint
from pointsman.runner.allowlist import FILE_NAME, ApprovedModel, approve, read_allowlist
from pointsman.runner.control_api import CallFailed, ControlApi, Registered
from pointsman.runner.discovery import USUAL_PORTS, Probed, discover, places
from pointsman.runner.private_file import PrivateFileError
from pointsman.runner.state import RunnerState

Found = tuple[RunnerEndpoint, str]
"""A place, and the name of a model there."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What options say of where to look and what to approve."""

    urls: tuple[str, ...]
    wanted: tuple[str, ...]
    every: bool
    context: str = ""
    """What is taken out of the conversations of models that are registered now."""

    @property
    def is_given(self) -> bool:
        """Whether nobody need be asked."""
        return self.every or bool(self.wanted)

    def check(self) -> None:
        """Raises UsageError."""
        self.endpoints()
        if self.every and self.wanted:
            raise click.UsageError("--register and --register-all are both given; give one of them")

    def endpoints(self) -> list[RunnerEndpoint]:
        """Where to look. Raises UsageError."""
        extra = []
        for url in self.urls:
            try:
                extra.append(parse_runner_endpoint(url))
            except ValueError as error:
                raise click.UsageError(f"--url {told(url)} {error}") from None
        try:
            return places(extra)
        except ValueError as error:
            raise click.UsageError(f"--url: {error}") from None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was found, and what of it was approved."""

    found: tuple[Found, ...]
    models: tuple[Found, ...]
    context: str = ""
    """See Choice."""


def choose_models(choice: Choice, directory: Path, *, ask: bool, quiet: bool = False) -> Chosen:
    """Look, list unless `quiet`, and approve as options say, or ask. Raises ClickException.

    `directory` tells what is approved already.
    """
    approved = _approved(directory)
    extra = {endpoint for endpoint in choice.endpoints() if endpoint.port not in USUAL_PORTS}
    probed = asyncio.run(discover(choice.endpoints()))
    for each in probed:
        if each.problem and (each.is_there or each.endpoint in extra):
            click.echo(f"pointsman: warning: {each.endpoint.url} {told(each.problem)}", err=True)
    found = tuple((each.endpoint, model) for each in probed for model in each.models)
    if not quiet:
        _list(found, probed, approved)
    if choice.every:
        return Chosen(found, found, choice.context)
    if choice.wanted:
        return Chosen(found, tuple(_named(text, found) for text in choice.wanted), choice.context)
    return Chosen(found, _asked(found) if ask and found else (), choice.context)


def _list(found: tuple[Found, ...], probed: list[Probed], approved: Container[Found]) -> None:
    if not found:
        places_told = ", ".join(each.endpoint.url for each in probed)
        click.echo(f"No models found at {places_told}; start a model server, or give --url")
        return
    rows = [
        (str(number), told(each[1]), each[0].url, "yes" if each in approved else "-")
        for number, each in enumerate(found, 1)
    ]
    click.echo("\n".join(table(("", "MODEL", "SERVER", "APPROVED"), rows)))


def _named(text: str, found: tuple[Found, ...]) -> Found:
    matching = [each for each in found if text in (each[1], f"{each[1]}@{each[0].url}")]
    if len(matching) == 1:
        return matching[0]
    if matching:
        ways = " or ".join(f"{told(model)}@{endpoint.url}" for endpoint, model in matching)
        raise click.ClickException(f"--register {told(text)}: several servers have it; write {ways}")
    raise click.ClickException(f"--register {told(text)}: no server has it; 'pointsman runner models' lists them")


def _asked(found: tuple[Found, ...]) -> tuple[Found, ...]:
    while True:
        answer = click.prompt(
            "Let the gateway use which? Numbers, 'all', or Enter for none", default="", show_default=False
        )
        words = answer.replace(",", " ").split()
        if words == ["all"]:
            return found
        if all(word.isascii() and word.isdecimal() and 1 <= int(word[:6]) <= len(found) for word in words):
            return tuple(found[number - 1] for number in dict.fromkeys(int(word) for word in words))
        click.echo(f"Write numbers from 1 to {len(found)}, or 'all'")


def register_chosen(
    api: ControlApi, state: RunnerState, directory: Path, chosen: Chosen, *, quiet: bool = False
) -> dict[Found, Registered]:
    """Register each with the gateway, and approve it here. Raises ClickException at the first that fails."""
    registered = {}
    for endpoint, model in chosen.models:
        try:
            read_allowlist(directory / FILE_NAME)  # what cannot be approved is not to be registered
            known = api.register_model(state.runner_id, endpoint, model, chosen.context)
            approve(directory / FILE_NAME, ApprovedModel(known.model_id, endpoint, model))
        except (CallFailed, PrivateFileError) as error:
            raise click.ClickException(f"{told(model)}: {error}") from None
        registered[endpoint, model] = known
        if chosen.context and read_context(known.context) != read_context(chosen.context):
            has = f"context {told(known.context)}" if known.context else "no context"
            change = "change it: PUT /api/v1/ai-models/ID"
            click.echo(f"pointsman: warning: {told(model)} is registered already, with {has}; {change}", err=True)
        if not quiet:
            click.echo(f"Approved {told(model)} at {endpoint.url}; clients call it {told(known.alias)}")
    return registered


def _approved(directory: Path) -> dict[Found, ApprovedModel]:
    """Raises ClickException."""
    try:
        return {(each.endpoint, each.model_identifier): each for each in read_allowlist(directory / FILE_NAME)}
    except PrivateFileError as error:
        raise click.ClickException(str(error)) from None


def show_models(chosen: Chosen, directory: Path, registered: dict[Found, Registered]) -> None:
    """As JSON. Raises ClickException."""
    approved = _approved(directory)
    show_json(
        [
            {
                "base_url": endpoint.url,
                "model_identifier": model,
                "approved": (endpoint, model) in approved,
                "model_id": approved[endpoint, model].model_id if (endpoint, model) in approved else None,
                "alias": registered[endpoint, model].alias if (endpoint, model) in registered else None,
            }
            for endpoint, model in chosen.found
        ]
    )
