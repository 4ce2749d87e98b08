"""The words of docstrings, comments and pages are plain English; docs/style.md has the rows."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
THINGS = "file|row|key|line|table|column|version|commit|partition"
BANNED = {
    r"\banew\b": "again",
    r"\bso many\b(?! \w+ that)": "this many",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|later\b|earlier\b|other\b)\w": "is not a",
    rf"\b(?:one|a file|a row|a key|a line|a put|a commit) a (?:{THINGS})\b": "one per",
    r"\b(?:is|are|was|were|be|been|being) told\b|\btold of\b|\b(?:it|which|that|who) tells\b": "reports, prints, shows",
    r"\bTell whether\b": "Return whether",
    r"\bwithout a word\b": "silently, without an error",
    r"\b(?:somebody|whoever)\b": "another writer, the caller, a user",
    r"\bmeanwhile\b": "at the same time, in between",
    r"\bas it is\b": "unchanged, as is",
    r"\bof (?:its|their) own\b": "its own, their own",
    r"\bgone by\b|\bsaid to be\b": "name the actor",
}
"""Forms that nobody reads aloud without stumbling, and what to write instead."""

VERBS = frozenset((ROOT / "tests" / "verbs.txt").read_text().split())
"""With these a docstring of a function or a module begins, in the imperative. Add a verb that is missing."""

TO_REWRITE = ()
"""Rooms whose texts have not been rewritten yet. The list may only shrink."""

SOURCES = sorted(path for root in ("pydelta", "catalog_sync", "jobs") for path in (ROOT / root).rglob("*.py"))
REWRITTEN = [path for path in SOURCES if not str(path.relative_to(ROOT)).startswith(TO_REWRITE)]
PAGES = [
    path
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[bt]e*/README.md")])
    if path.name != "style.md"
]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """Each docstring and comment of a module with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _stumbles(text: str) -> list[str]:
    return [
        f"{found.group(0)!r}: write {better}" for form, better in BANNED.items() for found in re.finditer(form, text)
    ]


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        ast.unparse(item).split(".")[-1] in {"property", "cached_property", "setter"}
        for item in function.decorator_list
    )


def _first_words(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
            text = ast.get_docstring(node)
            if text:
                yield node.lineno, text.split()[0].rstrip(",.:;")


@pytest.mark.parametrize("path", REWRITTEN, ids=_name)
def test_docstrings_and_comments_have_no_banned_form(path):
    found = [f"{path.name}:{line} {item}" for line, text in _texts(path.read_text()) for item in _stumbles(text)]
    assert found == []


@pytest.mark.parametrize("path", REWRITTEN, ids=_name)
def test_the_docstring_of_a_function_begins_with_a_verb(path):
    assert [f"{path.name}:{line} {word}" for line, word in _first_words(path.read_text()) if word not in VERBS] == []


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_pages_have_no_banned_form(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    assert _stumbles(" ".join(text.split())) == []


def test_each_form_and_each_room_is_there():
    assert _stumbles("It is no table, made anew; one a file is told.") != []
    assert [word for _, word in _first_words('def f():\n    """Whether it is."""\n')] == ["Whether"]
    assert "Whether" not in VERBS
    gone = [room for room in TO_REWRITE if not any(_name(path).startswith(room) for path in SOURCES)]
    assert gone == [], "take rooms that are no longer there off the list"
