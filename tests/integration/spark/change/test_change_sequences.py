"""Random sequences of UPDATE, MERGE, DELETE, OPTIMIZE and RESTORE: the table is what a plain model of it is after each.

The model is a list of rows and conditions with SQL's three values, written in Python. After each step the rows are the
model's, and where the table has a change feed, the step's changes turn the rows before into the rows after, exactly.
``PYDELTA_CHANGE_SEQUENCES=20`` tries more sequences than one of each kind.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import deltalake
import pytest

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = ("id", "p", "v", "n")
DDL = "id long, p string, v string, n int"
STEPS = 9

Row = tuple[int | None, str | None, str | None, int | None]
Truth = bool | None


@dataclass(frozen=True)
class Term:
    """SQL and what it is for a target row and a source row (either may be None)."""

    sql: str
    of: Callable[[Row | None, Row | None], object]


def both(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def negated(value: Truth) -> Truth:
    return None if value is None else not value


class Maker:
    """Draws rows, conditions and values; ``sides`` says which rows an expression may read."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def row(self, low: int = 0, high: int = 30) -> Row:
        draw = self.draw
        return (
            None if draw.random() < 0.05 else draw.randint(low, high),
            draw.choice(["a", "b", None]),
            draw.choice(["x", "y", "", None]),
            draw.choice([None, *range(10)]),
        )

    def column(self, name: str, sides: str) -> Term:
        side = self.draw.choice(sides)
        place = COLUMNS.index(name)
        return Term(f"{side}.{name}", lambda t, s: (t if side == "t" else s)[place])

    def compared(self, sides: str) -> Term:
        name = self.draw.choice(["id", "n"])
        column, op, bound = self.column(name, sides), self.draw.choice(["=", "<", ">="]), self.draw.randint(0, 12)
        test = {"=": lambda a: a == bound, "<": lambda a: a < bound, ">=": lambda a: a >= bound}[op]

        def truth(t, s):
            value = column.of(t, s)
            return None if value is None else test(value)

        return Term(f"{column.sql} {op} {bound}", truth)

    def named(self, sides: str) -> Term:
        name = self.draw.choice(["p", "v"])
        column, text = self.column(name, sides), self.draw.choice(["a", "b", "x", ""])

        def truth(t, s):
            value = column.of(t, s)
            return None if value is None else value == text

        return Term(f"{column.sql} = '{text}'", truth)

    def missing(self, sides: str) -> Term:
        column = self.column(self.draw.choice(COLUMNS), sides)
        return Term(f"{column.sql} IS NULL", lambda t, s: column.of(t, s) is None)

    def condition(self, sides: str, depth: int = 2) -> Term:
        kind = self.draw.random()
        if depth == 0 or kind < 0.45:
            return self.draw.choice([self.compared, self.compared, self.named, self.missing])(sides)
        left = self.condition(sides, depth - 1)
        if kind < 0.55:
            return Term(f"NOT ({left.sql})", lambda t, s: negated(left.of(t, s)))
        right = self.condition(sides, depth - 1)
        if kind < 0.8:
            return Term(f"({left.sql}) AND ({right.sql})", lambda t, s: both(left.of(t, s), right.of(t, s)))
        return Term(
            f"({left.sql}) OR ({right.sql})",
            lambda t, s: negated(both(negated(left.of(t, s)), negated(right.of(t, s)))),
        )

    def value(self, name: str, sides: str) -> Term:
        constants = {"id": 77, "p": "b", "v": "set", "n": 5}
        kind = self.draw.random()
        if kind < 0.15:
            return Term("NULL", lambda t, s: None)
        if kind < 0.4:
            constant = constants[name]
            return Term(repr(constant), lambda t, s: constant)
        column = self.column(name, sides)
        if kind < 0.7 or name == "p":
            return column

        def grown(t, s):
            value = column.of(t, s)
            if value is None:
                return None
            return value + "!" if name == "v" else value + 1

        return Term(f"concat({column.sql}, '!')" if name == "v" else f"{column.sql} + 1", grown)

    def assignments(self, sides: str) -> dict[str, Term]:
        names = self.draw.sample(COLUMNS, self.draw.randint(1, 3))
        return {name: self.value(name, sides) for name in names}

    def search(self) -> Term:
        """A merge condition: mostly equal ids, now and then something else."""
        equal = Term("t.id = s.id", lambda t, s: None if t[0] is None or s[0] is None else t[0] == s[0])
        kind = self.draw.random()
        if kind < 0.5:
            return equal
        if kind < 0.65:
            return Term("t.id <=> s.id", lambda t, s: t[0] == s[0])
        if kind < 0.8:
            same = Term("t.p = s.p", lambda t, s: None if t[1] is None or s[1] is None else t[1] == s[1])
            return Term(f"{equal.sql} AND {same.sql}", lambda t, s: both(equal.of(t, s), same.of(t, s)))
        more = self.condition("ts", 1)
        return Term(f"{equal.sql} AND ({more.sql})", lambda t, s: both(equal.of(t, s), more.of(t, s)))


def assigned(row: Row, values: dict[str, Term], t: Row | None, s: Row | None) -> Row:
    return tuple(values[name].of(t, s) if name in values else row[i] for i, name in enumerate(COLUMNS))


@dataclass(frozen=True)
class Clause:
    on: str  # "matched", "by source", "insert"
    action: str
    condition: Term | None
    values: dict[str, Term] | None  # None: all

    def holds(self, t: Row | None, s: Row | None) -> bool:
        return self.condition is None or self.condition.of(t, s) is True


class Ambiguous(Exception):
    """Several source rows would change one row."""


def merged(
    rows: list[Row],
    source: list[Row],
    search: Term,
    clauses: list[Clause],
    blank: Row = (None, None, None, None),
) -> list[Row]:
    """The rows afterwards; ``blank`` is what an inserted row has where the clause says nothing."""
    after, matched_sources = [], set()
    of = {on: [clause for clause in clauses if clause.on == on] for on in ("matched", "by source", "insert")}
    several = [(clause.action, clause.condition) for clause in of["matched"]] == [("delete", None)]
    for t in rows:
        partners = [number for number, s in enumerate(source) if search.of(t, s) is True]
        matched_sources.update(partners)
        if partners:
            found = [
                (clause, source[number])
                for number in partners
                if (clause := next((c for c in of["matched"] if c.holds(t, source[number])), None)) is not None
            ]
            if len(found) > 1 and not several:
                raise Ambiguous
        else:
            alone = next((c for c in of["by source"] if c.holds(t, None)), None)
            found = [(alone, None)] if alone is not None else []
        if not found:
            after.append(t)
        elif found[0][0].action == "update":
            clause, s = found[0]
            after.append(s if clause.values is None else assigned(t, clause.values, t, s))
    for number, s in enumerate(source):
        if number not in matched_sources:
            clause = next((c for c in of["insert"] if c.holds(None, s)), None)
            if clause is not None:
                after.append(s if clause.values is None else assigned(blank, clause.values, None, s))
    return after


def drawn_clauses(maker: Maker) -> list[Clause]:
    draw, clauses = maker.draw, []
    for on, actions, sides, likely in (
        ("matched", ("update", "delete"), "ts", 0.85),
        ("by source", ("update", "delete"), "t", 0.3),
        ("insert", ("insert",), "s", 0.7),
    ):
        number = draw.randint(1, 2) if draw.random() < likely else 0
        for place in range(number):
            action = draw.choice(actions)
            last = place == number - 1
            condition = None if last and draw.random() < 0.6 else maker.condition(sides, 1)
            star = action != "delete" and on != "by source" and draw.random() < 0.4
            values = None if star or action == "delete" else maker.assignments(sides)
            clauses.append(Clause(on, action, condition, values))
    return clauses or [Clause("matched", "delete", None, None)]


def built(builder, clauses: list[Clause]):
    for clause in clauses:
        condition = clause.condition.sql if clause.condition else None
        values = None if clause.values is None else {name: term.sql for name, term in clause.values.items()}
        name = {"matched": "whenMatched", "by source": "whenNotMatchedBySource", "insert": "whenNotMatched"}[clause.on]
        name += clause.action.capitalize()
        if clause.action == "delete":
            builder = getattr(builder, name)(condition)
        elif values is None:
            builder = getattr(builder, f"{name}All")(condition)
        else:
            builder = getattr(builder, name)(condition, values)
    return builder


class Sequence:
    """A table and its model, changed side by side."""

    def __init__(self, spark, path: str, maker: Maker, properties: dict[str, str], *, partitioned: bool) -> None:
        self.spark, self.path, self.maker = spark, path, maker
        self.feed = "delta.enableChangeDataFeed" in properties
        builder = DeltaTable.create(spark).location(path).addColumns(spark.createDataFrame([], DDL).schema)
        for key, value in properties.items():
            builder = builder.property(key, value)
        (builder.partitionedBy("p") if partitioned else builder).execute()
        self.rows: list[Row] = []
        self.versions: dict[int, list[Row]] = {0: []}
        for start in range(3):
            rows = [maker.row(start * 8, start * 8 + 12) for _ in range(12)]
            spark.createDataFrame(rows, DDL).coalesce(1).write.format("delta").mode("append").save(path)
            self.rows += rows
            self.versions[self.version] = self.rows

    @property
    def version(self) -> int:
        return DeltaLog.for_table(self.path).update().version

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.path).alias("t")

    def step(self) -> str:
        """Do something; returns what it was."""
        before, version = self.rows, self.version
        kinds = {"delete": 2, "update": 3, "merge": 5, "optimize": 1, "restore": 1}
        kind = self.maker.draw.choices(list(kinds), list(kinds.values()))[0]
        what, after = getattr(self, f"_{kind}")()
        changed = self.version != version
        assert self._read() == Counter(after), what
        if not changed:
            assert Counter(after) == Counter(before), f"{what}: changed, and nothing was committed"
        elif self.feed:
            self._check_feed(self.version, before, after, what)
        self.rows = after
        self.versions[self.version] = after
        return what

    def _read(self) -> Counter[Row]:
        return Counter(tuple(row) for row in self.spark.read.format("delta").load(self.path).select(*COLUMNS).collect())

    def _check_feed(self, version: int, before: list[Row], after: list[Row], what: str) -> None:
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        frame = reader.option("startingVersion", version).option("endingVersion", version).load(self.path)
        changes: dict[str, Counter[Row]] = {}
        for row in frame.select("_change_type", *COLUMNS).collect():
            changes.setdefault(row[0], Counter())[tuple(row)[1:]] += 1
        kinds = ("delete", "update_preimage", "insert", "update_postimage")
        gone, old, new, changed = (changes.get(kind, Counter()) for kind in kinds)
        assert set(changes) <= set(kinds), what
        assert old.total() == changed.total(), what
        rebuilt = Counter(before)
        rebuilt.subtract(gone + old)
        assert min(rebuilt.values(), default=0) >= 0, f"{what}: the feed takes rows that were not there"
        assert +(rebuilt + new + changed) == Counter(after), what

    def _delete(self) -> tuple[str, list[Row]]:
        condition = self.maker.condition("t")
        self.table.delete(condition.sql)
        return f"DELETE WHERE {condition.sql}", [row for row in self.rows if condition.of(row, None) is not True]

    def _update(self) -> tuple[str, list[Row]]:
        condition, values = self.maker.condition("t"), self.maker.assignments("t")
        self.table.update(condition.sql, {name: term.sql for name, term in values.items()})
        after = [assigned(row, values, row, None) if condition.of(row, None) is True else row for row in self.rows]
        return f"UPDATE SET {[(name, term.sql) for name, term in values.items()]} WHERE {condition.sql}", after

    def _merge(self) -> tuple[str, list[Row]]:
        draw = self.maker.draw
        source = [self.maker.row(0, 40) for _ in range(draw.choice([0, 1, 4, 8, 12]))]
        if draw.random() < 0.7:  # most sources have one row a key
            source = list({row[0]: row for row in source}.values())
        search, clauses = self.maker.search(), drawn_clauses(self.maker)
        frame = self.spark.createDataFrame(source, DDL).alias("s")
        builder = built(self.table.merge(frame, search.sql), clauses)
        shown = [(c.on, c.action, c.condition and c.condition.sql, c.values and
                  {n: t.sql for n, t in c.values.items()}) for c in clauses]  # fmt: skip
        what = f"MERGE {source} ON {search.sql} {shown}"
        try:
            after = merged(self.rows, source, search, clauses)
        except Ambiguous:
            with pytest.raises(DeltaError, match="source"):
                builder.execute()
            return f"ambiguous {what}", self.rows
        builder.execute()
        return what, after

    def _optimize(self) -> tuple[str, list[Row]]:
        self.table.optimize().executeCompaction()
        return "OPTIMIZE", self.rows

    def _restore(self) -> tuple[str, list[Row]]:
        version = self.maker.draw.choice(sorted(self.versions))
        self.table.restoreToVersion(version)
        return f"RESTORE {version}", self.versions[version]


VECTORS, FEED = {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(11, 11 + int(os.environ.get("PYDELTA_CHANGE_SEQUENCES", "1"))))
@pytest.mark.parametrize(
    ("properties", "partitioned"),
    [
        pytest.param({}, True, id="copied, partitioned"),
        pytest.param(FEED, False, id="copied, feed"),
        pytest.param(VECTORS, False, id="vectors"),
        pytest.param({**VECTORS, **FEED}, True, id="vectors, feed, partitioned"),
    ],
)
def test_a_sequence_of_changes_leaves_what_the_model_says(spark, tmp_path, properties, partitioned, seed):
    sequence = Sequence(spark, str(tmp_path / "t"), Maker(seed), properties, partitioned=partitioned)
    done = []
    for _ in range(STEPS):
        done.append(sequence.step())
        theirs = deltalake.DeltaTable(sequence.path)
        listed = deltalake.QueryBuilder().register("t", theirs).execute("select id, p, v, n from t").read_all()
        names = listed.schema.names
        columns = [listed.column(names.index(name)).to_pylist() for name in COLUMNS]
        assert Counter(zip(*columns, strict=True)) == Counter(sequence.rows), f"delta-rs after {done[-1]}"
    assert len(done) == STEPS
