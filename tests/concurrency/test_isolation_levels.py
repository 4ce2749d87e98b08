"""What each isolation level lets happen and what it forbids: the table of ``docs/guides/isolation.md``, case by case.

In each case ``one`` has read the table, then ``two`` commits, then ``one`` commits. The rows of the table are
``("p", x)``: partition and value.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from pydelta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
)
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.lockstep import run_lockstep
from pydelta.testing.operations import (
    LogOperation,
    add_file,
    append,
    append_once,
    compact,
    create_table,
    delete_partition,
    delete_value,
    hide_value,
    overwrite,
    rows_of,
    update_value,
    upsert_value,
)

STATEMENTS = Settings(change_retry_on="rearranged")
"""By default a statement that conflicts is run again, and there would be nothing to see."""
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "isolation.md"
BEGINNING = Counter({("1", 1): 1, ("1", 2): 1, ("2", 3): 1})
_NAMES = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Case:
    """Two operations, and by level what the table holds afterwards: ``None`` where ``one`` conflicts."""

    one: LogOperation
    two: LogOperation
    serializable: Counter | None
    write_serializable: Counter | None
    error: type[DeltaConcurrentModificationException] | None = None


def rows(*items: tuple[str, int]) -> Counter:
    return Counter(items)


CASES = {
    "a delete and rows appended in between": Case(
        one=delete_value(1),
        two=append("1", [1]),
        serializable=None,
        write_serializable=rows(("1", 1), ("1", 2), ("2", 3)),
        error=ConcurrentAppendException,
    ),
    "an overwrite and rows appended in between": Case(
        one=overwrite("9", [9]),
        two=append("1", [1]),
        serializable=None,
        write_serializable=rows(("9", 9), ("1", 1)),
        error=ConcurrentAppendException,
    ),
    "an upsert and its key appended in between": Case(
        one=upsert_value(7, 7, "3"),
        two=append("3", [7]),
        serializable=None,
        write_serializable=rows(("1", 1), ("1", 2), ("2", 3), ("3", 7), ("3", 7)),
        error=ConcurrentAppendException,
    ),
    "a delete of one partition and rows appended to another": Case(
        one=delete_partition("1"),
        two=append("2", [1]),
        serializable=rows(("2", 3), ("2", 1)),
        write_serializable=rows(("2", 3), ("2", 1)),
    ),
    "two appends": Case(
        one=append("1", [8]),
        two=append("1", [9]),
        serializable=BEGINNING + rows(("1", 8), ("1", 9)),
        write_serializable=BEGINNING + rows(("1", 8), ("1", 9)),
    ),
    "two updates of one row": Case(
        one=update_value(1, 100),
        two=update_value(1, 200),
        serializable=None,
        write_serializable=None,
        error=ConcurrentDeleteReadException,
    ),
    "an update and a delete of its row": Case(
        one=update_value(1, 100),
        two=hide_value(1),
        serializable=None,
        write_serializable=None,
        error=ConcurrentDeleteReadException,
    ),
    "two upserts of one new key": Case(
        one=upsert_value(7, 7, "3"),
        two=upsert_value(7, 7, "3"),
        serializable=None,
        write_serializable=None,
        error=ConcurrentAppendException,
    ),
    "a delete and an update into what it deletes": Case(
        one=delete_partition("1"),
        two=upsert_value(8, 8, "1"),
        serializable=None,
        write_serializable=None,
        error=ConcurrentAppendException,
    ),
    "a delete and a compaction of its files": Case(
        one=delete_value(1),
        two=compact("1"),
        serializable=None,
        write_serializable=None,
        error=ConcurrentDeleteReadException,
    ),
    "an UPDATE statement and a compaction of its files": Case(
        one=update_value(1, 100),
        two=compact("1"),
        serializable=rows(("1", 100), ("1", 2), ("2", 3)),
        write_serializable=rows(("1", 100), ("1", 2), ("2", 3)),
    ),
    "a MERGE statement and a compaction of its files": Case(
        one=upsert_value(1, 100, "3"),
        two=compact("1"),
        serializable=rows(("1", 100), ("1", 2), ("2", 3)),
        write_serializable=rows(("1", 100), ("1", 2), ("2", 3)),
    ),
    "a compaction and rows appended in between": Case(
        one=compact("1"),
        two=append("1", [8]),
        serializable=BEGINNING + rows(("1", 8)),
        write_serializable=BEGINNING + rows(("1", 8)),
    ),
    "two runs of one job": Case(
        one=append_once("job", 1, "1", [8]),
        two=append_once("job", 1, "1", [8]),
        serializable=None,
        write_serializable=None,
        error=ConcurrentTransactionException,
    ),
}


def raced(case: Case, properties: dict[str, str]):
    """What ``one`` came to, and the table after both."""
    store = MemoryStore(f"memory://isolation{next(_NAMES)}/t")
    files = [add_file("1", [1]), add_file("1", [2]), add_file("2", [3])]
    create_table(DeltaLog(store), files, delta_enableDeletionVectors="true", **properties)
    results = run_lockstep(
        {
            "one": lambda step: case.one.run(DeltaLog(store, settings=STATEMENTS), step),
            "two": lambda step: case.two.run(DeltaLog(store, settings=STATEMENTS), step),
        },
        ["one"] * 2 + ["two"] * 8,
    )
    assert not isinstance(results["two"], BaseException), results["two"]
    left = rows_of(DeltaLog(store).update())
    return results["one"], Counter({row: count for row, count in left.items() if not row[0].startswith("txn ")})


def check(case: Case, properties: dict[str, str], expected: Counter | None) -> None:
    result, left = raced(case, properties)
    if expected is None:
        assert case.error is not None
        assert type(result) is case.error
        assert left == case.two.model(BEGINNING) - Counter({("txn job", 1): 1})
    else:
        assert not isinstance(result, BaseException), result
        assert left == expected


@pytest.mark.parametrize("name", CASES)
def test_serializable(name):
    check(CASES[name], {"delta_isolationLevel": "Serializable"}, CASES[name].serializable)


@pytest.mark.parametrize("name", CASES)
def test_write_serializable(name):
    check(CASES[name], {"delta_isolationLevel": "WriteSerializable"}, CASES[name].write_serializable)


@pytest.mark.parametrize("properties", [{}, {"delta_isolationLevel": "SnapshotIsolation"}], ids=["none", "snapshot"])
@pytest.mark.parametrize("name", CASES)
def test_a_table_that_names_no_level_or_one_that_is_too_weak_is_serializable(name, properties):
    check(CASES[name], properties, CASES[name].serializable)


def test_only_blind_appends_are_passed_over_at_the_weaker_level():
    differing = [name for name, case in CASES.items() if case.serializable != case.write_serializable]
    assert len(differing) == 3
    assert all(CASES[name].two.name == "append" for name in differing)


def test_the_guide_has_each_case_and_says_what_happens():
    lines = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", GUIDE.read_text(), re.MULTILINE)
    told = {what: (first, second) for what, first, second in lines}
    for name, case in CASES.items():
        words = tuple("conflict" if after is None else "both" for after in (case.serializable, case.write_serializable))
        assert told[name] == words, name
