"""docs/reference/limits.md: every bound with what the code says beside it."""

import ast
import dataclasses
import inspect
import re
from typing import Any

from pointsman.core.limits import KIB, MIB, Limits, RunnerLimits
from pointsman.gateway.grpc.server import GrpcLimits
from pointsman.gateway.probe import ProbeLimits
from pointsman.gateway.provider_health import HealthLimits
from pointsman.gateway.rest.server import ListenerLimits
from pointsman.gateway.rest.strict_request import BodyLimits

_HEAD = "# Limits\n\nThe bounds, as the code has them.\n"
_TABLE = "\n| limit | value | note; what happens beyond it |\n|---|---|---|\n"
_RUNNERS = """
A line of 64 KiB passes whatever it consists of. In JSON a quote takes two bytes and a control character six, and a
runner may escape more than it has to; so `data` is measured as the text that it stands for, and everything else in its
frame as it was sent. A frame without escapes has `frame_bytes` on the wire; `escaped_frame_bytes` is room for 64 KiB
of which every byte is escaped. Data that is too long within a frame that is not is the failure of one request; a frame
that is too long ends the runner's connection with code 1009, and all its requests with `runner_offline`.
"""
_PARTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("The data plane", (Limits,)),
    ("Between a gateway and a runner", (RunnerLimits,)),
    ("The gateway's gRPC listener", (GrpcLimits,)),
    ("The gateway's control listener", (ListenerLimits, BodyLimits)),
    ("Verification of a route", (ProbeLimits,)),
    ("A look at all providers", (HealthLimits,)),
)
_TEXTS = {RunnerLimits: _RUNNERS}


def limits_page(note: str) -> str:
    """The page."""
    parts = (
        f"\n## {title}\n{_TABLE}" + "".join(row for kind in kinds for row in _rows(kind)) + _TEXTS.get(kinds[0], "")
        for title, kinds in _PARTS
    )
    return note + _HEAD + "".join(parts)


def _rows(kind: Any) -> list[str]:
    source = inspect.getsource(kind)
    notes = _docstrings(source)
    for each in re.finditer(r"^    (\w+): .*?#\s*(.+)$", source, re.M):
        notes.setdefault(each[1], each[2])
    return [
        f"| `{each.name}` | {_amount(each.name, each.default)} | {notes.get(each.name, '')} |\n"
        for each in dataclasses.fields(kind)
    ]


def _docstrings(source: str) -> dict[str, str]:
    """What stands below the fields of a class."""
    (made,) = ast.parse(source).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for field, below in zip(made.body, made.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def _amount(name: str, value: object) -> str:
    if name.endswith("seconds"):
        return f"{value:g} s"
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value // MIB} MiB" if value % MIB == 0 else f"{value // KIB} KiB"
    return f"{value:,}" if isinstance(value, int) else str(value)
