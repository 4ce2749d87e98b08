"""The public interface changes only as the changelog says: each change since the last release is named there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.api.entries import CURRENT, RELEASED, Entry, kept, text_of
from tests.api.page import CHANGELOG, PAGE, breaking, unreleased, upgrading_page
from tests.api.python_names import MODULES, default_text, imported_by_pages, signature
from tests.api.rule import ADDED, BREAKING, DEPRECATED, bullets_of, changes, problems
from tests.api.surface import grammar_rules, keywords, surface

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OPEN, TABLE, HOURS = "function pydelta.open", "class pydelta.Table", "flag pydelta vacuum --hours"
GAP = "error pydelta.errors.GapError"
OLD = (
    "class pydelta.Table  (uri, mode='error', *, limit=None)\n"
    "method pydelta.Table.delete  (condition=None)\n"
    "function pydelta.open  (uri, *, options=None)\n"
    "flag pydelta vacuum --hours  value\n"
    "flag pydelta vacuum --plan  flag\n"
    "flag pydelta vacuum --mode  value default 'a'\n"
    "flag vacuum.py -t  is --table\n"
    "setting spark.pydelta.a  50\n"
    "setting spark.databricks.delta.a  is spark.pydelta.a\n"
    "error pydelta.errors.GapError  DELTA_GAP, is DeltaError\n"
    "condition DELTA_GAP  KD000\n"
    "variable PYDELTA_A\n"
    "keyword VACUUM: LITE\n"
    "deprecated flag pydelta vacuum --retain  --hours, since 1.0, gone in 1.2\n"
)


def parsed(text):
    return [Entry.parse(line) for line in text.splitlines()]


def test_the_kept_interface_is_that_of_the_code():
    found = surface()
    assert CURRENT.read_text() == text_of(found, CURRENT), "write it again: python -m tests.api"
    keys = [entry.key for entry in found]
    assert sorted({f"{kind} {name}" for kind, name in keys if keys.count((kind, name)) > 1}) == []
    assert len(found) > 1500


def test_the_changelog_names_each_change_since_the_last_release():
    assert problems(changes(kept(RELEASED), kept(CURRENT)), unreleased(CHANGELOG.read_text()), VERSION) == []


def test_the_page_has_the_deprecated_names_and_the_breaking_changes():
    page = PAGE.read_text()
    assert page == upgrading_page(page, CHANGELOG.read_text()), "write it again: python -m tests.api"
    assert page.count("\n- ", page.index("\n## Breaking changes since")) > 10


def test_the_breaking_changes_are_those_of_every_version():
    changelog = (
        "# C\n\n## Unreleased\n\n### Breaking\n- a [b](docs/c.md)\n  d\n\n### Added\n- e\n\n"
        "## 1.0\n\n### Breaking\n- f\n"
    )
    assert breaking(changelog) == "- a [b](c.md)\n  d\n- f"
    assert unreleased(changelog).count("\n- ") == 2


def test_the_changelog_has_the_headings_of_its_format_once_each():
    sections = re.split(r"^## .+\n", CHANGELOG.read_text(), flags=re.MULTILINE)[1:]
    known = ["Breaking", "Deprecated", "Added", "Changed", "Removed", "Fixed", "Security"]
    found = [re.findall(r"^### (.+)$", section, re.MULTILINE) for section in sections]
    for headings in found:
        assert headings == [name for name in known if name in headings]
    assert any("Breaking" in headings for headings in found)


def test_the_released_interface_is_whole():
    kinds = {entry.kind for entry in kept(RELEASED)}
    assert {"module", "class", "method", "function", "command", "flag", "job", "setting", "property"} <= kinds
    assert {"statement", "keyword", "error", "condition", "variable", "deprecated", "extra", "target"} <= kinds
    assert len(kept(RELEASED)) > 1500


def test_the_public_modules_are_those_that_pages_import():
    assert imported_by_pages() - set(MODULES) == set()
    assert len(imported_by_pages()) > 3


def test_a_line_is_read_back_as_it_was_written():
    for entry in kept(CURRENT):
        assert Entry.parse(str(entry)) == entry


@pytest.mark.parametrize(
    ("line", "becomes", "heading"),
    [
        ("", "variable PYDELTA_B", ADDED),
        ("", "method pydelta.Table.clone  (target)", ADDED),
        ("variable PYDELTA_A", "", BREAKING),
        ("method pydelta.Table.delete  (condition=None)", "", BREAKING),
        ("setting spark.pydelta.a  50", "setting spark.pydelta.a  60", BREAKING),
        (f"{OPEN}  (uri, *, options=None)", f"{OPEN}  (uri, *, options={{}})", BREAKING),
        (f"{OPEN}  (uri, *, options=None)", f"{OPEN}  (uri, zone, *, options=None)", BREAKING),
        (f"{OPEN}  (uri, *, options=None)", f"{OPEN}  (uri, *, zone, options=None)", BREAKING),
        (f"{OPEN}  (uri, *, options=None)", f"{OPEN}  (path, *, options=None)", BREAKING),
        (f"{OPEN}  (uri, *, options=None)", f"{OPEN}  (uri)", BREAKING),
        (f"{OPEN}  (uri, *, options=None)", f"{OPEN}  (uri, *, options=None, zone=None)", ADDED),
        (f"{OPEN}  (uri, *, options=None)", f"{OPEN}  (uri=None, *, options=None)", ADDED),
        (f"{OPEN}  (uri, *, options=None)", f"{OPEN}  (uri, options=None)", ADDED),
        (f"{TABLE}  (uri, mode='error', *, limit=None)", f"{TABLE}  (uri, a=1, mode='error', *, limit=None)", BREAKING),
        (f"{TABLE}  (uri, mode='error', *, limit=None)", f"{TABLE}  (uri, *, mode='error', limit=None)", BREAKING),
        (f"{TABLE}  (uri, mode='error', *, limit=None)", f"{TABLE}  (uri, mode='error', *, limit=None, **a)", ADDED),
        ("flag pydelta vacuum --plan  flag", "flag pydelta vacuum --plan  value", BREAKING),
        (f"{HOURS}  value", f"{HOURS}  value required", BREAKING),
        (f"{HOURS}  value", f"{HOURS}  value repeatable", ADDED),
        (f"{HOURS}  value", f"{HOURS}  value default 1", BREAKING),
        ("flag pydelta vacuum --mode  value default 'a'", "flag pydelta vacuum --mode  value default 'b'", BREAKING),
        ("flag vacuum.py -t  is --table", "flag vacuum.py -t  is --tables", BREAKING),
        (
            "setting spark.databricks.delta.a  is spark.pydelta.a",
            "setting spark.databricks.delta.a  only true",
            BREAKING,
        ),
        (f"{GAP}  DELTA_GAP, is DeltaError", f"{GAP}  DELTA_HOLE, is DeltaError", BREAKING),
        (f"{GAP}  DELTA_GAP, is DeltaError", f"{GAP}  DELTA_GAP, is DeltaError, is OSError", ADDED),
        ("condition DELTA_GAP  KD000", "condition DELTA_GAP  42000", BREAKING),
        ("keyword VACUUM: LITE", "", BREAKING),
        (f"{HOURS}  value", f"deprecated {HOURS}  --keep, since 1.1, gone in 1.3", DEPRECATED),
        ("", "deprecated setting a session spark.pydelta.a  spark.pydelta.b, since 1.1, gone in 1.3", DEPRECATED),
    ],
)
def test_a_planted_change_belongs_under_a_heading_and_fails_without_a_line_there(line, becomes, heading):
    assert line in OLD
    current = parsed(OLD.replace(f"{line}\n", "") if line else OLD) + parsed(becomes)
    (found,) = changes(parsed(OLD), current)
    assert found.heading == heading
    assert len(problems([found], "", "1.1")) == 1
    words = problems([found], "", "1.1")[0].partition("; ")[0].partition(" with ")[2].replace(" and ", " ")
    assert problems([found], f"### {heading}\n- It is about {words}, and more.\n", "1.1") == []
    others = {BREAKING, DEPRECATED, ADDED} - {heading}
    assert all(problems([found], f"### {other}\n- It is about {words}.\n", "1.1") for other in others)


def test_a_flag_that_is_renamed_with_its_old_name_kept_is_not_breaking():
    current = OLD.replace("flag pydelta vacuum --hours  value\n", "flag pydelta vacuum --keep  value\n")
    current += "deprecated flag pydelta vacuum --hours  --keep, since 1.1, gone in 1.3\n"
    found = changes(parsed(OLD), parsed(current))
    assert [(it.heading, it.entry.name) for it in found] == [
        (ADDED, "pydelta vacuum --keep"),
        (DEPRECATED, "flag pydelta vacuum --hours"),
    ]
    said = "### Added\n- `pydelta vacuum --keep`\n\n### Deprecated\n- `--hours` of `pydelta vacuum`\n"
    assert problems(found, said, "1.1") == []
    without = current.replace("deprecated flag pydelta vacuum --hours", "deprecated flag pydelta update --hours")
    assert BREAKING in {it.heading for it in changes(parsed(OLD), parsed(without))}


@pytest.mark.parametrize(
    ("version", "kept_promise"), [("1.1", False), ("1.1.9", False), ("1.2.0rc1", True), ("2.0", True)]
)
def test_a_deprecated_name_works_until_the_version_that_was_promised(version, kept_promise):
    found = changes(
        parsed(OLD), parsed(OLD.replace("deprecated flag pydelta vacuum --retain", "deprecated flag a --b"))
    )
    (removed,) = [it for it in found if it.heading == BREAKING]
    said = problems([removed], "### Breaking\n- `pydelta vacuum --retain` is gone.\n", version)
    assert said == ([] if kept_promise else [f"it was promised to work until 1.2; {removed}"])


def test_what_is_inside_a_new_class_command_or_module_is_named_with_it():
    new = parsed(
        "class pydelta.New  (a)\nmethod pydelta.New.b  ()\nmodule pydelta.c\nfunction pydelta.c.d  ()\n"
        "command pydelta e  ()\nflag pydelta e --f  flag\njob g.py  ()\nflag g.py -h  value\n"
    )
    found = changes(parsed(OLD), [*parsed(OLD), *new])
    assert [it.entry.name for it in found] == ["pydelta.New", "pydelta.c", "pydelta e", "g.py"]


def test_a_line_names_what_it_quotes_and_a_heading_only_its_own_lines():
    found = bullets_of(
        "### Added\n- `DeltaTable.delete(condition)` and\n  `pydelta vacuum --a`\n- x\n\n### Fixed\n- `y`\n"
    )
    assert {"DeltaTable.delete", "delete", "pydelta vacuum --a", "--a", "vacuum"} <= found["Added"][0]
    assert found["Added"][1] == set()
    assert found["Fixed"] == [{"y"}]


def test_a_signature_has_names_kinds_and_defaults():
    def planted(self, a: int, b=(1, "x"), *rest, c: str | None = None, d=ROOT, e=b"", **more): ...

    assert signature(planted, bound=planted) == "(a, b=(1, 'x'), *rest, c=None, d=..., e=b'', **more)"
    assert default_text([1]) == "[1]"
    assert default_text([object()]) == "..."


def test_the_keywords_of_a_statement_are_those_of_its_rules_and_terminals():
    rules = grammar_rules(
        'start: a ";"?\n\n?a: "ONE"i _B? name\n   | C _item+\n'
        '_B: "TWO"i | /THREE\\s+FOUR\\b/i\nC.2: /FIVE\\b/i\n_item: "SIX"i\n'
    )
    assert keywords(rules, "a") == {"ONE", "TWO", "THREE FOUR", "FIVE"}
