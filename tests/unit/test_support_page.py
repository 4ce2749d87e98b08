"""The page of versions and stores is drawn of kept runs, and agrees with what the project declares."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pydelta.storage.kinds import KINDS
from pydelta.tools.doctor import doctor
from tests.support.areas import AREAS, SUITES, area_of
from tests.support.page import (
    NOT_RUN,
    OPENED_WITH,
    PAGE,
    STORE_AREAS,
    cell,
    keep,
    kept_runs,
    pythons,
    sparks,
    support_page,
)

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUN = {
    "suite": "fast",
    "python": "3.12.1",
    "spark": None,
    "commit": "abc",
    "date": "2026-01-02",
    "seconds": 90,
    "areas": {
        "properties": {"passed": 1200, "failed": 0, "left_out": 3},
        "store: HDFS": {"passed": 1, "failed": 2, "left_out": 0},
    },
}


def failures(run):
    return sum(counts["failed"] for counts in run["areas"].values())


def line_of(version):
    return ".".join(version.split(".")[:2])


def test_the_page_is_that_of_the_kept_runs():
    assert PAGE.read_text() == support_page(kept_runs()), "draw it again: python -m tests.support"


def test_each_python_that_is_declared_has_run_the_core_and_nothing_failed():
    """The core is the protocol, transactions and stores; the other areas may say that they were not run."""
    core = {"unit: protocol", "unit: txn", "store: local disk", "store: memory", "store: S3, imitated"}
    ran = {python: set() for python in pythons()}
    for run in kept_runs():
        if run["suite"] == "fast":
            ran[line_of(run["python"])] |= set(run["areas"])
    assert {python: core - areas for python, areas in ran.items() if core - areas} == {}


def test_no_kept_run_has_a_failure_and_none_is_of_a_version_that_is_not_declared():
    assert [run for run in kept_runs() if failures(run)] == []
    assert {line_of(run["python"]) for run in kept_runs()} <= set(pythons())
    assert {line_of(run["spark"]) for run in kept_runs() if run["spark"]} <= set(sparks())


def test_the_range_of_python_is_that_of_the_classifiers_and_of_the_script_that_looks_for_one():
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    assert pythons() == [f"3.{minor}" for minor in range(int(low), int(high))]
    assert [f"{major}.{minor}" for major, minor in doctor._PYTHONS] == pythons()
    script = (ROOT / "scripts/check-python").read_text()
    assert re.search(r"in ([\d. |]+)\) found", script)[1].split(" | ") == pythons()


def test_the_range_of_spark_is_that_of_the_lines():
    (asked,) = PROJECT["optional-dependencies"]["spark"]
    low, high = re.fullmatch(r"pyspark>=4\.(\d+),<4\.(\d+)", asked).groups()
    assert sparks() == [f"4.{minor}" for minor in range(int(low), int(high))]


def test_the_table_of_stores_has_each_kind():
    assert list(OPENED_WITH) == [kind.name for kind in KINDS]
    assert set(STORE_AREAS) <= set(OPENED_WITH)
    areas = {area for areas in STORE_AREAS.values() for area in areas}
    found = {area_of(f"tests/contracts/test_store.py::t[{name}]") for name in ("local", "memory", "s3")}
    assert areas == found | {area for area in AREAS.values() if area.startswith("store: ")}


@pytest.mark.parametrize(
    ("runs", "areas", "said"),
    [
        ([], None, NOT_RUN),
        ([RUN], ["store: MinIO"], NOT_RUN),
        ([RUN], ["properties"], "1,200 passed, 3 left out"),
        ([RUN], ["store: HDFS"], "**2 failed**, 1 passed"),
        ([RUN], None, "**2 failed**, 1,201 passed, 3 left out"),
    ],
)
def test_a_cell_says_what_its_runs_gave_or_that_there_was_none(runs, areas, said):
    assert cell(runs, areas) == said


def test_a_failure_shows_on_the_page_and_what_was_not_run_too():
    page = support_page([RUN])
    assert "| without Spark | 3.12.1 | – | 2026-01-02 | `abc` | **2 failed**, 1,201 passed, 3 left out | 2 |" in page
    assert "| properties | not run | 1,200 passed, 3 left out | not run | not run |" in page
    assert "|  | Python 3.11 | Python 3.12.1 | Python 3.13 | Python 3.14 |" in page
    assert re.search(r"^\| 4\.1 \| not run \|", page, re.MULTILINE)


def test_an_area_replaces_that_of_an_earlier_run_and_parts_of_one_commit_become_one_run():
    again = {"properties": {"passed": 7, "failed": 0, "left_out": 0}}
    later = RUN | {"areas": again, "date": "2026-01-03"}
    other = RUN | {"python": "3.13.0"}
    rest = {"store: HDFS": RUN["areas"]["store: HDFS"]}
    assert keep([RUN, other], [later]) == [RUN | {"areas": rest}, other, later]
    assert keep([later], [RUN]) == [RUN]
    assert keep([RUN | {"areas": rest}], [RUN | {"areas": again}]) == [
        RUN | {"areas": {**again, **rest}, "seconds": 180}
    ]


@pytest.mark.parametrize(
    ("nodeid", "area"),
    [
        ("tests/unit/spark/test_x.py::test_y", "unit: spark"),
        ("tests/unit/test_x.py::test_y", "unit: others"),
        ("tests/contracts/test_store.py::test_y[s3]", "store: S3, imitated"),
        ("tests/contracts/test_places.py::test_y[s3n]", "places of tables"),
        ("tests/minio/test_life.py::test_y[versity]", "store: Versity's gateway"),
        ("tests/minio/test_life.py::test_y", "store: MinIO"),
        ("tests/integration/spark/change/test_merge.py::test_y", "DELETE, UPDATE, MERGE"),
    ],
)
def test_a_test_has_an_area(nodeid, area):
    assert area_of(nodeid) == area


def test_each_area_is_about_tests_that_are_there():
    assert [start for start in AREAS if not (ROOT / start).exists()] == []


def test_a_run_writes_its_own_outcome(tmp_path):
    """The counts come from the reports of pytest: one of each outcome, and one that is not chosen."""
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (folder / "test_planted.py").write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken(): raise RuntimeError\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert 0\n"
        "def test_is_skipped(): pytest.skip('no')\n"
        "def test_has_a_broken_fixture(broken): pass\n"
        "@pytest.mark.xfail\n"
        "def test_is_expected_to_fail(): assert 0\n"
        "def test_other(): pass\n"
    )
    given = ["-q", "-p", "no:cacheprovider", "-p", "tests.support.recording", "--record-run", "fast"]
    given += ["-o", "addopts=", "-c", "/dev/null", "--rootdir", str(tmp_path), "-k", "not other", str(folder)]
    code = (
        "import pathlib, sys, pytest; from tests.support import recording\n"
        f"recording.FOLDER = pathlib.Path({str(tmp_path / 'build')!r}); sys.exit(pytest.main({given!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    (path,) = (tmp_path / "build").glob("*.json")
    run = json.loads(path.read_text())
    assert run["areas"] == {"unit: others": {"passed": 1, "failed": 2, "left_out": 3}}
    assert (run["suite"], run["spark"]) == ("fast", None)
    assert run["python"] == ".".join(map(str, sys.version_info[:3]))
    assert path.name == f"fast-python{run['python']}.json"


def test_the_commands_of_the_page_are_those_of_the_suites():
    for suite in SUITES.values():
        assert suite.command in PAGE.read_text()
