"""What is deprecated works for two minor versions, warns where it is used, and is listed for who upgrades."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from pydelta.deprecation import (
    DEPRECATED,
    DeltaDeprecationWarning,
    Deprecated,
    deprecated_table,
    print_deprecated,
    warn_deprecated,
)

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
SETTING = Deprecated(
    kind="setting", where="a session", old="spark.pydelta.a", new="spark.pydelta.b", since="1.0", gone="1.10"
)
FLAG = Deprecated(kind="flag", where="pydelta x", old="--old", new="--new", since="1.0", gone="1.2")
PLANTED = (SETTING, FLAG, replace(FLAG, old="--plain", new=""))


def minor(version):
    """Major and minor number; refuses what is neither, such as a patch release."""
    major, number = re.fullmatch(r"(\d+)\.(\d+)", version).groups()
    return int(major), int(number)


def problem(row, current):
    """Say what is wrong with a row while a version is developed; None if nothing is.

    The warning has to be in two minor versions: of the same major one, or the last of one and the first of the next.
    """
    since, gone = minor(row.since), minor(row.gone)
    two_later = (since[0], since[1] + 2) <= gone if since[0] == gone[0] else gone >= (since[0] + 1, 1)
    if not two_later:
        return f"{row.old} is deprecated in {row.since}, and {row.gone} is less than two minor versions later"
    if gone <= current:
        return f"{row.gone} drops {row.old}: take the row and the name away"
    return None


@pytest.mark.parametrize(
    ("since", "gone", "current", "expected"),
    [
        ("1.0", "1.2", (0, 1), None),
        ("1.0", "1.12", (1, 3), None),
        ("1.0", "1.1", (0, 1), "less than two"),
        ("1.1", "1.1", (0, 1), "less than two"),
        ("1.9", "1.10", (0, 1), "less than two"),
        ("1.3", "2.0", (1, 3), "less than two"),
        ("1.3", "2.1", (2, 0), None),
        ("2.0", "1.2", (0, 1), "less than two"),
        ("1.0", "1.2", (1, 2), "take the row"),
        ("1.0", "1.2", (2, 0), "take the row"),
    ],
)
def test_the_rule_of_two_minor_versions(since, gone, current, expected):
    row = Deprecated(kind="flag", where="pydelta x", old="--a", new="--b", since=since, gone=gone)
    found = problem(row, current)
    assert found is None if expected is None else expected in found


def test_each_row_lasts_two_minor_versions_and_none_is_overdue():
    current = minor(".".join(VERSION.split(".")[:2]))
    assert [problem(row, current) for row in DEPRECATED if problem(row, current)] == []
    names = [(row.where, row.old) for row in DEPRECATED]
    assert len(set(names)) == len(names) > 30


def test_a_patch_release_deprecates_and_drops_nothing():
    with pytest.raises(AttributeError):
        minor("1.0.1")


def test_the_page_has_the_table():
    page = ROOT / "docs" / "upgrading.md"
    assert deprecated_table() in page.read_text(), f"docs/upgrading.md has to have:\n{deprecated_table()}"
    assert "\n## Deprecated names\n" in page.read_text(), "flags.md links to this heading"


def test_the_table_is_sorted_by_version_as_numbers_and_says_so_if_it_is_empty():
    lines = deprecated_table(PLANTED).splitlines()[2:]
    assert lines == [
        "| `--old` | flag of `pydelta x` | `--new` | 1.0 | 1.2 |",
        "| `--plain` | flag of `pydelta x` | nothing: it is the default | 1.0 | 1.2 |",
        "| `spark.pydelta.a` | setting of `a session` | `spark.pydelta.b` | 1.0 | 1.10 |",
    ]
    assert deprecated_table(()).splitlines()[2:] == ["| nothing | | | | |"]


def test_a_warning_says_what_to_write_and_until_when():
    with pytest.warns(DeltaDeprecationWarning) as seen:
        warn_deprecated("a session", "spark.pydelta.a", rows=PLANTED)
    assert [str(it.message) for it in seen] == [
        "Write spark.pydelta.b instead of spark.pydelta.a, which is deprecated since 1.0; 1.10 drops it."
    ]
    assert seen[0].filename == __file__


def test_a_command_line_says_it_on_standard_error(capsys):
    print_deprecated("pydelta x", "--old", rows=PLANTED)
    print_deprecated("pydelta x", "--plain", rows=PLANTED)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "Warning: --old is now --new; the old name is deprecated since 1.0, and 1.2 drops it.",
        "Warning: --plain is the default; the old name is deprecated since 1.0, and 1.2 drops it.",
    ]


@pytest.mark.parametrize("say", [warn_deprecated, print_deprecated])
def test_nothing_is_deprecated_without_a_row(say):
    with pytest.raises(LookupError, match=r"'--other' of 'pydelta x' has no row"):
        say("pydelta x", "--other", rows=PLANTED)


def test_a_line_of_an_imported_module_warns_once_with_python_s_own_filters(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import pydelta\n"
        "def clean(table):\n"
        "    for _ in range(3):\n"
        "        table.delete(where='id = 1')\n"
        "    table.delete(where='id = 2')\n"
    )
    main = (
        "import pydelta, mine, polars as pl\n"
        "table = pydelta.LocalTable.create('t', pl.DataFrame({'id': [1, 2, 3]}))\n"
        "mine.clean(table)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path)!r}]\n{main}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    warned = [line for line in done.stderr.splitlines() if "DeltaDeprecationWarning" in line]
    assert [re.search(r"mine\.py:(\d+)", line)[1] for line in warned] == ["4", "5"]
    assert all("Write delete(condition=…) instead of delete(where=…)" in line for line in warned)


def test_a_program_can_turn_the_warnings_into_errors_or_off(tmp_path):
    import polars as pl

    import pydelta

    table = pydelta.LocalTable.create(str(tmp_path / "t"), pl.DataFrame({"id": [1, 2]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeltaDeprecationWarning)
        with pytest.raises(DeltaDeprecationWarning):
            table.delete(where="id = 1")
        assert table.version == 0
        warnings.simplefilter("ignore", DeltaDeprecationWarning)
        assert table.delete(where="id = 1").num_deleted_rows == 1


def test_each_deprecated_form_of_python_warns_by_its_own_row():
    """A row that no code names would promise a warning that nobody gets."""
    source = (ROOT / "pydelta/api/python/local.py").read_text()
    for row in DEPRECATED:
        if row.kind == "argument":
            assert f'warn_deprecated("{row.where}", "{row.old}")' in source


def test_the_targets_of_make_are_those_that_it_still_accepts():
    names = re.search(r"^LAKE_TARGETS := (.+)$", (ROOT / "scripts/renamed.mk").read_text(), re.MULTILINE)[1].split()
    rows = {row.old: row.new for row in DEPRECATED if row.kind == "target"}
    assert rows == {f"make {name}": f"scripts/lake {name}" for name in names}
