"""The table of stages and the gateway say the same: stages and their order, refusals, places in the code, promises."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest
from scripts.guarantees import promises

from pointsman.core import model_errors
from pointsman.core.model_errors import BudgetUncounted, ListenerError, NoProviderAvailable
from pointsman.proxy.stages import Stages
from tests.docs.test_docs import symbols

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "stages.md").read_text()
ROWS = [re.split(r" *(?<!\\)\| *", line.strip("| ")) for line in PAGE.splitlines() if line.count("|") == 6][2:]
TOPICS = ("callers", "budgets", "policies", "context", "audit", "receipts")


def asked_in_order() -> list[str]:
    """The names of the stages, as a request meets them."""
    names = {each.name: object() for each in dataclasses.fields(Stages)}
    stages = Stages(**names)  # type: ignore[arg-type]  # any object shows the order
    name_of = {id(stage): name for name, stage in names.items()}
    before, after = ([name_of[id(each)] for each in group] for group in (stages.before, stages.after))
    return [*before, "response_policy", *after]


def test_the_page_has_every_stage_in_the_order_in_which_it_is_asked() -> None:
    assert [row[0].strip("`") for row in ROWS if row[0].startswith("`")] == asked_in_order()
    assert [row[0] for row in ROWS if not row[0].startswith("`")] == ["admission", "attempts"]


def test_the_page_has_every_refusal_of_the_data_listener_with_its_status() -> None:
    listeners: list[type[ListenerError]] = [
        each for each in vars(model_errors).values() if isinstance(each, type) and issubclass(each, ListenerError)
    ]
    known = {(str(each.status), each.code) for each in listeners if each.code}
    known |= {
        (str(BudgetUncounted.status), BudgetUncounted.code),
        (str(NoProviderAvailable.status), NoProviderAvailable.code),
    }
    assert set(re.findall(r"(\d{3}) `(\w+)`", " ".join(row[2] for row in ROWS))) == known


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
def test_where_a_stage_is_in_the_code_exists(row: list[str]) -> None:
    [(path, name)] = re.findall(r"`(src/[\w/]+\.py):([\w.]+)`", row[3])
    assert name in symbols(ROOT / path)


def test_the_page_names_every_promise_about_a_stage_and_no_other() -> None:
    topics = promises(ROOT / "tests" / "guarantees")
    named = [name for row in ROWS for name in row[4].split()]
    assert set(named) - set(topics["attempts"]) == {name for topic in TOPICS for name in topics[topic]}
    assert all(row[4] for row in ROWS)


def test_every_stage_is_composed_by_a_gateway_or_said_to_be_free() -> None:
    source = (ROOT / "src/pointsman/gateway/stages/composition.py").read_text()
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    [composed] = [node for node in calls if ast.unparse(node.func) == "Stages"]
    filled = {each.arg for each in composed.keywords}
    assert {row[0].strip("`") for row in ROWS if row[1].startswith("free")} == set(asked_in_order()) - filled
