"""The notebooks of the stack as they are committed: without outputs, and their last cells check what they show."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "images" / "notebook" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path, kind):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == [
        "01-first-table", "02-changes-and-time-travel", "03-streams", "04-trino-and-maintenance",
    ]  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_is_committed(path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert [cell["outputs"] for cell in code if cell["outputs"]] == []
    assert {cell["execution_count"] for cell in code} == {None}
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_last_cell_asserts_and_gives_the_cluster_back(path):
    assert json.loads(path.read_text())["cells"][-1]["cell_type"] == "code"
    last = ast.parse(cells(path, "code")[-1])
    checks = [node for node in ast.walk(last) if isinstance(node, ast.Assert)]
    assert len(checks) >= 4
    named = {name.id for check in checks for name in ast.walk(check.test) if isinstance(name, ast.Name)}
    before = {
        name.id
        for source in cells(path, "code")[:-1]
        for name in ast.walk(ast.parse(source))
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    assert len(named & before) >= 3, "it checks what cells above have found"
    assert "spark.stop()" in ast.unparse(last)
    assert re.search(r"print\(f['\"]Right: ", ast.unparse(last)), "run-notebooks looks for it"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_is_python_and_every_step_is_told(path):
    for source in cells(path, "code"):
        ast.parse(source)
    texts = cells(path, "markdown")
    assert texts[0].startswith("# ")
    assert sum(text.startswith("## ") for text in texts) >= 4
