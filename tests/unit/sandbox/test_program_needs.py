"""What a program that an earlier command may have written shows the next one: nothing but installed programs."""

import os
from pathlib import Path

import pytest

from pointsman.sandbox.visibility import Bind, program_needs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for path in ("home/.ssh", "home/tools/bin", "home/tools/lib", "work"):
        (tmp_path / path).mkdir(parents=True)
    for path in ("home/.ssh/id", "home/tools/bin/python"):
        (tmp_path / path).write_bytes(b"\x7fELF")
        (tmp_path / path).chmod(0o755)
    return tmp_path / "home"


def needs(program: Path, work: Path, *, changeable: bool = True) -> set[str]:
    found: set[Bind] = set(
        program_needs(str(program), os.environ["PATH"], lambda _: True, (str(work),) if changeable else ())
    )
    return {bind.path for bind in found if bind.path.startswith(str(work.parent / "home"))}


@pytest.mark.parametrize(
    "line", ["#!/usr/bin/env -S -u {home}/.ssh/../.ssh/id sh", "#!{home}/.ssh/id", "#!{home}/tools/bin/../../.ssh/id"]
)
def test_a_script_in_the_working_directory_opens_no_hidden_directory(home: Path, line: str) -> None:
    script = home.parent / "work" / "agent.sh"
    script.write_text(line.format(home=home) + "\n")
    assert needs(script, script.parent) == set()


def test_a_link_in_the_working_directory_opens_no_hidden_directory(home: Path) -> None:
    link = home.parent / "work" / "agent"
    link.symlink_to(home / ".ssh" / "id")
    assert needs(link, link.parent) == set()


def test_a_virtual_environment_in_the_working_directory_finds_its_interpreter(home: Path) -> None:
    link = home.parent / "work" / "python"
    link.symlink_to(home / "tools" / "bin" / "python")
    assert needs(link, link.parent) == {str(home / "tools" / "bin"), str(home / "tools" / "lib")}


def test_what_no_command_could_write_is_followed_anywhere(home: Path) -> None:
    link = home.parent / "work" / "agent"
    link.symlink_to(home / ".ssh" / "id")
    assert needs(link, link.parent, changeable=False) == {str(home / ".ssh")}
