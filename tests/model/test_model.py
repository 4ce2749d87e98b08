"""Every promise holds in every state of each scenario, breaks without each rule, and the page says what was seen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.model.explore import explore
from tests.model.lake import Rules
from tests.model.page import RULES, row_of, row_of_rule
from tests.model.scenarios import SCENARIOS, SHOWN_BY

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "model.md").read_text()
LARGE = {
    "two vacuums",
    "publisher beside vacuum",
    "two publishers",
    "the log and the files",
    "a writer that outlasts the log",
    "sidecars named again",
    "sidecars and two clean-ups",
    "sidecars named again twice",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.in_turn] if name in LARGE else []) for name in SCENARIOS]
)
def test_every_promise_holds(name):
    found = explore(SCENARIOS[name])
    assert found.wrong == "", "\n".join(found.trace)
    assert row_of(SCENARIOS[name], found) in PAGE


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[pytest.mark.in_turn] if SHOWN_BY[rule] in LARGE else []) for rule in SHOWN_BY]
)
def test_a_promise_breaks_without_a_rule(rule):
    found = explore(SCENARIOS[SHOWN_BY[rule]], Rules()._replace(**{rule: False}))
    assert found.wrong
    assert row_of_rule(rule, SHOWN_BY[rule], found) in PAGE


def test_every_rule_is_shown_and_said():
    assert sorted(SHOWN_BY) == sorted(Rules._fields)
    assert set(RULES) == set(Rules._fields)


def test_the_page_names_code_that_is_there():
    steps = PAGE.split("## The steps")[1].split("\n## ")[0]
    named = 0
    path = ""
    for name in re.findall(r"`([^`]+)`", steps):
        if name.endswith(".py"):
            path = name
            continue
        tree = ast.parse((ROOT / path).read_text())
        kinds = (ast.FunctionDef, ast.ClassDef)
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, kinds)}, f"{path} has no {name}"
        named += 1
    assert named > 20


def test_the_page_names_every_promise():
    from tests.model import promises

    for promise in (*promises.ALWAYS, *promises.IN_THE_END):
        assert f"| `{promise.__name__}` |" in PAGE
