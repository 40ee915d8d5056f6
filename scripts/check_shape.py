"""Holds the code to its shape: lengths of functions and modules, parameters, patches per 100 tests.

Over a limit, name the concept that was missed; don't raise the limit.
"""

import ast
import re
import sys
from pathlib import Path

LONGEST_FUNCTION = 60
LONGEST_MODULE = 400
MOST_PARAMETERS = 6
MOST_PATCHES_PER_100_TESTS = 3.0
_PATCH = re.compile(r"\bmock\.patch|\bpatch\(|\bpatch\.object|\bmonkeypatch\.(?:setattr|setitem|delattr)")
_BARE_TASK = re.compile(r"(?<!loop\(\))\b(?:asyncio\.)(?:create_task|ensure_future)\(")
_BANNED_NAMES = re.compile(r"(Manager|Service|Helper|Utils?|Handler|Impl)$")


def complaints(path: Path) -> list[str]:
    """What is out of shape in one module."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    found = [f"{path}: {lines} lines; a module has at most {LONGEST_MODULE}"] if lines > LONGEST_MODULE else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += _function_complaints(path, node)
        elif isinstance(node, ast.ClassDef) and _BANNED_NAMES.search(node.name):
            found.append(f"{path}:{node.lineno}: {node.name}; name what it is, not that it is in charge")
    if path.parts[0] == "src" and (match := _BARE_TASK.search(text)):
        line = text.count("\n", 0, match.start()) + 1
        found.append(f"{path}:{line}: a task that nobody owns; use a TaskGroup or an owner that cancels it")
    return found


def _function_complaints(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    found = []
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if length > LONGEST_FUNCTION:
        found.append(f"{path}:{node.lineno}: {node.name} has {length} lines; at most {LONGEST_FUNCTION}")
    arguments = node.args
    count = len(
        [a for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg not in ("self", "cls")]
    )
    if count > MOST_PARAMETERS and path.parts[0] == "src":
        found.append(f"{path}:{node.lineno}: {node.name} takes {count} parameters; at most {MOST_PARAMETERS}")
    return found


def patches_per_100_tests(paths: list[Path]) -> float:
    """How often tests reach into code instead of giving it arguments."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    tests = sum(len(re.findall(r"^\s*(?:async )?def test_", text, re.M)) for text in texts)
    return 100 * sum(len(_PATCH.findall(text)) for text in texts) / max(tests, 1)


def main() -> int:
    """Print what is out of shape; 1 if anything is."""
    found: list[str] = []
    for folder in ("src", "tests", "scripts", "bench", "examples"):
        for path in sorted(Path(folder).rglob("*.py")):
            if "work" not in path.parts and not path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
                found += complaints(path)
    patches = patches_per_100_tests(sorted(Path("tests").rglob("test_*.py")))
    if patches > MOST_PATCHES_PER_100_TESTS:
        found.append(f"tests: {patches:.1f} patches per 100 tests; at most {MOST_PATCHES_PER_100_TESTS}")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
