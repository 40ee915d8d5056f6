"""The option `--context`, the same for routes and models: what is taken out of long conversations."""

import click

from pointsman.core.context_options import CONTEXT_RULE, read_context


def _checked(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    try:
        read_context(text or "")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


context_option = click.option(
    "--context",
    callback=_checked,
    metavar="OPTIONS",
    help=f"What is taken out of long conversations: {CONTEXT_RULE}.",
)
"""None where it was not given."""
