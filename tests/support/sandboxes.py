"""The isolations, each set up as its users have it: with root, and as a person without."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import kept

REPOSITORY = Path(__file__).parents[2]
OPERATOR = 12345
"""The number of a person without root, whom this host does not know."""
REPORT = """
import json, socket
def report(value):
    with socket.create_connection(("127.0.0.1", 3128), 5) as door:
        door.sendall(json.dumps(value).encode())
"""
"""How a command inside tells what it found: through the only thing that it can reach."""

# The checkout may lie below a directory that only root may enter, so it is mounted where everybody may.
_AS_OPERATOR = 'mount --bind "$1" "$2" && shift 2 && exec setpriv --reuid "$0" --regid "$0" --clear-groups "$@"'


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One isolation, and the person who uses it from a directory of their home."""

    isolation: str
    home: Path
    checkout: Path

    @property
    def work(self) -> Path:
        return self.home / "work"

    @property
    def python(self) -> str:
        """An interpreter that the person may run."""
        return str(self.checkout / Path(sys.executable).relative_to(REPOSITORY))

    def supervisor(self, *argv: str) -> list[str]:
        """What runs `argv` inside."""
        words = [self.python, "-m", "tests.support.supervisor", self.isolation, str(self.work), *argv]
        return self.as_operator(*words) if self.isolation == "bwrap" else words

    def as_operator(self, *argv: str) -> list[str]:
        """What runs `argv` outside, as the person."""
        mount = ["unshare", "--mount", "sh", "-c", _AS_OPERATOR, str(OPERATOR), str(REPOSITORY), str(self.checkout)]
        return [*mount, *argv]

    def environment(self, **more: str) -> dict[str, str]:
        """Of the supervisor."""
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "PYTHONPATH": f"{self.checkout}/src:{self.checkout}",
            "OPERATOR": f"{OPERATOR}:{self.home}",
            **more,
        }

    def run(self, *argv: str, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `argv` inside, to its end."""
        return kept(
            subprocess.run(
                self.supervisor(*argv),
                env=self.environment(**(environment or {})),
                cwd=self.checkout if self.isolation == "netns" else "/",
                capture_output=True,
                text=True,
                timeout=40,
                check=False,
            )
        )

    def report(self, code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
        """What a Python program inside tells by `report`."""
        told = {"REPORT": "1", **(environment or {})}
        finished = self.run(self.python, "-c", REPORT + code, *arguments, environment=told)
        assert finished.returncode == 0, finished.stderr
        return json.loads(finished.stdout)


@contextlib.contextmanager
def sandbox(isolation: str) -> Iterator[Sandbox]:
    """An isolation, and a home with a key in it. Needs root, as CI has."""
    assert os.geteuid() == 0, "these tests make namespaces and become somebody else: run them as root, as CI does"
    assert shutil.which("bwrap"), "bubblewrap is missing: make setup installs it"
    # Not below /tmp: that is another one inside anyway, so nothing would be proved of the home.
    base = Path(tempfile.mkdtemp(prefix="pointsman-test-", dir="/srv" if Path("/srv").is_dir() else "/opt"))
    try:
        base.chmod(0o755)
        checkout = base / "checkout" if isolation == "bwrap" else REPOSITORY
        if isolation == "bwrap":
            checkout.mkdir()
        made = Sandbox(isolation, base / "home", checkout)
        for path in (made.home, made.work, made.home / ".ssh"):
            path.mkdir()
        (made.home / ".ssh" / "id").write_text("key")
        for path in (made.home, *made.home.rglob("*")):
            os.chown(path, OPERATOR, OPERATOR)
        yield made
    finally:
        shutil.rmtree(base)
