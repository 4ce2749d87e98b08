"""What docstrings and pages name is there: modules, their members, files, and the numbers of decisions."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections import Counter
from pathlib import Path

from catalog_sync.iceberg.entry import ICEBERG_PROPERTY
from catalog_sync.targets import ENABLED_PROPERTY, TABLE_PROPERTY
from pydelta.settings.maintenance import policy_names
from pydelta.tools.ui.catalog.preview import PREVIEW_PROPERTY

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("pydelta", "catalog_sync", "jobs")
DOTTED = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)(?:\(\))?`")
FILE = re.compile(
    rf"`((?:{'|'.join(PACKAGES)}|tests|docs|scripts|images|trino_conf|benchmarks)/[A-Za-z_.][\w./-]*\w)/?`"
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_TABLES = {
    TABLE_PROPERTY,
    ENABLED_PROPERTY,
    ICEBERG_PROPERTY,
    "pydelta.log.compactionInterval",
    "pydelta.iceberg.formatVersion",
    PREVIEW_PROPERTY,
}
OTHERS = {*PROJECT["entry-points"], *policy_names(), *OF_TABLES}
"""Entry points, and properties of tables, which have the engine's name before them."""


def _docstrings():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = ast.get_docstring(node)
                    if text:
                        yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text


def _pages():
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]):
        if path.name != "CHANGELOG.md":  # tells of what was
            yield str(path.relative_to(ROOT)), path.read_text()


def _is_there(name):
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return part in getattr(found, "__annotations__", {})
            found = getattr(found, part)
        return True
    return False


def test_every_module_and_member_that_is_named_is_there():
    missing, looked = [], 0
    for where, text in [*_docstrings(), *_pages()]:
        for name in sorted(set(DOTTED.findall(text))):
            if name not in OTHERS:
                looked += 1
                if not _is_there(name):
                    missing.append(f"{where}: {name}")
    assert missing == []
    assert looked > 30


def test_every_file_that_is_named_is_there():
    named = [(where, name) for where, text in [*_docstrings(), *_pages()] for name in sorted(set(FILE.findall(text)))]
    assert [f"{where}: {name}" for where, name in named if not (ROOT / name).exists()] == []
    assert len(named) > 50


def test_each_decision_has_a_number_of_its_own():
    files = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    numbers = Counter(path.name[:4] for path in files)
    assert [number for number, count in numbers.items() if count > 1] == []
    for path in files:
        assert path.read_text().startswith(f"# {path.name[:4]} "), path.name
