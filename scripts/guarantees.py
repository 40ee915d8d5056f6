"""Promises and the tests that prove them: `tests/guarantees/*.toml` against `@pytest.mark.guarantee` in the tests.

Markers are read from the source with `ast`, so nothing is imported or collected. The page is written by
`generate_reference.py`.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

_HEAD = """# Guarantees

What Pointsman promises, and the tests that prove each promise. Run one with
`.venv/bin/pytest FILE -k NAME`, all of them with `make test`.
"""


def promises(folder: Path) -> dict[str, dict[str, str]]:
    """Promise by id, by topic (a file's stem). Raises ValueError for an id that two files hold, or an odd entry."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(folder.glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        found[path.stem] = {}
        for name, entry in entries.items():
            if set(entry) != {"promise"} or not re.fullmatch(r"[A-Z]\d+", name):
                raise ValueError(f"{path.name}: [{name}] must be a letter and a number and hold one promise")
            if any(name in topic for topic in found.values()):
                raise ValueError(f"{path.name}: {name} is promised twice")
            found[path.stem][name] = str(entry["promise"])
    return found


def proofs(folder: Path) -> dict[str, list[str]]:
    """The tests (`file::name`, the file relative to the repository) that carry each id."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for name in _ids(node):
                    place = path.relative_to(folder.parent).as_posix()
                    found.setdefault(name, []).append(f"{place}::{node.name}")
    return found


def _ids(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.guarantee":
            for argument in decorator.args:
                yield str(ast.literal_eval(argument))


def guarantees_page(root: Path) -> str:
    """A table per topic: id, promise, tests."""
    tests = proofs(root / "tests")
    parts = [_HEAD]
    for topic, entries in promises(root / "tests" / "guarantees").items():
        parts.append(f"\n## {topic.capitalize()}\n\n| id | promise | tests |\n|---|---|---|\n")
        for name in sorted(entries, key=lambda each: (each[0], int(each[1:]))):
            proof = "<br>".join(f"`{test}`" for test in sorted(tests.get(name, ())))
            parts.append(f"| {name} | {entries[name].replace('|', chr(92) + '|')} | {proof} |\n")
    return "".join(parts)
