"""MERGE by random clauses, clocks, zones and calendars against a model in whole numbers; see ``test_command_model``.

There must be one instant that explains the rows, the change feed and the counts alike.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_command_model import DAY, SPECIAL, ZONES, few, in_zones, local_day  # noqa: F401

from pydelta.errors import InvalidArgumentError
from pydelta.tables import DeltaTable

pytestmark = [
    pytest.mark.spark,
    pytest.mark.damages_tables,
]  # the model reads them; delta-rs has not all of the moments

_NAMES = itertools.count()


@dataclass(frozen=True)
class Row:
    """A row of the table; ``made`` is generated from ``ts``: its day in the zone of who wrote it."""

    id: int | None
    ts: int | None
    day: int | None
    v: int | None
    made: int | None


@dataclass(frozen=True)
class Source:
    sid: int
    sts: int | None
    sday: int | None
    sv: int


@dataclass(frozen=True)
class Moment:
    now: int
    zone: str

    @property
    def today(self) -> int:
        return local_day(self.now, self.zone)


Test = Callable[[Row | None, Source | None, Moment], bool | None]


@dataclass(frozen=True)
class Condition:
    sql: str
    holds: Test


def less(left: int | None, right: int | None) -> bool | None:
    return None if left is None or right is None else left < right


def reached(left: int | None, right: int | None) -> bool | None:
    return None if left is None or right is None else left >= right


def same(left: int | None, right: int | None) -> bool | None:
    return None if left is None or right is None else left == right


def day_of(ts: int | None, moment: Moment) -> int | None:
    return None if ts is None else local_day(ts, moment.zone)


MATCHES = [
    Condition("id = sid", lambda t, s, _: same(t.id, s.sid)),
    Condition("ts = sts", lambda t, s, _: same(t.ts, s.sts)),
    Condition("ts <=> sts", lambda t, s, _: t.ts == s.sts),
    Condition("day = sday AND v = sv", lambda t, s, _: same(t.day, s.sday) and t.v == s.sv),
    Condition("id = sid AND ts < current_timestamp()", lambda t, s, m: same(t.id, s.sid) and less(t.ts, m.now)),
    Condition("sid = id AND sts >= now()", lambda t, s, m: same(t.id, s.sid) and reached(s.sts, m.now)),
    Condition("id = sid AND day <= current_date()", lambda t, s, m: same(t.id, s.sid) and less(t.day, m.today + 1)),
]
OF_BOTH = [
    Condition("ts < sts", lambda t, s, _: less(t.ts, s.sts)),
    Condition("sts > now() OR v = 1", lambda t, s, m: less(m.now, s.sts) or t.v == 1),
]
OF_TABLE = [
    Condition("ts < current_timestamp()", lambda t, s, m: less(t.ts, m.now)),
    Condition("NOT (ts > now())", lambda t, s, m: reached(m.now, t.ts)),
    Condition("CAST(ts AS DATE) = current_date()", lambda t, s, m: same(day_of(t.ts, m), m.today)),
    Condition("day < current_date() AND v < 2", lambda t, s, m: less(t.day, m.today) and t.v < 2),
    Condition("v = 0", lambda t, s, _: t.v == 0),
]
OF_SOURCE = [
    Condition("sts < current_timestamp()", lambda t, s, m: less(s.sts, m.now)),
    Condition("sday >= current_date()", lambda t, s, m: reached(s.sday, m.today)),
    Condition("sid % 2 = 0", lambda t, s, _: s.sid % 2 == 0),
]
ALWAYS = Condition("", lambda t, s, m: True)

Make = Callable[[Row | None, Source | None, Moment], dict[str, int | None]]


@dataclass(frozen=True)
class Action:
    """What a clause sets, as SQL and as the model has it; None deletes."""

    sql: tuple[tuple[str, str], ...] | None
    makes: Make | None = None


DELETE = Action(None)
UPDATES = [
    Action((("v", "v + 10"),), lambda t, s, _: {"v": None if t.v is None else t.v + 10}),
    Action((("ts", "current_timestamp()"),), lambda t, s, m: {"ts": m.now}),
    Action((("day", "current_date()"), ("v", "v + 10")), lambda t, s, m: {"day": m.today, "v": t.v + 10}),
]
UPDATES_OF_BOTH = [
    *UPDATES,
    Action((("ts", "sts"), ("day", "sday"), ("v", "sv")), lambda t, s, _: {"ts": s.sts, "day": s.sday, "v": s.sv}),
]
INSERTS = [
    Action(
        (("id", "sid + 1000"), ("ts", "sts"), ("day", "sday"), ("v", "sv")),
        lambda t, s, _: {"id": s.sid + 1000, "ts": s.sts, "day": s.sday, "v": s.sv},
    ),
    Action((("id", "sid + 1000"), ("ts", "now()")), lambda t, s, m: {"id": s.sid + 1000, "ts": m.now}),
]


@dataclass(frozen=True)
class Clause:
    kind: str
    condition: Condition
    action: Action


def clauses_of(kind: str, conditions: list[Condition], actions: list[Action]) -> st.SearchStrategy[list[Clause]]:
    """Up to two, of which only the last may be for all rows."""
    some = st.builds(Clause, st.just(kind), st.sampled_from(conditions), st.sampled_from(actions))
    last = st.builds(Clause, st.just(kind), st.sampled_from([ALWAYS, *conditions]), st.sampled_from(actions))
    return st.tuples(st.lists(some, max_size=1), st.lists(last, max_size=1)).map(lambda parts: parts[0] + parts[1])


@dataclass(frozen=True)
class Case:
    zone: str
    written_in: str
    jvm_zone: str
    match: Condition
    clauses: tuple[Clause, ...]
    partition: str | None
    vectors: bool
    feed: bool
    instants: tuple[int | None, ...]
    others: tuple[int | None, ...]


every = st.tuples(
    clauses_of("matched", [*OF_BOTH, *OF_TABLE, *OF_SOURCE], [DELETE, *UPDATES_OF_BOTH]),
    clauses_of("not matched", OF_SOURCE, INSERTS),
    clauses_of("by source", OF_TABLE, [DELETE, *UPDATES]),
).map(lambda parts: tuple(itertools.chain(*parts)))
moments = st.lists(st.sampled_from([None, *SPECIAL]), min_size=2, max_size=6, unique=True).map(tuple)
cases = st.builds(
    Case,
    zone=st.sampled_from(ZONES),
    written_in=st.sampled_from(ZONES),
    jvm_zone=st.sampled_from(ZONES),
    match=st.sampled_from(MATCHES),
    clauses=every.filter(bool),
    partition=st.sampled_from([None, None, "ts", "day"]),
    vectors=st.booleans(),
    feed=st.booleans(),
    instants=moments,
    others=moments,
)


def rows_near(base: int, instants: tuple[int | None, ...], partition: str | None) -> list[int | None]:
    """Some on both sides of any "now" that follows, milliseconds apart."""
    step = 150_000 if partition != "ts" else 2_000_000
    return [*instants, *range(base, base + 24_000_000, step)]


def make_table(spark, path: str, case: Case, base: int) -> list[Row]:
    instants = rows_near(base, case.instants, case.partition)
    rows = [
        Row(at, ts, None if ts is None else ts // DAY, at % 3, None if ts is None else local_day(ts, case.written_in))
        for at, ts in enumerate(instants)
    ]
    builder = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").addColumn("ts", "TIMESTAMP")
    builder = builder.addColumn("day", "DATE").addColumn("v", "INT")
    builder = builder.addColumn("made", "DATE", generatedAlwaysAs="CAST(ts AS DATE)")
    builder = builder.property("delta.enableDeletionVectors", str(case.vectors).lower())
    builder = builder.property("delta.enableChangeDataFeed", str(case.feed).lower())
    (builder.partitionedBy(case.partition) if case.partition else builder).execute()
    frame = spark.createDataFrame([(r.id, r.ts, r.day, r.v) for r in rows], "id long, ts long, day int, v int")
    frame = frame.selectExpr("id", "timestamp_micros(ts) AS ts", "date_from_unix_date(day) AS day", "v")
    frame = frame if case.partition else frame.repartition(3, "id")
    frame.write.format("delta").mode("append").save(path)
    return rows


def make_source(spark, case: Case, base: int) -> tuple[list[Source], object]:
    """Ids from the middle of the table's on; moments of the table's and others."""
    instants = [*case.others, *range(base, base + 24_000_000, 1_000_000)]
    source = [Source(at + 4, ts, None if ts is None else ts // DAY, at % 3) for at, ts in enumerate(instants)]
    frame = spark.createDataFrame([(s.sid, s.sts, s.sday, s.sv) for s in source], "sid long, ts long, day int, sv int")
    return source, frame.selectExpr("sid", "timestamp_micros(ts) AS sts", "date_from_unix_date(day) AS sday", "sv")


def read_rows(frame) -> list:
    days = ["unix_date(day) AS day", "unix_date(made) AS made"]
    kept = [column for column in frame.columns if column not in ("ts", "day", "made")]
    return frame.selectExpr(*kept, "unix_micros(ts) AS ts", *days).collect()


def row_of(row) -> Row:
    return Row(row["id"], row["ts"], row["day"], row["v"], row["made"])


@dataclass(frozen=True)
class Outcome:
    """What a merge leaves behind; ``counts`` are updated, deleted, inserted, copied and source rows."""

    rows: Counter[Row]
    feed: Counter[tuple[str, Row]] | None
    counts: tuple[int, int, int, int, int]


def model(case: Case, rows: list[Row], source: list[Source], files: dict[int, str], moment: Moment) -> Outcome | None:
    """What the merge leaves behind if it happened at a moment; None where it has to be refused."""

    def decided(kind: str, t: Row | None, s: Source | None) -> Action | None:
        found = (c.action for c in case.clauses if c.kind == kind and c.condition.holds(t, s, moment))
        return next(found, None)

    def made(action: Action, old: Row, t: Row | None, s: Source | None) -> Row:
        assert action.makes is not None
        values = action.makes(t, s, moment)
        new = replace(old, **values)
        if "ts" in values or t is None:
            new = replace(new, made=day_of(new.ts, moment))
        return new

    after: list[Row] = []
    feed: list[tuple[str, Row]] = []
    touched: set[str] = set()
    updated = deleted = inserted = 0
    paired: set[int] = set()
    kept: list[Row] = []
    for row in rows:
        pairs = [item for item in source if case.match.holds(row, item, moment)]
        paired |= {item.sid for item in pairs}
        actions = [(decided("matched", row, item), item) for item in pairs]
        actions = [(action, item) for action, item in actions if action is not None]
        if not pairs:
            alone = decided("by source", row, None)
            actions = [(alone, None)] if alone is not None else []
        matched = [(c.action, c.condition.sql) for c in case.clauses if c.kind == "matched"]
        if len(actions) > 1 and matched != [(DELETE, "")]:
            return None
        if not actions:
            kept.append(row)
            continue
        action, item = actions[0]
        touched.add(files[row.id])
        if action is DELETE:
            deleted += 1
            feed.append(("delete", row))
            continue
        updated += 1
        after.append(made(action, row, row, item))
        feed += [("update_preimage", row), ("update_postimage", after[-1])]
    for item in source:
        action = decided("not matched", None, item) if item.sid not in paired else None
        if action is not None:
            inserted += 1
            after.append(made(action, Row(None, None, None, None, None), None, item))
            feed.append(("insert", after[-1]))
    copied = 0 if case.vectors else sum(files[row.id] in touched for row in kept)
    counts = (updated, deleted, inserted, copied, len(source))
    return Outcome(Counter([*kept, *after]), Counter(feed) if case.feed and feed else None, counts)


def merged(spark, path: str, case: Case, source) -> tuple[int, int, int, int, int] | None:
    builder = DeltaTable.forPath(spark, path).merge(source, case.match.sql)
    for clause in case.clauses:
        condition, values = clause.condition.sql or None, dict(clause.action.sql or ())
        if clause.kind == "not matched":
            builder = builder.whenNotMatchedInsert(condition, values)
        elif clause.kind == "matched":
            delete = clause.action is DELETE
            builder = builder.whenMatchedDelete(condition) if delete else builder.whenMatchedUpdate(condition, values)
        elif clause.action is DELETE:
            builder = builder.whenNotMatchedBySourceDelete(condition)
        else:
            builder = builder.whenNotMatchedBySourceUpdate(condition, values)
    try:
        done = builder.run()
    except InvalidArgumentError as error:
        assert "rows of the source would change the same row" in str(error)
        return None
    counts = (done.num_updated_rows, done.num_deleted_rows, done.num_inserted_rows, done.num_copied_rows)
    if done.version is not None:
        metrics = DeltaTable.forPath(spark, path).history(1).collect()[0]["operationMetrics"]
        names = ["Updated", "Deleted", "Inserted", "Copied"]
        assert tuple(int(metrics[f"numTargetRows{name}"]) for name in names) == counts
    return (*counts, done.num_source_rows)


_UPSERT = (
    Clause("matched", ALWAYS, UPDATES_OF_BOTH[-1]),
    Clause("not matched", ALWAYS, INSERTS[1]),
)
_ALL = (
    Clause("matched", OF_TABLE[0], DELETE),
    Clause("matched", ALWAYS, UPDATES[1]),
    Clause("not matched", OF_SOURCE[0], INSERTS[0]),
    Clause("not matched", ALWAYS, INSERTS[1]),
    Clause("by source", OF_TABLE[1], UPDATES[2]),
    Clause("by source", OF_TABLE[4], DELETE),
)
_ENDS = (None, *SPECIAL)
_AUTUMN = Case(
    "America/New_York", "Europe/Berlin", "Asia/Kathmandu", MATCHES[1], _UPSERT, None, True, True, _ENDS, _ENDS
)
_CLOCKS = Case("Pacific/Apia", "UTC", "America/New_York", MATCHES[4], _ALL, None, False, True, _ENDS, _ENDS)
_PARTS = Case("Asia/Kathmandu", "Pacific/Apia", "UTC", MATCHES[2], _ALL, "ts", True, True, _ENDS, _ENDS[3:])


@pytest.mark.ci
@few
@example(case=_AUTUMN)
@example(case=_CLOCKS)
@example(case=_PARTS)
@example(case=replace(_AUTUMN, match=MATCHES[3], partition="day", vectors=False))
@given(case=cases)
def test_one_instant_explains_everything_that_a_merge_left(spark, tmp_path_factory, in_zones, case):  # noqa: F811
    path = str(tmp_path_factory.mktemp("model") / f"t{next(_NAMES)}")
    base = time.time_ns() // 1000
    in_zones(case.written_in, case.jvm_zone)
    rows = make_table(spark, path, case, base)
    in_zones(case.zone, case.jvm_zone)
    source, frame = make_source(spark, case, base)
    table = spark.read.format("delta").load(path)
    files = {row["id"]: row["file"] for row in table.selectExpr("id", "_metadata.file_name AS file").collect()}
    assert Counter(map(row_of, read_rows(table))) == Counter(rows)
    earliest = time.time_ns() // 1000
    counts = merged(spark, path, case, frame)
    latest = time.time_ns() // 1000
    left = Counter(map(row_of, read_rows(spark.read.format("delta").load(path))))
    known = {*(row.ts for row in rows), *(item.sts for item in source)}
    between = {ts for ts in known if ts is not None and earliest < ts <= latest}
    written = {row.ts for row in left if row.ts is not None and row.ts not in known}  # the instant, where it was set
    assert len(written) <= 1
    assert all(earliest <= ts <= latest for ts in written)
    found = None
    if counts is None:
        assert left == Counter(rows)
    else:
        feed = None
        if case.feed and sum(counts[:3]):
            options = {"readChangeFeed": "true", "startingVersion": 2}
            changes = read_rows(spark.read.format("delta").options(**options).load(path))
            feed = Counter((row["_change_type"], row_of(row)) for row in changes)
        found = Outcome(left, feed, counts)
    instants = sorted(written or {earliest, latest, *between, *(ts + 1 for ts in between)})
    assert found in [model(case, rows, source, files, Moment(now, case.zone)) for now in instants]
