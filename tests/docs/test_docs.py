"""The documents hold: links resolve, code references exist, the generated pages are fresh."""

import ast
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.core.limits import Limits

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def symbols(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            found.update(f"{node.name}.{each.name}" for each in functions)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_the_architectures_references_exist() -> None:
    references = re.findall(r"`(src/[\w/]+\.py):([\w.]+)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert len(references) > 20
    missing = [f"{path}:{name}" for path, name in references if name not in symbols(ROOT / path)]
    assert missing == []


def test_the_architecture_fits_on_two_pages() -> None:
    assert (ROOT / "ARCHITECTURE.md").read_text().count("\n") < 140


def test_the_generated_pages_are_fresh() -> None:
    script = str(ROOT / "scripts" / "generate_reference.py")
    finished = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout


def test_every_limit_says_what_happens_beyond_it() -> None:
    page = (ROOT / "docs/reference/limits.md").read_text()
    rows = [(name, note.strip()) for name, note in re.findall(r"\| `(\w+)` \| [^|]+ \| ([^|]*) \|", page)]
    assert {name for name, _ in rows} >= {each.name for each in dataclasses.fields(Limits)}
    assert [name for name, note in rows if not note] == []
