"""DELETE, UPDATE and MERGE one after the other on values that compare oddly, against a model that has Spark's order.

Each row is followed by its id: every bit of every column, where it lies, the id that the table gave it, what the change
feed says of it, and what the history counts. Values that differ each time (``uuid()``, ``rand()``) are taken from the
table; the feed has to have the very same ones.
"""

from __future__ import annotations

import itertools
import struct
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_command_model import few

from pydelta.errors import InvalidArgumentError
from pydelta.tables import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]

_NAMES = itertools.count()
NAN, INF = float("nan"), float("inf")
DOUBLES = (None, NAN, -0.0, 0.0, 1.5, -1.5, INF, -INF, 5e-324)
TEXTS = (None, "a", "A", "b", "é", "a\u2028b", "a b/%=", "\U0001f600", "\uffff")
Truth = bool | None


@dataclass(frozen=True)
class Row:
    """``g`` is generated as ``-d``; numbers of ``d`` and ``g`` are kept as their bits."""

    id: int
    d: bytes | None
    s: str | None
    m: str | None
    n: tuple | None
    g: bytes | None


@dataclass(frozen=True)
class Source:
    k: int
    d: float | None
    s: str | None


@dataclass(frozen=True)
class Place:
    """Where a row lies, and the id that the table gave it."""

    file: str
    row_id: int | None


def bits(number: float | None) -> bytes | None:
    return None if number is None else struct.pack(">d", NAN if number != number else number)


def number(kept: bytes | None) -> float | None:
    return None if kept is None else struct.unpack(">d", kept)[0]


def order(value):
    """A key by which values are equal and ordered as Spark has them: NaN is itself and beyond all, -0.0 is 0.0."""
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)
    return value.encode() if isinstance(value, str) else value


def equal(left, right) -> Truth:
    return None if left is None or right is None else order(left) == order(right)


def less(left, right) -> Truth:
    return None if left is None or right is None else order(left) < order(right)


def negated(value: Truth) -> Truth:
    return None if value is None else not value


def either(left: Truth, right: Truth) -> Truth:
    return True if left or right else (None if left is None or right is None else False)


def minus(kept: bytes | None) -> bytes | None:
    value = number(kept)
    return None if value is None else bits(-value)


@dataclass(frozen=True)
class Condition:
    sql: str
    holds: Callable[[Row], Truth]


CONDITIONS = [
    Condition("d = double('NaN')", lambda t: equal(number(t.d), NAN)),
    Condition("d > 1", lambda t: less(1.0, number(t.d))),
    Condition("d >= -0.0D", lambda t: negated(less(number(t.d), 0.0))),
    Condition("NOT (d < 1.5)", lambda t: negated(less(number(t.d), 1.5))),
    Condition("d IN (0.0D, double('NaN'))", lambda t: either(equal(number(t.d), 0.0), equal(number(t.d), NAN))),
    Condition("d NOT IN (1.5D, NULL)", lambda t: negated(either(equal(number(t.d), 1.5), None))),
    Condition("d <=> NULL", lambda t: t.d is None),
    Condition("NOT (d <=> 0.0D)", lambda t: equal(number(t.d), 0.0) is not True),
    Condition("g = 0 OR s = 'a'", lambda t: either(equal(number(t.g), 0.0), equal(t.s, "a"))),
    Condition("s < 'b'", lambda t: less(t.s, "b")),
    Condition("s > '\U0001f600' OR s = '\uffff'", lambda t: either(less("\U0001f600", t.s), equal(t.s, "\uffff"))),
    Condition("s IS NULL", lambda t: t.s is None),
    Condition("m < 0", lambda t: None if t.m is None else t.m.startswith("-")),
    Condition("n.a = 1", lambda t: None if t.n is None else equal(t.n[0], 1)),
    Condition("n IS NULL AND id % 2 = 0", lambda t: t.n is None and t.id % 2 == 0),
    Condition("n = named_struct('a', 1L, 'b', 'x')", lambda t: None if t.n is None else t.n == (1, "x")),
    Condition("id % 3 = 1", lambda t: t.id % 3 == 1),
    Condition("1 = 1", lambda t: True),
]

Learnt = Row | None
Change = Callable[[Row, Learnt], Row]
"""A row before, and the same as it was found afterwards, to its new self."""


def with_d(row: Row, kept: bytes | None) -> Row:
    return replace(row, d=kept, g=minus(kept))


@dataclass(frozen=True)
class Assignment:
    sql: tuple[tuple[str, str], ...]
    makes: Change


ASSIGNMENTS = [
    Assignment((("d", "double('NaN')"),), lambda t, _: with_d(t, bits(NAN))),
    Assignment((("d", "-d"),), lambda t, _: with_d(t, minus(t.d))),
    Assignment((("s", "concat(s, '~')"),), lambda t, _: replace(t, s=None if t.s is None else t.s + "~")),
    Assignment((("m", "-m"), ("s", "NULL")), lambda t, _: replace(t, s=None, m=turned(t.m))),
    Assignment((("n.a", "id"),), lambda t, _: replace(t, n=(t.id, t.n[1] if t.n else None))),
    Assignment((("n", "NULL"), ("d", "g")), lambda t, _: replace(with_d(t, t.g), n=None)),
    Assignment((("s", "uuid()"),), lambda t, now: replace(t, s=now.s if now else "?")),
    Assignment((("d", "rand()"),), lambda t, now: with_d(t, now.d if now else b"?")),
]


def turned(text: str | None) -> str | None:
    if text is None or not text.strip("0."):
        return text
    return text[1:] if text.startswith("-") else f"-{text}"


@dataclass(frozen=True)
class Pairing:
    sql: str
    holds: Callable[[Row, Source], Truth]


PAIRINGS = [
    Pairing("t.id = s.k", lambda t, s: t.id == s.k),
    Pairing("t.d = s.sd", lambda t, s: equal(number(t.d), s.d)),
    Pairing("t.d <=> s.sd", lambda t, s: order(number(t.d)) == order(s.d)),
    Pairing("t.s = s.ss", lambda t, s: equal(t.s, s.s)),
    Pairing("t.s <=> s.ss AND t.id < 40", lambda t, s: t.s == s.s and t.id < 40),
    Pairing("t.id = s.k AND t.d < s.sd", lambda t, s: t.id == s.k and less(number(t.d), s.d)),
]


@dataclass(frozen=True)
class Step:
    """``kind`` is delete, update or merge; a merge deletes or updates what matches, inserts, and changes the others."""

    kind: str
    where: Condition
    values: Assignment
    pairing: Pairing
    deletes: bool
    inserts: bool
    by_source: bool
    source: tuple[Source, ...]


@dataclass(frozen=True)
class Case:
    partition: str | None
    vectors: bool
    feed: bool
    mapped: bool
    tracked: bool
    rows: tuple[Row, ...]
    steps: tuple[Step, ...]


def make_rows(parts: list[tuple]) -> tuple[Row, ...]:
    return tuple(Row(at, bits(d), s, m, n, bits(None if d is None else -d)) for at, (d, s, m, n) in enumerate(parts))


_nested = st.none() | st.tuples(st.none() | st.integers(0, 2), st.sampled_from([None, "x"]))
_rows = st.lists(
    st.tuples(
        st.sampled_from(DOUBLES),
        st.sampled_from(TEXTS),
        st.sampled_from([None, "0.00", "-0.01", "999999999999999999.99", "-999999999999999999.99"]),
        _nested,
    ),
    min_size=12,
    max_size=30,
).map(make_rows)
_sources = st.lists(
    st.builds(Source, k=st.integers(0, 40), d=st.sampled_from(DOUBLES), s=st.sampled_from(TEXTS)),
    min_size=0,
    max_size=6,
).map(tuple)
_steps = st.builds(
    Step,
    kind=st.sampled_from(["delete", "update", "merge", "merge"]),
    where=st.sampled_from(CONDITIONS),
    values=st.sampled_from(ASSIGNMENTS),
    pairing=st.sampled_from(PAIRINGS),
    deletes=st.booleans(),
    inserts=st.booleans(),
    by_source=st.booleans(),
    source=_sources,
)
cases = st.builds(
    Case,
    partition=st.sampled_from([None, None, "d", "s", "m"]),
    vectors=st.booleans(),
    feed=st.booleans(),
    mapped=st.booleans(),
    tracked=st.booleans(),
    rows=_rows,
    steps=st.lists(_steps, min_size=3, max_size=4).map(tuple),
)


def make_table(spark, path: str, case: Case) -> None:
    properties = {
        "delta.enableDeletionVectors": case.vectors,
        "delta.enableChangeDataFeed": case.feed,
        "delta.enableRowTracking": case.tracked,
    }
    builder = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").addColumn("d", "DOUBLE")
    builder = builder.addColumn("s", "STRING").addColumn("m", "DECIMAL(20,2)")
    builder = builder.addColumn("n", "STRUCT<a: BIGINT, b: STRING>")
    builder = builder.addColumn("g", "DOUBLE", generatedAlwaysAs="-d")
    for key, value in properties.items():
        builder = builder.property(key, str(value).lower())
    if case.mapped:
        builder = builder.property("delta.columnMapping.mode", "name")
    (builder.partitionedBy(case.partition) if case.partition else builder).execute()
    rows = [(row.id, number(row.d), row.s, row.m, row.n) for row in case.rows]
    frame = spark.createDataFrame(rows, "id long, d double, s string, m string, n struct<a: long, b: string>")
    frame = frame.withColumn("m", frame["m"].cast("decimal(20,2)"))
    frame = frame if case.partition else frame.repartition(2, "id")
    frame.write.format("delta").mode("append").save(path)


def row_of(row) -> Row:
    nested = None if row["n"] is None else tuple(row["n"])
    return Row(row["id"], bits(row["d"]), row["s"], row["m"], nested, bits(row["g"]))


def read(spark, path: str, case: Case) -> dict[int, tuple[Row, Place]]:
    table = DeltaTable.forPath(spark, path)
    ids = {}
    if case.tracked:
        ids = {row["id"]: row["_row_id"] for row in table.toDFWithRowTracking().select("id", "_row_id").collect()}
        assert len(set(ids.values())) == len(ids)
    shown = ["id", "d", "s", "CAST(m AS STRING) AS m", "n", "g", "_metadata.file_path AS file"]
    rows = table.toDF().selectExpr(*shown).collect()
    found = {row["id"]: (row_of(row), Place(row["file"], ids.get(row["id"]))) for row in rows}
    assert len(found) == len(rows)
    assert not case.tracked or set(ids) == set(found)
    return found


def changes_of(spark, path: str, version: int) -> Counter[tuple[str, Row]]:
    options = {"readChangeFeed": "true", "startingVersion": version, "endingVersion": version}
    frame = spark.read.format("delta").options(**options).load(path)
    rows = frame.selectExpr("id", "d", "s", "CAST(m AS STRING) AS m", "n", "g", "_change_type").collect()
    return Counter((row["_change_type"], row_of(row)) for row in rows)


@dataclass(frozen=True)
class Expected:
    """What a step leaves; ``deleted`` and ``updated`` hold the ids of rows."""

    rows: dict[int, Row]
    deleted: frozenset[int]
    updated: frozenset[int]
    inserted: frozenset[int]


def modelled(step: Step, base: int, before: dict[int, Row], after: dict[int, Row]) -> Expected | None:
    """What a step leaves; None for a merge that has to be refused."""
    deleted, updated, inserted = set(), set(), set()
    rows = dict(before)
    if step.kind != "merge":
        matched = {id_ for id_, row in before.items() if step.where.holds(row)}
        for id_ in matched:
            if step.kind == "delete":
                deleted.add(id_)
                del rows[id_]
            else:
                updated.add(id_)
                rows[id_] = step.values.makes(before[id_], after.get(id_))
        return Expected(rows, frozenset(deleted), frozenset(updated), frozenset())
    paired: set[int] = set()
    for id_, row in before.items():
        pairs = [at for at, item in enumerate(step.source) if step.pairing.holds(row, item)]
        paired.update(pairs)
        if pairs and step.where.holds(row):
            if len(pairs) > 1:  # also to delete, since the clause has a condition
                return None
            if step.deletes:
                deleted.add(id_)
                del rows[id_]
            else:
                updated.add(id_)
                rows[id_] = replace(with_d(row, bits(step.source[pairs[0]].d)), s=step.source[pairs[0]].s)
        elif not pairs and step.by_source and step.where.holds(row):
            updated.add(id_)
            rows[id_] = step.values.makes(row, after.get(id_))
    if step.inserts:
        for at, item in enumerate(step.source):
            if at not in paired:
                id_ = base + at
                inserted.add(id_)
                rows[id_] = Row(id_, bits(item.d), item.s, None, None, minus(bits(item.d)))
    return Expected(rows, frozenset(deleted), frozenset(updated), frozenset(inserted))


def run(spark, path: str, step: Step, base: int) -> bool:
    """Run a step; False when it was refused."""
    table = DeltaTable.forPath(spark, path)
    if step.kind == "delete":
        table.delete(step.where.sql)
        return True
    if step.kind == "update":
        table.update(step.where.sql, dict(step.values.sql))
        return True
    rows = [(item.k, item.d, item.s, base + at) for at, item in enumerate(step.source)]
    source = spark.createDataFrame(rows, "k long, sd double, ss string, fresh long").alias("s")
    builder = table.alias("t").merge(source, step.pairing.sql)
    where = step.where.sql
    if step.deletes:
        builder = builder.whenMatchedDelete(where)
    else:
        builder = builder.whenMatchedUpdate(where, {"d": "s.sd", "s": "s.ss"})
    if step.inserts:
        builder = builder.whenNotMatchedInsert(None, {"id": "s.fresh", "d": "s.sd", "s": "s.ss"})
    if step.by_source:
        builder = builder.whenNotMatchedBySourceUpdate(where, dict(step.values.sql))
    try:
        builder.run()
    except InvalidArgumentError as error:
        assert "rows of the source would change the same row" in str(error)
        return False
    return True


def check_counts(spark, path: str, case: Case, step: Step, expected: Expected, places: dict[int, Place]) -> None:
    metrics = DeltaTable.forPath(spark, path).history(1).collect()[0]["operationMetrics"]
    changed = expected.deleted | expected.updated
    touched = {places[id_].file for id_ in changed}
    copied = 0 if case.vectors else sum(places[id_].file in touched for id_ in places if id_ not in changed)
    emptied = {file for file in touched if all(id_ in changed for id_ in places if places[id_].file == file)}
    removed = emptied if case.vectors else touched
    counts = {"Deleted": len(expected.deleted), "Updated": len(expected.updated), "Copied": copied}
    if step.kind == "merge":
        wanted = {f"numTargetRows{what}": count for what, count in counts.items()}
        wanted |= {"numTargetRowsInserted": len(expected.inserted), "numTargetFilesRemoved": len(removed)}
        wanted |= {"numSourceRows": len(step.source)}
        vectors = "numTargetDeletionVectorsAdded"
    else:
        del counts["Updated" if step.kind == "delete" else "Deleted"]
        wanted = {f"num{what}Rows": count for what, count in counts.items()} | {"numRemovedFiles": len(removed)}
        vectors = "numDeletionVectorsAdded"
    if case.vectors:
        wanted[vectors] = len(touched - emptied)
    assert {name: int(metrics[name]) for name in wanted} == wanted


_MIXED = make_rows(
    [(d, s, m, n) for d, s, m, n in zip(
        [*DOUBLES, *DOUBLES], [*TEXTS, *TEXTS[::-1]], itertools.cycle([None, "0.00", "-0.01"]),
        itertools.cycle([None, (1, "x"), (None, None), (2, None)]), strict=False,
    )]
)  # fmt: skip
_SOURCE = tuple(Source(at, d, s) for at, d, s in [(0, NAN, "a"), (3, -0.0, "é"), (30, None, None), (31, 2.5, "z")])


def _step(kind: str, where: int, values: int, pairing: int = 0, *, deletes: bool = False) -> Step:
    return Step(kind, CONDITIONS[where], ASSIGNMENTS[values], PAIRINGS[pairing], deletes, True, True, _SOURCE)


_ODD = (_step("delete", 9, 0), _step("update", 4, 6), _step("merge", 17, 7, 2, deletes=True), _step("update", 7, 1))
_NEXT = (_step("update", 3, 7), _step("merge", 12, 2), _step("delete", 0, 0), _step("merge", 13, 5, 3))


@pytest.mark.ci
@few
@example(case=Case(None, True, True, True, True, _MIXED, _ODD))
@example(case=Case("d", False, True, False, False, _MIXED, _NEXT))
@given(case=cases)
def test_every_bit_of_every_row_is_what_the_model_says(spark, tmp_path_factory, case):
    path = str(tmp_path_factory.mktemp("values") / f"t{next(_NAMES)}")
    make_table(spark, path, case)
    now = read(spark, path, case)
    assert {id_: row for id_, (row, _) in now.items()} == {row.id: row for row in case.rows}
    for at, step in enumerate(case.steps):
        base = 1000 * (at + 1)
        before = now
        version = DeltaTable.forPath(spark, path).history(1).collect()[0]["version"]
        accepted = run(spark, path, step, base)
        now = read(spark, path, case)
        after = {id_: row for id_, (row, _) in now.items()}
        old = {id_: row for id_, (row, _) in before.items()}
        expected = modelled(step, base, old, after)
        assert accepted is (expected is not None), step
        newest = DeltaTable.forPath(spark, path).history(1).collect()[0]["version"]
        if expected is None:
            assert (after, newest) == (old, version)
            continue
        assert after == expected.rows, step
        changed = expected.deleted | expected.updated
        assert newest == version + bool(changed | expected.inserted), step
        if newest == version:
            continue
        places = {id_: place for id_, (_, place) in before.items()}
        check_counts(spark, path, case, step, expected, places)
        if case.tracked:
            assert all(now[id_][1].row_id == place.row_id for id_, place in places.items() if id_ in now), step
        if case.feed:
            feed = [("delete", old[id_]) for id_ in expected.deleted]
            feed += [("update_preimage", old[id_]) for id_ in expected.updated]
            feed += [("update_postimage", after[id_]) for id_ in expected.updated]
            feed += [("insert", after[id_]) for id_ in expected.inserted]
            assert changes_of(spark, path, newest) == Counter(feed), step
        sets = dict(step.values.sql)
        by_values = expected.updated if step.kind == "update" else frozenset()
        if "uuid()" in sets.values():
            texts = [after[id_].s for id_ in by_values]
            assert len(set(texts)) == len(texts)
            assert all(str(uuid.UUID(text)) == text for text in texts)
        if "rand()" in sets.values():
            assert all(0 <= number(after[id_].d) < 1 for id_ in by_values)
