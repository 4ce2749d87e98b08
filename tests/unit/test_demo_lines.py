"""What the demo shows while it runs: a step a line, in a terminal of 80 columns."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest

from jobs.demo.__main__ import CHAPTERS
from jobs.demo.stage import Stage
from pydelta.api.console.terminal import Terminal

DEMO = Path(__file__).resolve().parents[2] / "jobs" / "demo"
LONGEST_VALUE = "customer-13"  # what is filled into a title; flights are counted in six digits


def _titles() -> list[tuple[str, str]]:
    found = []
    for path in sorted(DEMO.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "stage.step":
                title = node.args[0]
                parts = title.values if isinstance(title, ast.JoinedStr) else [title]
                text = "".join(part.value if isinstance(part, ast.Constant) else LONGEST_VALUE for part in parts)
                found.append((path.name, text))
    return found


def test_the_titles_are_found():
    assert len(_titles()) > 25


@pytest.mark.parametrize(("file", "title"), _titles())
def test_a_step_and_its_time_take_one_line(file, title):
    out = io.StringIO()
    stage = Stage(spark=None, folder=Path(), terminal=Terminal(file=out, width=80))
    with stage.step(title):
        pass
    said = out.getvalue().replace(" 0.0 s", " 123.4 s").splitlines()
    assert len(said) == 1, f"{file}: {title}"
    assert len(said[0]) <= 80


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_title_of_a_chapter_fits(name):
    out = io.StringIO()
    Terminal(file=out, width=80).rule(CHAPTERS[name][0])
    assert CHAPTERS[name][0] in out.getvalue()
