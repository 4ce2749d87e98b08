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

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("ci_turns", ROOT / ".ci" / "turns.py")
turns = importlib.util.module_from_spec(_spec)
sys.modules["ci_turns"] = turns
_spec.loader.exec_module(turns)


def test_a_room_whose_files_changed_runs_and_of_several_one_by_turns():
    assert {turns.room_of(["jobs/ingest_stream.py"], number) for number in range(9)} == {"kafka"}
    several = [turns.ROOMS[name][0] for name in ("minio", "serve")]
    assert {turns.room_of(several, number) for number in range(9)} == {"minio", "serve"}


def test_each_room_and_each_part_has_its_turn():
    assert {turns.room_of(["README.md"], number) for number in range(len(turns.ROOMS))} == set(turns.ROOMS)
    first = {turns.in_turn(turns.STACK, [], number)[1][0] for number in range(len(turns.STACK))}
    assert first == set(turns.STACK)


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


def test_the_oldest_spark_runs_with_what_knows_its_version_and_with_every_fourth_commit():
    assert turns.runs_oldest_spark(["pydelta/engines/spark/jvm.py"], 0)
    assert [turns.runs_oldest_spark(["README.md"], number) for number in range(4)] == [False, False, True, False]
    for name in turns.OLDEST:
        assert list(ROOT.glob(f"{name}*")), name


@pytest.mark.parametrize(
    ("number", "changed", "expected"),
    [
        (0x0000000, [], ("hdfs", "1/24", "1/80", "1/6", ["kafka"], "no")),
        (0x0000002, [], ("metastore", "3/24", "3/80", "3/6", [], "yes")),
        (0xE0932F6, [], ("serve", "23/24", "55/80", "5/6", [], "yes")),
        (
            0x0000017,
            ["pydelta/storage/hdfs.py", "images/kafka/pom.xml"],
            ("minio", "24/24", "24/80", "6/6", ["hdfs", "kafka"], "no"),
        ),
        (0x0000018, ["pydelta/engines/spark/jvm.py"], ("serve", "1/24", "25/80", "1/6", ["notebook"], "yes")),
    ],
)
def test_a_run_takes_what_is_said_of_its_commit(number, changed, expected):
    found = turns.decide(number, changed)
    parts = list(found.stack_parts)
    assert (found.rooms, found.and_part, found.programs_part, found.stack_turn, parts, found.oldest) == expected
    assert sorted([*parts, *found.stack_others]) == sorted(turns.STACK)


def test_over_the_commits_each_part_of_everything_runs_equally_often():
    runs = [turns.decide(number, ["README.md"]) for number in range(240 * len(turns.STACK))]
    often = len(turns.STACK)
    assert Counter(run.and_part for run in runs) == {f"{part}/24": 10 * often for part in range(1, 25)}
    assert Counter(run.programs_part for run in runs) == {f"{part}/80": 3 * often for part in range(1, 81)}
    assert Counter(run.stack_turn for run in runs) == {f"{part}/6": 40 * often for part in range(1, 7)}
    assert Counter(run.store for run in runs) == dict.fromkeys(turns.STORES, 120 * often)
    assert Counter(run.rooms for run in runs) == dict.fromkeys(turns.ROOMS, 48 * often)
    assert Counter(part for run in runs for part in run.stack_parts) == dict.fromkeys(turns.STACK, 60)
    assert Counter(run.oldest for run in runs) == {"yes": 60 * often, "no": 180 * often}
    assert {run.stack_seconds for run in runs} == {"1980"}


def test_with_all_profiles_nothing_is_left_to_other_commits_and_parts_go_by_turns_still():
    some, everything = (turns.decide(7, ["images/presto/pom.xml"], everything=asked) for asked in (False, True))
    assert everything.stack_parts == (*some.stack_parts, *some.stack_others)
    assert (everything.rooms, everything.stack_others, everything.stack_seconds, everything.oldest) == (
        "all",
        (),
        "",
        "yes",
    )
    assert (everything.and_part, everything.stack_turn) == (some.and_part, some.stack_turn)


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
    assert done.stdout.count("declare -a") == 2
    assert done.stdout.count("declare --") == len(names) - 2
