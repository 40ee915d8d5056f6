"""Every `pointsman` command that a page shows exists, with every option that it is shown with."""

import re
import shlex
from pathlib import Path

import click
import pytest

from pointsman.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "cli.md")]
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|[\s(|/])pointsman ((?:\w).*)$")


def shown_commands(page: str) -> list[list[str]]:
    """The words behind `pointsman` of each command in the code blocks."""
    lines = [line for block in _BLOCK.findall(page) for line in block.replace("\\\n", " ").splitlines()]
    found = [_COMMAND.search(line) for line in lines]
    return [_words(match[1]) for match in found if match is not None]


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text.replace("…", ""), comments=True)
    except ValueError:  # a quote that ends on another line
        words = text.split()
    ends = [at for at, word in enumerate(words) if word in ("--", "|", "&", ";", "||", "&&")]
    return words[: min(ends, default=len(words))]


def unknown(words: list[str]) -> list[str]:
    """What of a command does not exist."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest and rest[0][0].isalpha():
        child = command.get_command(click.Context(command), rest[0].rstrip(")"))
        if child is None:
            return [f"no command {rest[0]}"]
        command, rest = child, rest[1:]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "--version"}
    given = [re.split(r"[=)]", word)[0] for word in rest if re.match(r"--?[a-z]", word)]
    return [f"{command.name} has no {option}" for option in given if option not in options]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_that_a_page_shows_exist(page: Path) -> None:
    assert {
        f"{' '.join(words)}: {each}" for words in shown_commands(page.read_text()) for each in unknown(words)
    } == set()


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    page = "```\nsudo x/pointsman sandbox run --exposed x \\\n  --user y -- python --verbose\npointsman serve\n```\n"
    assert [unknown(words) for words in shown_commands(page)] == [["run has no --exposed"], ["no command serve"]]
