"""Change a table at random and compare what PyIceberg and DuckDB read with what the engine reads, after each step."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import EqualTo, GreaterThan, IsNull, LessThanOrEqual, NotNull
from pyiceberg.table import StaticTable

from pydelta.errors import DeltaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import IcebergEntry, IcebergOptions, publish_iceberg, read_entry
from pydelta.testing.commands import vacuum
from tests.iceberg.lineage import RowIds
from tests.iceberg.readers import Rows, duck, duckdb_rows, of_arrow, pyiceberg_rows, table_of
from tests.iceberg.spark_reader import SparkReader
from tests.iceberg.steps import STEPS, ChangingTable
from tests.iceberg.values import duckdb_literal, is_simple, pyiceberg_literal, spark_literal

_FAR = 1 << 45
_WITH_SPARK = 0.1
_DUCKDB_CONDITIONS = 2
"""How many conditions on each column DuckDB is asked after each step."""

Ids = Counter[Any]


class World(ChangingTable):
    """A table with an entry.

    Args:
        folder: An empty folder.
        seed: What decides everything.
        spark: Spark's Iceberg, to read the entry too after some of the steps.
    """

    def __init__(self, folder: Path, seed: int, spark: SparkReader | None = None) -> None:
        self.spark = spark
        self.spark_rng = random.Random(seed)  # The steps of a seed are the same without Spark.
        self.recorded: dict[int, Rows] = {}
        self.row_ids = RowIds()
        self.left_to_spark = 0
        super().__init__(folder, seed)
        self.files_per_manifest = self.rng.choice((3, 20, 10_000))

    def step(self) -> None:
        """Do something, publish and compare."""
        (name,) = self.rng.choices(list(STEPS), list(STEPS.values()))
        self.trace.append(f"{self.log.update().version}: {name}")
        try:
            getattr(self, f"_{name}")()
        except UnsupportedFeatureError as error:
            self.trace.append(f"refused: {str(error)[:80]}")
        self.check()

    def _vacuum(self) -> None:
        newest = self.log.update().version
        vacuum(self.log, now_ms=_FAR)
        self.recorded = {version: rows for version, rows in self.recorded.items() if version == newest}
        self.oldest = newest
        entry = read_entry(self.log)
        assert entry is not None, "VACUUM keeps the entry"
        assert pyiceberg_rows(entry.location) == of_arrow(table_of(self.log)), "VACUUM keeps the entry's rows"
        self.check_snapshots()

    def _clone(self) -> None:
        target = self.path.with_name("clone")
        shutil.rmtree(target, ignore_errors=True)
        DeltaLog.clear_cache()
        self.table.clone(str(target), shallow=self.rng.random() < 0.5)
        result = publish_iceberg(DeltaLog.for_table(str(target)))
        expected = of_arrow(table_of(DeltaLog.for_table(str(target))))
        assert pyiceberg_rows(result.entry.metadata_location) == expected
        assert duckdb_rows(result.entry.location) == expected

    # -- comparing ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Publish, and compare rows, filters and, now and then, older snapshots."""
        full = self.rng.random() < 0.03
        try:
            options = IcebergOptions(full=full, keep_snapshots=20, files_per_manifest=self.files_per_manifest)
            result = publish_iceberg(self.log, options)
        except UnsupportedFeatureError as error:
            self.trace.append(f"not published: {str(error)[:100]}")
            raise
        entry = result.entry
        self.trace.append(f"published {entry.version} as v{entry.number}, {result.reason or 'changes'}")
        table = table_of(self.log)
        expected = of_arrow(table)
        version = self.log.update().version
        assert entry.version == version
        assert read_entry(self.log) == entry
        self._check_engine(expected)
        assert pyiceberg_rows(entry.metadata_location) == expected, "PyIceberg reads other rows"
        assert duckdb_rows(entry.location) == expected, "DuckDB reads other rows"
        self.recorded[version] = expected
        self._check_counts(entry, table.num_rows)
        with_spark = self.spark_rng.random() < _WITH_SPARK and self.spark is not None
        if with_spark:
            self._check_spark(entry, expected)
        self._check_filters(entry, table, with_spark=with_spark)
        if self.rng.random() < 0.05:
            self.check_snapshots()

    def _check_engine(self, expected: Rows) -> None:
        """Compare with the engine's own reader.

        It leaves files to Spark that are older than a wider type of a column, or than a part of a struct.
        """
        try:
            found = self.table.scan()
        except UnsupportedFeatureError as error:
            self.left_to_spark += 1
            self.trace.append(f"not read without Spark: {str(error)[:200]}")
            return
        assert of_arrow(found) == expected, "the engine reads other rows than the log and Arrow"

    def _check_counts(self, entry: IcebergEntry, rows: int) -> None:
        metadata = StaticTable.from_metadata(entry.metadata_location).metadata
        summary = metadata.current_snapshot().summary
        assert int(summary["total-records"]) - int(summary["total-position-deletes"]) == rows
        assert int(summary["total-data-files"]) == self.log.update().num_files
        self.row_ids.check(self.log)

    def _check_spark(self, entry: IcebergEntry, expected: Rows) -> None:
        assert self.spark is not None
        assert of_arrow(self.spark.rows(entry.location)) == expected, "Spark's Iceberg reads other rows"
        if self.row_ids.is_kept:
            found = self.spark.row_ids(entry.location)
            assert found == {"rows": len(expected), "different": len(expected), "null": 0}, "row ids are wrong"

    def check_snapshots(self) -> None:
        """Compare every snapshot with the rows that its version had."""
        entry = read_entry(self.log)
        assert entry is not None
        static = StaticTable.from_metadata(entry.metadata_location)
        for snapshot in static.metadata.snapshots:
            version = int(snapshot.summary["pydelta.version"])
            if version in self.recorded:
                found = of_arrow(static.scan(snapshot_id=snapshot.snapshot_id).to_arrow())
                assert found == self.recorded[version], f"the snapshot of version {version} has other rows"

    def _check_filters(self, entry: IcebergEntry, table: pa.Table, *, with_spark: bool) -> None:
        """Ask the readers for rows by conditions on every column, and compare the ids with those of a full read."""
        rows = table.to_pylist()
        by_sql: list[_Condition] = []
        by_spark: list[_Condition] = []
        static = StaticTable.from_metadata(entry.metadata_location)
        for part in table.schema:
            if not is_simple(part.type):
                continue
            found = self._conditions(rows, part)
            by_sql += self.rng.sample(found, _DUCKDB_CONDITIONS)
            by_spark.append(self.rng.choice(found))
            item = self.rng.choice(self._conditions(rows, part, for_pyiceberg=True))
            # For a partition column that is not selected, PyIceberg finds no rows in files that lack it.
            shown = static.scan(row_filter=item.expression, selected_fields=("id", part.name)).to_arrow()
            assert Counter(shown["id"].to_pylist()) == item.ids, f"PyIceberg, where {item.expression}"
        _ask_duckdb(entry.metadata_location, by_sql)
        if with_spark:
            assert self.spark is not None
            answers = self.spark.ids(entry.location, [item.spark for item in by_spark])
            for item, ids in zip(by_spark, answers, strict=True):
                assert Counter(ids) == item.ids, f"Spark's Iceberg, where {item.spark}"

    def _conditions(
        self, rows: list[dict[str, Any]], part: pa.Field, *, for_pyiceberg: bool = False
    ) -> list[_Condition]:
        """Draw conditions on a column that compare it with one of its values."""
        name, kind = part.name, part.type
        values = [row[name] for row in rows if row[name] is not None and row[name] == row[name]]
        chosen = self.rng.choice(values) if values else _ANY.get(kind)
        field = self.log.update().schema.field(name)
        is_widened = field is not None and "delta.typeChanges" in field.metadata
        is_float = pa.types.is_floating(kind)
        if pa.types.is_float64(kind) and is_widened:
            chosen = 0.5  # In float32 files DuckDB compares with the literal as a float, 5e-324 as 0.
        if for_pyiceberg and is_float and chosen is not None and math.isinf(chosen):
            chosen = 0.5  # PyIceberg takes it for a value outside of the type of a float32 file.
        if for_pyiceberg and pa.types.is_int64(kind) and is_widened and not -(2**31) <= (chosen or 0) < 2**31:
            chosen = 7  # For a literal beyond a file's int32 PyIceberg gives all its rows, with null too.
        has_nan = is_float and not for_pyiceberg  # It is the largest value in SQL.
        holds: dict[str, Callable[[Any], bool]] = {"IS NOT NULL": lambda value: True}
        if chosen is not None:
            holds |= {
                "=": lambda value: value == chosen,
                "<=": lambda value: value <= chosen,
                ">": lambda value: value > chosen or (has_nan and value != value),
            }
        found = [_Condition(Counter(row["id"] for row in rows if row[name] is None), part, "IS NULL")]
        for operator, test in holds.items():
            ids = Counter(row["id"] for row in rows if row[name] is not None and test(row[name]))
            found.append(_Condition(ids, part, operator, None if operator == "IS NOT NULL" else chosen))
        return found


_ANY: dict[pa.DataType, Any] = {pa.int64(): 5, pa.float64(): 0.5, pa.string(): "a"}
"""Values to ask for in columns without any."""
_EXPRESSIONS: dict[str, Callable[..., Any]] = {"=": EqualTo, "<=": LessThanOrEqual, ">": GreaterThan}


@dataclass(frozen=True)
class _Condition:
    """A condition on a column, and the ids of the rows for which it holds."""

    ids: Ids
    column: pa.Field
    operator: str
    value: Any = None

    @property
    def duckdb(self) -> str:
        """Its SQL for DuckDB."""
        quoted = '"' + self.column.name.replace('"', '""') + '"'
        literal = "" if self.value is None else duckdb_literal(self.value, self.column.type)
        return f"{quoted} {self.operator} {literal}"

    @property
    def spark(self) -> str:
        """Its SQL for Spark."""
        literal = "" if self.value is None else spark_literal(self.value, self.column.type)
        return f"`{self.column.name}` {self.operator} {literal}"

    @property
    def expression(self) -> Any:
        """Itself for PyIceberg."""
        if self.value is None:
            return (IsNull if self.operator == "IS NULL" else NotNull)(self.column.name)
        return _EXPRESSIONS[self.operator](self.column.name, pyiceberg_literal(self.value))


def _ask_duckdb(location: str, asked: list[_Condition]) -> None:
    """Ask for all conditions in one statement: each is a scan of its own."""
    place = location.replace("'", "''")
    scans = (f"SELECT {at} AS at, id FROM iceberg_scan('{place}') WHERE {item.duckdb}" for at, item in enumerate(asked))
    found = [Counter[Any]() for _ in asked]
    for at, row_id in duck().sql(" UNION ALL ".join(scans)).fetchall():
        found[at][row_id] += 1
    for item, ids in zip(asked, found, strict=True):
        assert ids == item.ids, f"DuckDB, where {item.duckdb}"


class WrongRowsError(AssertionError):
    """A reader saw something else. The trace says what came before."""


def run_seed(folder: Path, seed: int, steps: int, spark: SparkReader | None = None) -> World:
    """Run a seed.

    Raises:
        WrongRowsError: A reader saw something else, or a step failed.
    """
    DeltaLog.clear_cache()
    world = World(folder, seed, spark)
    try:
        world.check()
        for _ in range(steps):
            world.step()
        world.check_snapshots()
    except (AssertionError, DeltaError, Exception) as error:
        last = "\n  ".join(world.trace[-25:])
        raise WrongRowsError(f"seed {seed} after {len(world.trace)} lines:\n  {last}\n{error}"[:6000]) from error
    return world
