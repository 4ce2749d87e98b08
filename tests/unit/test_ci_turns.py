"""Which parts of the tests a run of CI takes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("ci_turns", ROOT / ".ci" / "turns.py")
turns = importlib.util.module_from_spec(_spec)
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


def test_rooms_are_the_folders_of_servers_and_turns_are_known_to_the_run():
    from tests.conftest import SERVERS

    assert set(turns.ROOMS) == SERVERS
    script = (ROOT / ".ci" / "run").read_text()
    cases = script.partition("case $turn in hdfs | versity | secure) wanted")[2].partition("case $turn in\n")[2]
    unknown = [name for name in turns.STACK if name not in cases]
    assert not unknown


def test_the_oldest_spark_runs_with_what_knows_its_version_and_with_every_fourth_commit():
    assert turns.runs_oldest_spark(["pydelta/engines/spark/jvm.py"], 0)
    assert [turns.runs_oldest_spark(["README.md"], number) for number in range(4)] == [False, False, True, False]
    for name in turns.OLDEST:
        assert list(ROOT.glob(f"{name}*")), name
    assert "read -r oldest" in (ROOT / ".ci" / "run").read_text()
