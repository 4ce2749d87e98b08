"""Seeds keep every promise; planted faults break one, and are shrunk to a few operations; a seed is always the same."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pydelta.engines.arrow.engine import ArrowEngine
from tests.simulation.arrow import KINDS
from tests.simulation.plan import FAULTS, Step, draw_plan
from tests.simulation.run import named, run_seed, shrink
from tests.simulation.world import Odds

ROOT = Path(__file__).resolve().parents[2]
KEPT = [
    line.split()[0]
    for line in (Path(__file__).with_name("kept.txt")).read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)  # hooks that fail on purpose say so
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(40))
def test_a_seed_keeps_every_promise(seed):
    outcome = run_seed(str(seed))
    assert outcome.wrong == "", "\n".join(outcome.trace)
    assert outcome.versions > 0


@pytest.mark.parametrize("number", range(20))
def test_a_seed_of_both_engines_keeps_every_promise(number):
    outcome = run_seed(named(4 * number))
    assert outcome.wrong == "", "\n".join(outcome.trace)
    assert outcome.versions > 0


def test_the_engine_without_a_jvm_does_each_of_its_operations():
    done, doing = set(), {}
    for number in range(60):
        for note in run_seed(named(4 * number)).trace:
            if begun := re.fullmatch(r"#\d+ round \d+ ([abc]): (.*) p=. x=.", note):
                doing[begun[1]] = begun[2]
            elif note.endswith(": done"):
                done.add(doing[note[0]])
    assert done >= set(KINDS.values())


def test_a_row_that_it_does_not_find_is_found_out(monkeypatch):
    plain = ArrowEngine.match_rows

    def all_but_the_last(self, *given):
        found = dict(plain(self, *given))
        if len(found) > 1:
            found.popitem()
        return found

    monkeypatch.setattr(ArrowEngine, "match_rows", all_but_the_last)
    wrong = [outcome.wrong for number in range(40) if (outcome := run_seed(named(4 * number))).wrong]
    assert wrong
    assert all(text.startswith("serial") for text in wrong)


def test_seeds_that_failed_once_keep_every_promise():
    assert len(KEPT) > 0
    for seed in KEPT:
        outcome = run_seed(seed)
        assert outcome.wrong == "", "\n".join(outcome.trace)


@pytest.mark.parametrize(
    ("fault", "odds", "promise"),
    [
        ("overwriting writer", Odds(), "gapless"),
        ("vacuum without retention", Odds(), "whole|readable"),
        ("crowd", Odds(lies=500), "gapless"),
    ],
    ids=["a writer that overwrites", "a VACUUM without retention", "a store that lies one time in 500"],
)
def test_a_planted_fault_is_found_and_shrunk(fault, odds, promise):
    seeds = (str(seed) for seed in range(2_000))
    outcome = next(outcome for seed in seeds if (outcome := run_seed(seed, fault=fault, odds=odds)).wrong)
    assert re.match(promise, outcome.wrong), outcome.wrong
    small = shrink(outcome, fault=fault, odds=odds)
    assert small.wrong.partition(":")[0] == outcome.wrong.partition(":")[0]
    assert len(small.steps) <= len(outcome.steps)
    gone = {step.number for step in outcome.steps} - {step.number for step in small.steps}
    again = run_seed(outcome.seed, fault=fault, odds=odds, without=gone)
    assert (again.wrong, again.trace) == (small.wrong, small.trace)


def test_without_the_planted_fault_the_same_seeds_keep_every_promise():
    assert [outcome.wrong for seed in range(8) if (outcome := run_seed(str(seed), fault="crowd")).wrong] == []


def test_one_seed_is_one_run_and_another_is_another():
    one, two, other = run_seed("7"), run_seed("7"), run_seed("8")
    assert one.trace == two.trace != other.trace
    assert len(one.trace) > 20


def test_all_that_can_go_wrong_does_in_some_seed():
    """A world in which nothing ever dies, and no reply is lost, would keep every promise."""
    notes = " ".join(note for seed in range(40) for note in run_seed(str(seed)).trace)
    for what in (
        "-- dies before",
        "-- dies after",
        "-- fails",
        ", reply lost",
        "-- late",
        "late: ",
        "-- already exists",
    ):
        assert what in notes


def test_every_kind_of_operation_is_drawn():
    drawn = {step.kind for seed in range(300) for step in draw_plan(str(seed))[0]}
    assert drawn > {"append", "delete", "hide", "update", "upsert", "overwrite", "optimize", "restore", "vacuum"}
    assert drawn > {"checkpoint", "manifests", "purge", "compact", "drop partition"}
    assert draw_plan("1") == draw_plan("1") != draw_plan("2")
    assert isinstance(draw_plan("1", FAULTS[0])[0][0], Step)


def test_the_command_prints_its_seeds_and_a_failure_can_be_seen_again():
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "3", "--from", "1f2e3d4c"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seeds {0x1F2E3D4} to {0x1F2E3D4 + 2}: 3 in" in done.stdout


def test_two_processes_share_the_seeds_of_a_call():
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "4", "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "seeds 0 to 3: 4 in " in done.stdout
