"""What make verify says and how it ends, for hops that are right, wrong, broken or not reached; no stack is there."""

from __future__ import annotations

import datetime as dt

import pytest
from leaks import secret

from jobs.verify.__main__ import Choice, all_hops
from jobs.verify.lake import Lake, Names, leftovers
from jobs.verify.plan import (
    Answer,
    Hop,
    State,
    Timing,
    exit_code,
    lines_of,
    percentile,
    run_plan,
    summary,
    table_of,
)
from jobs.verify.rest import RestReader
from pydelta.errors import InvalidArgumentError, StorageError

NOW = dt.datetime(2026, 11, 23, 15, 30, tzinfo=dt.UTC)
DEFAULTS = Choice.of({})


def right(text="7 rows"):
    return Answer(expected=text, found=text, right=True)


def hop(name, work=right, needs=()):
    return Hop(name=name, work=work, hint=f"look at {name}", needs=needs)


def ran(*hops):
    told = []
    outcomes = run_plan(hops, told.append, errors=(StorageError,))
    assert told == outcomes
    return outcomes


def test_every_hop_right_ends_with_0_and_a_line_each():
    outcomes = ran(hop("store"), hop("load", needs=("store",)))
    assert exit_code(outcomes) == 0
    (line,) = lines_of(outcomes[1])
    assert line.startswith("ok ")
    assert line.endswith("load: expected and found 7 rows")
    assert summary(outcomes, 61.4) == ["The stack is right: 2 hops, values as Polars has them, 61 s."]


def test_a_hop_that_finds_something_else_says_what_was_expected_and_what_to_do_next():
    outcomes = ran(hop("hive", lambda: Answer(expected="7 rows", found="8 rows", right=False)), hop("delta"))
    assert [outcome.state for outcome in outcomes] == [State.WRONG, State.RIGHT]
    assert exit_code(outcomes) == 4
    head, *rest = lines_of(outcomes[0])
    assert head.startswith("WRONG ")
    assert head.endswith("hive")
    assert [line.split(maxsplit=1) for line in rest] == [
        ["expected", "7 rows"], ["found", "8 rows"], ["next", "look at hive"],
    ]  # fmt: skip
    assert summary(outcomes, 3)[1:] == ["  wrong: hive"]


def test_an_error_makes_its_hop_wrong_without_the_trace_and_stops_only_what_needs_it():
    def broken():
        raise StorageError("The store said no.\n\tat java.base/Thread.run(Thread.java:1)")

    outcomes = ran(hop("store", broken), hop("load", needs=("store",)), hop("rows", needs=("load",)), hop("trino"))
    assert [outcome.state for outcome in outcomes] == [State.WRONG, State.NOT_RUN, State.NOT_RUN, State.RIGHT]
    assert "The store said no." in outcomes[0].found
    assert "java" not in "".join(lines_of(outcomes[0]))
    assert lines_of(outcomes[2])[0].endswith("rows: needs what was not right: load")
    assert exit_code(outcomes) == 4
    assert "1 wrong, 2 not run" in summary(outcomes, 1)[0]


def test_what_an_error_says_to_do_next_goes_before_what_the_plan_says():
    def broken(hint):
        def work():
            raise StorageError("No.", hint=hint)

        return work

    first, second = ran(hop("a", broken("Free some space.")), hop("b", broken(None)))
    assert (first.hint, second.hint) == ("Free some space.", "look at b")


def test_a_fault_of_the_plan_itself_is_not_taken_for_an_answer():
    with pytest.raises(ZeroDivisionError):
        ran(hop("store", lambda: 1 // 0))


def test_a_run_without_hops_is_not_right():
    assert exit_code([]) == 4
    assert "not right" in summary([], 0)[0]


@pytest.mark.parametrize(("share", "value"), [(0.5, 5.0), (0.95, 10.0), (0.9, 9.0), (0.0, 1.0), (1.0, 10.0)])
def test_percentiles_are_values_that_were_measured(share, value):
    assert percentile([float(number) for number in range(10, 0, -1)], share) == value


def test_there_is_no_percentile_of_nothing():
    assert percentile([], 0.5) is None


def test_times_stand_beside_their_target_and_what_was_never_seen_is_said():
    table = table_of(
        [
            Timing(name="catalog delta", seconds=(0.5, 1.0, 2.0), target=5),
            Timing(name="catalog hive", seconds=(4.0, 6.0), target=5),
            Timing(name="catalog late", seconds=(), target=60),
        ]
    )
    assert [line.split()[-5:] for line in table[1:3]] == [
        ["3", "1.00", "2.00", "5", "met"], ["2", "4.00", "6.00", "5", "missed"],
    ]  # fmt: skip
    assert table[3].endswith("never seen")
    assert table_of([]) == []


@pytest.mark.parametrize("rest", [None, RestReader(address="iceberg:8181", token=secret("token"))])
@pytest.mark.parametrize("presto", [None, "presto:8080"])
@pytest.mark.parametrize("kafka", [None, "kafka:9092"])
def test_the_plan_s_hops_have_names_of_their_own_and_need_earlier_ones_alone(kafka, presto, rest):
    """A need that is misspelt would never keep a hop from running."""
    lake = Lake(names=Names.at(NOW), spark=None, trino=None, presto=presto, rest=rest, conf={})
    earlier = []
    for found in all_hops(lake, Choice.of({"VERIFY_KAFKA": kafka or ""})):
        assert set(found.needs) <= set(earlier), found.name
        assert found.name not in earlier
        assert found.hint
        earlier.append(found.name)
    for step in ("load", "DELETE", "UPDATE", "MERGE", "ADD COLUMN", "VACUUM"):
        assert {f"{step}: Spark", f"{step}: Trino, catalog delta", f"{step}: Trino, catalog hive"} <= set(earlier)
        assert (f"{step}: Presto, catalog hive" in earlier) is (presto is not None)
    assert ("Kafka: Trino, catalog hive" in earlier) is (kafka is not None)
    assert ("hidden rows: Iceberg REST catalog" in earlier) is (rest is not None)


def test_only_a_known_break_is_taken():
    assert not DEFAULTS.without_sync
    assert Choice.of({"VERIFY_BREAK": "sync"}).without_sync
    with pytest.raises(InvalidArgumentError, match=r"VERIFY_BREAK is 'snyc'[\s\S]*set it to sync"):
        Choice.of({"VERIFY_BREAK": "snyc"})


@pytest.mark.parametrize("text", ["soon", "0", "-5"])
def test_an_interval_of_the_scheduler_that_is_no_number_of_seconds_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="SYNC_EVERY_SECONDS"):
        Choice.of({"SYNC_EVERY_SECONDS": text})
    assert DEFAULTS.sync_seconds == 60


def test_leftovers_are_databases_of_runs_that_began_two_hours_ago_or_earlier():
    databases = [
        "default",
        "lake",
        "verify_20261123_120000",
        "verify_20261123_120000_symlink",
        "verify_20261122_235959_symlink",
        "verify_20261123_150000",
        "verify_me_20261123_120000",
        "verify_20261123_120000_mine",
    ]
    assert leftovers(databases, NOW) == ["verify_20261122_235959", "verify_20261123_120000"]


def test_a_run_s_names_are_its_own_and_only_the_scheduler_s_table_is_in_lake():
    names = Names.at(NOW)
    assert names.run == "verify_20261123_153000"
    assert str(names.clock) == "lake.verify_20261123_153000"
    assert {table.database for table in (names.orders, names.kafka, names.report)} == {names.run}
    assert all(folder.endswith(f"/{names.run}") for folder in names.folders("s3a://"))
    assert names.folders("hdfs://namenode:8020/")[0] == f"hdfs://namenode:8020/warehouse/{names.run}"


def test_places_begin_as_the_environment_says():
    assert DEFAULTS.root == Choice.of({"STORE_ROOT": ""}).root == "s3a://"
    root = Choice.of({"STORE_ROOT": "s3a://acme/lake/"}).root
    lake = Lake(names=Names.at(NOW), spark=None, trino=None, conf={}, root=root)
    assert lake.place("inventory") == f"s3a://acme/lake/inventory/{lake.names.run}"
