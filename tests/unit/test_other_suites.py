"""The suites of other projects: rows, reasons, the judgement of a run, and the page of the kept outcomes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites.judge import complaints, differences
from tests.suites.page import PAGE, page
from tests.suites.rows import Reason, matches, suites

ROOT = Path(__file__).resolve().parents[2]
SUITES = suites()
PROGRAM = """\
import pytest

class TestOne:
    def test_passes(self):
        pass

    def test_fails(self):
        assert 1 == 2

    @pytest.mark.parametrize("value", ["[a]"])
    def test_is_left_out(self, value):
        raise AssertionError

class TestTwo:
    @pytest.mark.skip(reason="not here")
    def test_is_skipped(self):
        pass

    @pytest.mark.xfail(reason="not yet")
    def test_is_expected(self):
        raise ValueError

    @pytest.fixture
    def broken(self):
        raise OSError("no")

    def test_cannot_begin(self, broken):
        pass

    @pytest.fixture
    def leaves(self):
        yield
        raise OSError("not tidy")

    def test_cannot_end(self, leaves):
        pass
"""


def outcome(**named):
    return {name: {"outcome": kind.replace("_", " "), "text": "said"} for name, kind in named.items()}


def reason(kind, *tests):
    return Reason(kind=kind, tests=tests, reason="because")


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_has_its_packages_pinned_and_what_it_runs_and_its_outcomes(name):
    suite = SUITES[name]
    lines = [line.split(";")[0] for line in suite.packages.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if "==" not in line] == []
    assert suite.version[0].isdigit()
    assert suite.outcomes()
    programs = [path for path in suite.runs if path.startswith("programs/")]
    assert all((suite.packages.parents[1] / path).is_file() for path in programs)


@pytest.mark.parametrize("name", SUITES)
def test_the_kept_outcomes_are_right_by_the_reasons(name):
    suite = SUITES[name]
    assert complaints(suite.outcomes(), suite.reasons(), whole=True) == []
    assert all(len(row.reason) > 20 for row in suite.reasons())


def test_the_page_is_that_of_the_kept_outcomes():
    assert page(SUITES.values()) == PAGE.read_text()


def test_a_suite_s_note_stands_in_its_section_even_if_nothing_fails_and_nothing_is_left_out():
    suite = dataclasses.replace(SUITES["mlflow"], note="What\nto know.")
    assert suite.reasons() == []
    assert page([suite]).endswith(f"\n\n## {suite.title}\n\nWhat to know.\n")
    assert "##" not in page([SUITES["mlflow"]])


def test_a_pattern_has_only_the_star_and_is_the_whole_name():
    assert matches("a.py::Test*::test[x-?]", "a.py::TestMany::test[x-?]")
    assert not matches("a.py::Test*::test[x-?]", "a.py::TestMany::test[x-y]")
    assert not matches("a.py::Test", "a.py::Test::test")


def test_a_failure_without_a_reason_is_wrong_and_so_is_a_reason_without_a_failure():
    found = outcome(a="failed", b="passed", c="left_out")
    (said,) = complaints(found, [reason("left_out", "c")], whole=True)
    assert said == "a failed without a reason: said"
    assert complaints(found, [reason("fails", "a"), reason("left_out", "c")], whole=True) == []
    (said,) = complaints(found, [reason("fails", "a", "gone*"), reason("left_out", "c")], whole=True)
    assert said == "'gone*' matches no test that fails."
    (said,) = complaints(found, [reason("fails", "a"), reason("left_out", "c", "a")], whole=True)
    assert said == "'a' matches no test that is left out."
    said = complaints(found, [reason("fails", "*"), reason("left_out", "c")], whole=True)
    assert said == ["b passed, but '*' gives a reason for its failure."]


def test_a_part_may_lack_tests_but_not_have_failures_without_a_reason():
    assert complaints(outcome(a="failed"), [reason("fails", "a", "gone")], whole=False) == []
    assert len(complaints(outcome(a="failed", b="failed"), [reason("fails", "a")], whole=False)) == 1
    assert complaints({}, [], whole=False) == ["No test ran."]


def test_other_outcomes_than_the_kept_ones_are_named():
    kept = outcome(a="passed", b="failed", c="skipped")
    assert differences(outcome(a="passed", b="failed", c="skipped"), kept, whole=True) == []
    found = outcome(a="failed", d="passed")
    assert differences(found, kept, whole=False) == [
        "a: failed, kept is: passed",
        "d: passed, kept is: not there",
    ]
    assert differences(found, kept, whole=True)[1:3] == [
        "b: not there, kept is: failed",
        "c: not there, kept is: skipped",
    ]


def run_program(folder, part=(1, 1), left_out=()):
    """Run the program above under the plugin; its outcomes."""
    program, asked, results = folder / "program.py", folder / "asked.json", folder / "results.json"
    program.write_text(PROGRAM)
    asked.write_text(json.dumps({"left_out": left_out, "part": part, "results": str(results)}))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={folder}"]
    done = subprocess.run(
        [*command, "-p", "tests.suites.outcomes", program],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYDELTA_SUITE": str(asked), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1, 5), done.stdout + done.stderr
    return json.loads(results.read_text())


def test_the_plugin_records_what_becomes_of_each_test(tmp_path):
    found = run_program(tmp_path, left_out=["*::test_is_left_out[*"])
    kinds = {name.rpartition("::")[2]: item["outcome"] for name, item in found.items()}
    assert kinds == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_is_left_out[[a]]": "left out",
        "test_is_skipped": "skipped",
        "test_is_expected": "expected to fail",
        "test_cannot_begin": "failed",
        "test_cannot_end": "failed",
    }
    texts = {name.rpartition("::")[2]: item["text"] for name, item in found.items()}
    assert "assert 1 == 2" in texts["test_fails"]
    assert "OSError: no" in texts["test_cannot_begin"]
    assert "not here" in texts["test_is_skipped"]
    assert texts["test_is_expected"] == "not yet"


def test_parts_take_each_class_once(tmp_path):
    found = [run_program(tmp_path, part=(part, 5)) for part in range(1, 6)]
    names = [name for part in found for name in part]
    assert len(names) == len(set(names)) == 7
    assert {len(part) for part in found} <= {0, 3, 4, 7}
