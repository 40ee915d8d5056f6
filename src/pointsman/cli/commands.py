"""The top of the command line: where a command of a group stands that somebody looks for at the top."""

import click


class Commands(click.Group):
    """A group that knows its groups' commands: `pointsman run` is told of `pointsman sandbox run`."""

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
