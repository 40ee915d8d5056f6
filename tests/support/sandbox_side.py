"""Runs `pointsman` in an interpreter that has no packages but those that requirements/sandbox.txt locks.

Run as `python -m tests.support.sandbox_side ARGUMENTS`.
"""

import importlib.abc
import re
import sys
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "tests.support.sandbox_side")


def locked() -> set[str]:
    """Names of the distributions that a sandbox's machine has."""
    text = (REPOSITORY / "requirements" / "sandbox.txt").read_text()
    return {_normal(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.M)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class OtherDistributions(importlib.abc.MetaPathFinder):
    """Stands before all other finders and has modules of other distributions missing."""

    def __init__(self) -> None:
        allowed = {*locked(), "pointsman"}
        self._missing = {
            module
            for module, distributions in packages_distributions().items()
            if allowed.isdisjoint(map(_normal, distributions))
        }

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        top = name.partition(".")[0]
        if top in self._missing:
            raise ModuleNotFoundError(f"No module named {top!r}", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, OtherDistributions())
    from pointsman.cli.main import main

    main()
