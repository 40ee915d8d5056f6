"""The `pointsman` command."""

import click

from pointsman import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pointsman")
def main() -> None:
    """Pointsman routes the inference of sandboxed agents through one door, https://inference.local."""
