"""Write the generated lines of docs/reference/model.md."""

from __future__ import annotations

import ast
import inspect
import textwrap

from tests.model.explore import Explored, Scenario
from tests.model.lake import Rules

WHAT = {
    "append": "an append",
    "delete": "a DELETE of a row",
    "optimize": "OPTIMIZE",
    "restore": "RESTORE to version 0",
    "sink": "a stream's batch",
    "checkpoint": "a checkpoint",
    "cleanup": "the log's clean-up",
    "vacuum": "VACUUM",
    "publish": "a publisher of manifests",
    "v2 checkpoint": "a V2 checkpoint",
    "whole checkpoint": "a full V2 checkpoint",
    "sweep": "the log's clean-up",
    "sweep by hint": "the reference engine's clean-up",
    "sweep at once": "a careless clean-up",
}


def row_of(scenario: Scenario, found: Explored) -> str:
    """One line of the table of scenarios."""
    actors = ", ".join(WHAT[actor.kind] for actor in scenario.actors)
    limits = f"{scenario.ticks} | {scenario.crashes} | {scenario.losses}"
    return f"| {scenario.name} | {actors} | {limits} | {found.states:,} | {found.steps:,} |"


def row_of_rule(rule: str, scenario: str, found: Explored) -> str:
    """One line of the table of rules."""
    said = next(line for line in RULES[rule].split("\n") if line.strip())
    promise, _, how = found.wrong.partition(": ")
    return f"| {said} | {scenario} | `{promise}`: {how} | {len(found.trace)} |"


def _texts() -> dict[str, str]:
    """What each rule says: the text below it in the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(Rules))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = str(text.value.value)
    return found


RULES = _texts()
HEAD = "| scenario | who | ticks | deaths | lost replies | states | steps |\n|---|---|---|---|---|---|---|"
HEAD_OF_RULES = "| without this rule | in | breaks | after steps |\n|---|---|---|---|"
