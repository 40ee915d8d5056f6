"""The top of the command line: which commands there are, and where one of a group stands that is looked for here."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import click


class Commands(click.Group):
    """Each command is the one of that name in `pointsman.cli`, loaded when it is asked for: a command in a loop, or in
    front of an agent, does not wait for what the others need.

    It knows its groups' commands: `pointsman run` is told of `pointsman sandbox run`.
    """

    def __init__(self, *args: Any, modules: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = frozenset(modules)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return None
        command: click.Command = getattr(import_module(f"pointsman.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            places = " or ".join(f"'{ctx.info_name} {group} {name}'" for group in self._groups_with(ctx, name))
            if places:
                raise click.UsageError(f"No such command '{name}'. Did you mean {places}?", ctx)
        return super().resolve_command(ctx, args)

    def _groups_with(self, ctx: click.Context, name: str) -> list[str]:
        groups = {each: self.get_command(ctx, each) for each in self.list_commands(ctx)}
        return [
            each
            for each, group in groups.items()
            if isinstance(group, click.Group) and group.get_command(ctx, name) is not None
        ]
