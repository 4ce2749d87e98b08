"""Which parts of the tests a run of CI takes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest
from selection.choosing import is_its_third

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("ci_turns", ROOT / ".ci" / "turns.py")
turns = importlib.util.module_from_spec(_spec)
sys.modules["ci_turns"] = turns
_spec.loader.exec_module(turns)


def test_a_room_whose_files_changed_runs_and_of_several_one_by_turns():
    assert {turns.room_of(["jobs/ingest_stream.py"], number) for number in range(9)} == {"kafka"}
    several = [turns.ROOMS[name][0] for name in ("minio", "serve")]
    assert {turns.room_of(several, number) for number in range(18)} == {"minio", "serve"}


def test_each_room_and_each_part_has_its_turn():
    numbers = range(turns.THIRDS * len(turns.ROOMS))
    assert {turns.room_of(["README.md"], number) for number in numbers} == set(turns.ROOMS)
    first = {turns.in_turn(turns.STACK, [], number)[1][0] for number in range(len(turns.STACK))}
    assert first == set(turns.STACK)


def test_each_test_of_each_room_has_its_turn():
    names = [f"tests/room/test_room.py::test_{number}" for number in range(12)]
    runs = [turns.decide(number, ["README.md"]) for number in range(turns.LEFT_OUT_PARTS * len(turns.ROOMS))]
    ran = {(run.rooms, name) for run in runs for name in names if is_its_third(name, run.and_part)}
    assert ran == {(room, name) for room in turns.ROOMS for name in names}


def test_what_a_change_concerns_runs_and_of_the_others_one_with_every_fourth_commit():
    changed = ["images/presto/Dockerfile", "README.md"]
    for number in range(1, 9):
        run, left = turns.parts_of(changed, number)
        assert (run[0], len(run)) == ("presto", 2 if number % 4 == 0 else 1)
        assert sorted([*run, *left]) == sorted(turns.STACK)
    runs = [turns.parts_of([], number)[0] for number in range(4 * len(turns.STACK))]
    assert {name for run in runs for name in run} == set(turns.STACK)


@pytest.mark.parametrize("parts", [turns.ROOMS, turns.STACK])
def test_what_a_part_is_about_is_there(parts):
    missing = [begin for begins in parts.values() for begin in begins if not list(ROOT.glob(f"{begin.rstrip('/')}*"))]
    assert not missing


def test_a_change_of_compose_s_files_concerns_parts_of_the_stack():
    concerned = {
        path.name: set(turns.parts_of([f"compose/{path.name}"], 1)[0]) for path in (ROOT / "compose").glob("*.yml")
    }
    assert concerned == {
        "bi.yml": {"same", "bi"},
        "airflow.yml": {"same", "airflow"},
        "changes.yml": {"same", "cdc"},
        "common.yml": {"same"},
        "core.yml": {"same"},
        "stores.yml": {"same", "hdfs", "versity"},
        "profiles.yml": {"same", "kafka", "serve", "presto", "iceberg", "notebook", "monitor"},
    }


def test_rooms_are_the_folders_of_servers_and_turns_are_known_to_the_run():
    from tests.conftest import SERVERS

    assert set(turns.ROOMS) == SERVERS
    script = (ROOT / ".ci" / "run").read_text()
    cases = script.partition("case $turn in hdfs | versity | secure | users) wanted")[2].partition("case $turn in\n")[2]
    unknown = [name for name in turns.STACK if name not in cases]
    assert not unknown


def test_stores_of_turns_are_rows_that_need_no_mount():
    from tests.stores.rows import BY_NAME

    assert [BY_NAME[name].name for name in turns.STORES] == ["local", "minio"]


def test_the_oldest_spark_runs_with_what_knows_its_version_and_each_line_has_its_turn():
    assert turns.sparks_of(["pydelta/engines/spark/jvm.py"], 0) == ["4.1.0"]
    assert turns.sparks_of(["pydelta/engines/spark/jvm.py"], 2) == ["4.1.0"]
    assert turns.sparks_of(["pydelta/engines/spark/jvm.py"], 6) == ["4.1.0", "4.1"]
    assert [turns.sparks_of(["README.md"], number) for number in range(4)] == [[], [], ["4.1.0"], []]
    assert [turns.sparks_of([], number)[0] for number in range(2, 18, 4)] == list(turns.SPARKS)
    for name in turns.OLDEST:
        assert list(ROOT.glob(f"{name}*")), name


def test_each_python_has_its_turn_and_one_runs_where_packages_changed():
    assert [turns.pythons_of(["README.md"], number) for number in range(4)] == [[], [], [], ["3.11"]]
    assert [turns.pythons_of([], number)[0] for number in range(3, 19, 4)] == list(turns.PYTHONS)
    assert [turns.pythons_of(["pyproject.toml"], number) for number in (0, 4)] == [["3.11"], ["3.12"]]
    for name in turns.PACKAGES:
        assert (ROOT / name).is_file(), name


def test_the_versions_in_turn_are_those_that_the_project_declares():
    from pydelta.engines.spark_versions import SPARKS
    from tests.support.page import pythons

    lines = [f"{major}.{minor}" for major, minor in SPARKS]
    assert list(turns.SPARKS) == [f"{lines[0]}.0", *lines]
    assert list(turns.PYTHONS) == pythons()


@pytest.mark.parametrize(
    ("number", "changed", "expected"),
    [
        (0x0000000, [], ("hdfs", "1/24", "1/80", "1/6", ["kafka"], ())),
        (0x0000002, [], ("hdfs", "3/24", "3/80", "3/6", [], ("4.1.0",))),
        (0xE0932F6, [], ("minio", "23/24", "55/80", "5/6", [], ("4.1",))),
        (
            0x0000017,
            ["pydelta/storage/hdfs.py", "images/kafka/pom.xml"],
            ("minio", "24/24", "24/80", "6/6", ["hdfs", "kafka"], ()),
        ),
        (0x0000018, ["pydelta/engines/spark/jvm.py"], ("metastore", "1/24", "25/80", "1/6", ["notebook"], ("4.1.0",))),
    ],
)
def test_a_run_takes_what_is_said_of_its_commit(number, changed, expected):
    found = turns.decide(number, changed)
    parts = list(found.stack_parts)
    assert (found.rooms, found.and_part, found.programs_part, found.stack_turn, parts, found.sparks) == expected
    assert sorted([*parts, *found.stack_others]) == sorted(turns.STACK)


def test_over_the_commits_each_part_of_everything_runs_equally_often():
    runs = [turns.decide(number, ["README.md"]) for number in range(720 * len(turns.STACK))]
    often = 3 * len(turns.STACK)
    assert Counter(run.and_part for run in runs) == {f"{part}/24": 10 * often for part in range(1, 25)}
    assert Counter(run.programs_part for run in runs) == {f"{part}/80": 3 * often for part in range(1, 81)}
    assert Counter(run.stack_turn for run in runs) == {f"{part}/6": 40 * often for part in range(1, 7)}
    assert Counter(run.store for run in runs) == dict.fromkeys(turns.STORES, 120 * often)
    assert Counter(run.rooms for run in runs) == dict.fromkeys(turns.ROOMS, 40 * often)
    assert Counter(part for run in runs for part in run.stack_parts) == dict.fromkeys(turns.STACK, 180)
    assert Counter(version for run in runs for version in run.sparks) == dict.fromkeys(turns.SPARKS, 15 * often)
    assert Counter(version for run in runs for version in run.pythons) == dict.fromkeys(turns.PYTHONS, 15 * often)
    assert {run.stack_seconds for run in runs} == {"1980"}


def test_with_all_profiles_nothing_is_left_to_other_commits_and_parts_go_by_turns_still():
    some, everything = (turns.decide(7, ["images/presto/pom.xml"], everything=asked) for asked in (False, True))
    assert everything.stack_parts == (*some.stack_parts, *some.stack_others)
    assert (everything.rooms, everything.stack_others, everything.stack_seconds) == ("all", (), "")
    assert (everything.sparks, everything.pythons) == (turns.SPARKS, turns.PYTHONS)
    assert (everything.and_part, everything.stack_turn) == (some.and_part, some.stack_turn)


def test_a_suite_of_another_project_runs_with_each_commit_and_each_of_its_parts_in_turn():
    from tests.suites.rows import suites

    there = suites()
    assert set(turns.others()) == set(there)
    assert turns.decide(9, [], everything=True).other_suite == "--turn 9"
    for name, suite in there.items():
        for changed in (f"tests/suites/packages/{name}.txt", *suite.concerns):
            chosen = {turns.other_suite([changed], number).split()[0] for number in range(len(there))}
            assert chosen == {name} | {other for other, row in there.items() if changed in row.concerns}
    assert [place for suite in there.values() for place in suite.concerns if not list(ROOT.glob(f"{place}*"))] == []
    ran = set()
    for number in range(40 * len(there)):
        name, _, turn = turns.other_suite(["README.md"], number).split()
        ran.add((name, int(turn) % there[name].parts))
    assert ran == {(name, part) for name, suite in there.items() for part in range(suite.parts)}


@pytest.mark.parametrize("asked", ["", "1"])
def test_the_run_s_shell_reads_what_is_printed_and_uses_all_of_it(asked):
    script = (ROOT / ".ci" / "run").read_text()
    names = [field.name for field in fields(turns.Turns)]
    assert [name for name in names if f"${name}" not in script and f"${{{name}" not in script] == []
    (line,) = [line for line in script.splitlines() if line.startswith("turns=")]
    show = f'set -euo pipefail; {line}; eval "$turns"; declare -p {" ".join(names)}'
    done = subprocess.run(
        ["bash", "-c", show],
        cwd=ROOT,
        env=os.environ | {"ALL_PROFILES": asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'declare -- rooms="{"all" if asked else ""}' in done.stdout
    assert done.stdout.count("declare -a") == 4
    assert done.stdout.count("declare --") == len(names) - 4
