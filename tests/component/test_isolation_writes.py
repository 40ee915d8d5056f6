"""What a command can leave behind for its operator to run into, asked of every isolation. Needs root, as CI has."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.sandboxes import OPERATOR, REPOSITORY, Sandbox


def test_our_own_code_cannot_be_changed_even_where_the_command_may_write(inside: Sandbox) -> None:
    """Its operator runs it outside, the next time."""
    source = inside.work / "src"
    package = shutil.copytree(REPOSITORY / "src" / "pointsman", source / "pointsman")
    for path in (source, *source.rglob("*")):
        os.chown(path, OPERATOR, OPERATOR)
    code = """
import os, sys
package = sys.argv[1]
found = []
for attempt in (
    lambda: open(package + "/core/version.py", "a"),
    lambda: open(package + "/new.py", "w"),
    lambda: os.unlink(package + "/__init__.py"),
    lambda: os.rename(package, package + "-moved"),
    lambda: open(os.path.dirname(package) + "/imported_by_chance.py", "w"),
    lambda: open(os.path.dirname(os.path.dirname(package)) + "/note", "w"),
):
    try:
        attempt()
        found.append(0)
    except OSError as error:
        found.append(error.errno)
report(found)
"""
    environment = {"PYTHONPATH": f"{source}:{inside.checkout}"}
    found = inside.report(code, str(package), environment=environment)
    # A module beside the package would be imported as well: the whole directory is on Python's path.
    assert found == [*[errno.EROFS] * 5, 0]


def test_our_own_package_is_there_wherever_it_lies(inside: Sandbox) -> None:
    """`pointsman doctor` runs inside too, from a checkout in a home or below /tmp, which are hidden."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        shutil.copytree(REPOSITORY / "src" / "pointsman", Path(directory, "pointsman"))
        code = "import sys; sys.path.insert(0, sys.argv[1]); import pointsman.cli.main as m; report(m.__file__)"
        environment = {"PYTHONPATH": f"{directory}:{inside.checkout}"}
        assert inside.report(code, directory, environment=environment) == f"{directory}/pointsman/cli/main.py"


def test_what_the_user_owns_outside_is_not_the_commands_to_change(inside: Sandbox) -> None:
    """Root may run it: Pointsman itself, where who calls sudo has installed it."""
    tools = inside.home.parent / "tools"
    tools.mkdir()
    (tools / "program").write_text("kept")
    for path in (tools, tools / "program"):
        os.chown(path, OPERATOR, OPERATOR)
    code = """
import sys
found = []
for name in ("program", "new"):
    try:
        open(sys.argv[1] + "/" + name, "a")
        found.append(0)
    except OSError as error:
        found.append(error.errno)
report(found)
"""
    assert inside.report(code, str(tools)) == [errno.EROFS, errno.EROFS]


def test_control_groups_of_the_host_cannot_be_written_to(inside: Sandbox) -> None:
    """Its user may own some of them, with processes of the host in them."""
    code = """
import os
writable = [path for path, _, _ in os.walk("/sys") if os.statvfs(path).f_flag & os.ST_RDONLY == 0]
report(writable)
"""
    assert inside.report(code) == []


@pytest.mark.parametrize("line", ["#!/usr/bin/env -S -u {}/../id sh", "#!{}/../../.ssh/id"])
def test_a_scripts_first_line_opens_no_hidden_directory(inside: Sandbox, line: str) -> None:
    """An earlier command may have written it."""
    script = inside.work / "agent.sh"
    script.write_text(line.format(inside.home / ".ssh" / "x") + "\n")
    script.chmod(0o755)
    key = inside.home / ".ssh" / "id"
    key.chmod(0o755)
    program = inside.work / "link"
    program.symlink_to(key)
    for each in (script, program):
        command = inside.run("sh", "-c", f"{each}; cat {key}")
        assert "key" not in command.stdout
        direct = inside.run(str(each))
        assert "key" not in direct.stdout
