"""Random sequences of INSERT (every form), UPDATE, DELETE and MERGE in SQL: the table is what a plain model of it is.

The rows and conditions of the model are those of ``test_change_sequences``; here everything goes through ``spark.sql``,
by name of the catalog, with column defaults, and what a statement says it did is checked too.
``PYDELTA_CHANGE_SEQUENCES=20`` tries more sequences than one of each kind.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from test_change_sequences import COLUMNS, DDL, Ambiguous, Clause, Maker, Row, assigned, drawn_clauses, merged

from pydelta.errors import DeltaError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLE, SOURCE = "sql_changes.t", "sql_changes_source"
DEFAULTS: Row = (None, None, "new", 5)


def literal(value: object) -> str:
    return "NULL" if value is None else repr(value)


def values(rows: Sequence[Sequence[object]]) -> str:
    return "VALUES " + ", ".join(f"({', '.join(map(literal, row))})" for row in rows)


class Changes:
    """A table of the catalog and its model, changed side by side; a method a statement."""

    INSERTS = (
        "insert_values", "insert_columns", "insert_default", "insert_by_name", "insert_itself", "insert_partition",
        "insert_with", "insert_from", "insert_table", "insert_parameters", "overwrite_all", "overwrite_partition",
        "overwrite_dynamic", "replace_where",
    )  # fmt: skip

    def __init__(self, spark, maker: Maker, *, partitioned: bool) -> None:
        self.spark, self.maker, self.draw, self.partitioned = spark, maker, maker.draw, partitioned
        self.rows: list[Row] = []
        self.affected: int | None = None
        for step in (self.insert_values, self.insert_values, self.insert_columns):
            self.check(step)

    def check(self, step) -> None:
        self.affected = None
        after, *statement = step()
        assert self.read() == Counter(after), statement
        self.rows = after

    def read(self) -> Counter[Row]:
        return Counter(tuple(row) for row in self.spark.sql(f"SELECT id, p, v, n FROM {TABLE}").collect())

    def new(self, most: int = 6) -> list[Row]:
        return [self.maker.row(0, 40) for _ in range(self.draw.randint(1, most))]

    def run(self, statement: str, args=None):
        return self.spark.sql(statement, args=args).collect()

    # --- INSERT ------------------------------------------------------------------------------------------

    def insert_values(self):
        new = self.new()
        self.run(what := f"INSERT INTO {TABLE} {values(new)}")
        return self.rows + new, what

    def insert_columns(self):
        names = self.draw.sample(COLUMNS, self.draw.randint(1, 4))
        new = self.new()
        given = [[row[COLUMNS.index(name)] for name in names] for row in new]
        self.run(what := f"INSERT INTO TABLE {TABLE} ({', '.join(names)}) {values(given)}")
        return self.rows + [self.filled(row, names) for row in new], what

    def filled(self, row: Row, names: Sequence[str]) -> Row:
        return tuple(row[i] if name in names else DEFAULTS[i] for i, name in enumerate(COLUMNS))

    def insert_default(self):
        self.run(what := f"INSERT INTO {TABLE} VALUES (70, 'a', DEFAULT, DEFAULT), (71, DEFAULT, 'x', 1)")
        return [*self.rows, (70, "a", "new", 5), (71, None, "x", 1)], what

    def insert_by_name(self):
        names = self.draw.sample(COLUMNS, self.draw.randint(2, 4))
        new = self.new()
        given = values([[row[COLUMNS.index(name)] for name in names] for row in new])
        self.run(what := f"INSERT INTO {TABLE} BY NAME SELECT * FROM {given} AS s ({', '.join(names)})")
        return self.rows + [self.filled(row, names) for row in new], what

    def insert_itself(self):
        condition = self.maker.condition("t")
        self.run(what := f"INSERT INTO {TABLE} SELECT id + 1, p, upper(v), n FROM {TABLE} t WHERE {condition.sql}")
        found = [row for row in self.rows if condition.of(row, None) is True]
        copies = [(None if i is None else i + 1, p, None if v is None else v.upper(), n) for i, p, v, n in found]
        return self.rows + copies, what

    def insert_partition(self):
        if not self.partitioned:
            return self.insert_values()
        new = self.new()
        given = values([(row[0], *row[2:]) for row in new])
        self.run(what := f"INSERT INTO {TABLE} PARTITION (p = 'b') {given}")
        return self.rows + [(row[0], "b", *row[2:]) for row in new], what

    def insert_with(self):
        new = self.new()
        self.run(what := f"WITH s AS ({values(new)}) INSERT INTO {TABLE} SELECT * FROM s WHERE true")
        return self.rows + new, what

    def insert_from(self):
        new = self.new()
        self.run(what := f"FROM ({values(new)}) AS s (i, p, v, n) INSERT INTO {TABLE} SELECT i, p, v, n")
        return self.rows + new, what

    def insert_table(self):
        new = self.new()
        self.spark.createDataFrame(new, DDL).createOrReplaceTempView(SOURCE)
        self.run(what := f"INSERT INTO {TABLE} TABLE {SOURCE}")
        return self.rows + new, what

    def insert_parameters(self):
        self.run(what := f"INSERT INTO {TABLE} VALUES (:id, 'a', :v, 3)", {"id": 80, "v": "o'clock; --"})
        return [*self.rows, (80, "a", "o'clock; --", 3)], what

    def overwrite_all(self):
        new = self.new(12) + self.rows[:8]
        self.run(what := f"INSERT OVERWRITE {TABLE} {values(new)}")
        return new, what

    def overwrite_partition(self):
        if not self.partitioned:
            return self.overwrite_all()
        new = self.new()
        given = values([(row[0], *row[2:]) for row in new])
        self.run(what := f"INSERT OVERWRITE TABLE {TABLE} PARTITION (p = 'a') {given}")
        return [row for row in self.rows if row[1] != "a"] + [(row[0], "a", *row[2:]) for row in new], what

    def overwrite_dynamic(self):
        if not self.partitioned:
            return self.overwrite_all()
        new = self.new(2)
        mode = "spark.sql.sources.partitionOverwriteMode"
        self.run(f"SET {mode} = dynamic")
        try:
            self.run(what := f"INSERT OVERWRITE {TABLE} {values(new)}")
        finally:
            self.run(f"RESET {mode}")
        gone = {row[1] for row in new}
        return [row for row in self.rows if row[1] not in gone] + new, what

    def replace_where(self):
        condition = self.draw.choice(["n >= 4", "p = 'a'", "id < 20 AND n IS NOT NULL", "v = 'x' OR p IS NULL"])
        holds = {
            "n >= 4": lambda r: r[3] is not None and r[3] >= 4,
            "p = 'a'": lambda r: r[1] == "a",
            "id < 20 AND n IS NOT NULL": lambda r: r[0] is not None and r[0] < 20 and r[3] is not None,
            "v = 'x' OR p IS NULL": lambda r: r[2] == "x" or r[1] is None,
        }[condition]
        new = [row for row in self.new(12) if holds(row)]
        query = f"SELECT * FROM {values(new)}" if new else f"SELECT * FROM {TABLE} WHERE false"
        self.run(what := f"INSERT INTO {TABLE} REPLACE WHERE {condition} {query}")
        return [row for row in self.rows if not holds(row)] + new, what

    # --- UPDATE, DELETE, MERGE ---------------------------------------------------------------------------

    def update(self):
        condition, terms = self.maker.condition("t"), self.maker.assignments("t")
        assignments = ", ".join(f"{self.draw.choice(['', 't.'])}{name} = {term.sql}" for name, term in terms.items())
        counted = self.run(what := f"UPDATE {TABLE} AS t SET {assignments} WHERE {condition.sql}")
        after = [assigned(row, terms, row, None) if condition.of(row, None) is True else row for row in self.rows]
        touched = sum(condition.of(row, None) is True for row in self.rows)
        assert counted[0].num_affected_rows == touched, what
        return after, what

    def update_default(self):
        self.run(what := f"UPDATE {TABLE} SET n = DEFAULT, v = DEFAULT WHERE n IS NULL")
        return [(i, p, "new", 5) if n is None else (i, p, v, n) for i, p, v, n in self.rows], what

    def delete(self):
        condition = self.maker.condition("t")
        counted = self.run(what := f"DELETE FROM {TABLE} t WHERE {condition.sql}")
        after = [row for row in self.rows if condition.of(row, None) is not True]
        assert counted[0].num_affected_rows in (len(self.rows) - len(after), -1), what
        return after, what

    def merge(self):
        source = self.new(10)
        if self.draw.random() < 0.8:
            source = list({row[0]: row for row in source}.values())
        search, clauses = self.maker.search(), drawn_clauses(self.maker)
        query = f"SELECT * FROM {values(source)} AS v (id, p, v, n)"
        ordered = sorted(clauses, key=lambda clause: ("matched", "insert", "by source").index(clause.on))
        what = f"MERGE INTO {TABLE} t USING ({query}) s ON {search.sql} " + " ".join(map(when, ordered))
        try:
            after = merged(self.rows, source, search, clauses, DEFAULTS)
        except Ambiguous:
            with pytest.raises(DeltaError, match="source"):
                self.run(what)
            return self.rows, what
        counted = self.run(what)[0]
        assert counted.num_affected_rows == (
            counted.num_updated_rows + counted.num_deleted_rows + counted.num_inserted_rows
        )
        assert len(after) - len(self.rows) == counted.num_inserted_rows - counted.num_deleted_rows, what
        return after, what


def when(clause: Clause) -> str:
    on = {"matched": "MATCHED", "by source": "NOT MATCHED BY SOURCE", "insert": "NOT MATCHED"}[clause.on]
    text = f"WHEN {on}{f' AND ({clause.condition.sql})' if clause.condition else ''} THEN "
    if clause.action == "delete":
        return f"{text}DELETE"
    if clause.values is None:
        return f"{text}{clause.action.upper()}{' SET' if clause.action == 'update' else ''} *"
    if clause.action == "update":
        return f"{text}UPDATE SET " + ", ".join(f"t.{name} = {term.sql}" for name, term in clause.values.items())
    sources = ", ".join(term.sql for term in clause.values.values())
    return f"{text}INSERT ({', '.join(clause.values)}) VALUES ({sources})"


@pytest.fixture
def database(spark) -> Iterator[None]:
    spark.sql("CREATE DATABASE sql_changes")
    yield
    spark.sql(f"DROP VIEW IF EXISTS {SOURCE}")
    spark.sql("DROP DATABASE sql_changes CASCADE")  # its table is external: the files stay


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(31, 31 + int(os.environ.get("PYDELTA_CHANGE_SEQUENCES", "1"))))
@pytest.mark.parametrize(
    ("layout", "partitioned"),
    [
        pytest.param("PARTITIONED BY (p)", True, id="partitioned"),
        pytest.param("TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", False, id="vectors"),
    ],
)
def test_statements_leave_what_the_model_says(spark, tmp_path, database, layout, partitioned, seed):
    spark.sql(
        f"CREATE TABLE {TABLE} (id bigint, p string, v string DEFAULT 'new', n int DEFAULT 5) USING delta "
        f"LOCATION '{tmp_path / 't'}' {layout}"
    )
    changes = Changes(spark, Maker(seed), partitioned=partitioned)
    kinds = [*Changes.INSERTS, *["update", "delete", "merge"] * 2, "update_default", "merge"]
    changes.draw.shuffle(kinds)
    for kind in kinds:
        changes.check(getattr(changes, kind))
    written = spark.sql(f"DESCRIBE HISTORY {TABLE}").groupBy("operation").count().collect()
    operations = {row[0] for row in written}  # a statement that found no row committed nothing
    assert {"CREATE TABLE", "WRITE"} < operations
    assert len(operations & {"UPDATE", "DELETE", "MERGE"}) >= 2
