"""Change a table at random and compare what PyIceberg and DuckDB read with what the engine reads, after each step."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import EqualTo, GreaterThan, IsNull, LessThanOrEqual, NotNull
from pyiceberg.table import StaticTable

import pydelta
from pydelta.commands.alter.command import Alter
from pydelta.commands.alter.requests import (
    AddColumns,
    ChangeColumn,
    ChangeColumns,
    DropColumns,
    NewColumn,
    RenameColumn,
    SetProperties,
)
from pydelta.commands.run import Context
from pydelta.commands.run import run as run_command
from pydelta.errors import DeltaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import IcebergOptions, publish_iceberg, read_entry
from pydelta.protocol.types import PrimitiveType, parse_type
from pydelta.testing.commands import vacuum
from tests.iceberg.readers import Rows, canonical, duck, duckdb_rows, of_arrow, pyiceberg_rows, table_of
from tests.iceberg.values import TYPES, duckdb_literal, is_simple, pyiceberg_literal, value

_FAR = 1 << 45
_PARTITIONS = ((), ("s",), ("d",), ("n",), ("t",), ("s", "n"), ("m",), ("o",), ("k", "d"))
_NEW_TYPES = ("long", "string", "double", "date", "decimal(12,3)", "boolean", "integer")
_WIDER = {"short": "integer", "integer": "long", "float": "double"}


class World:
    """A table with an entry.

    Args:
        folder: An empty folder.
        seed: What decides everything.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.path = folder / "t é%20"
        self.trace: list[str] = []
        self.next_id = 0
        self.names = 0
        self.oldest = 0
        self.mapped = self.rng.random() < 0.5
        self.recorded: dict[int, Rows] = {}
        self.synced = -1
        self.keys: tuple[str, ...] = ()
        self.files_per_manifest = self.rng.choice((3, 20, 10_000))
        self._create("error")

    @property
    def table(self) -> pydelta.LocalTable:
        """The table, read again."""
        return pydelta.open(str(self.path), time_zone="UTC")

    @property
    def log(self) -> DeltaLog:
        """Its log."""
        return DeltaLog.for_table(str(self.path))

    def rows(self, count: int) -> pa.Table:
        """New rows of the table's columns."""
        schema = self.table.schema
        columns: dict[str, list[Any]] = {}
        for part in schema:
            columns[part.name] = [value(self.rng, part.type, partition=part.name in self.keys) for _ in range(count)]
        columns["id"] = [self.next_id + at for at in range(count)]
        self.next_id += count
        return pa.table(columns, schema=pa.schema([pa.field(part.name, part.type) for part in schema]))

    def _create(self, mode: str) -> None:
        self.keys = self.rng.choice(_PARTITIONS)
        names = [name for name in TYPES if name in self.keys or self.rng.random() < 0.7]
        if self.mapped:
            names = [name for name in names if name != "l"]  # Its parts have no ids, so it is refused.
        schema = pa.schema([("id", pa.int64()), *((name, TYPES[name]) for name in names)])
        properties = {
            "delta.enableDeletionVectors": self.rng.choice(("true", "false")),
            "delta.enableTypeWidening": "true",
            "delta.checkpointInterval": str(self.rng.choice((3, 10))),
        }
        if self.mapped:
            properties["delta.columnMapping.mode"] = "name"
        if self.rng.random() < 0.2:
            properties["delta.enableRowTracking"] = "true"
        pydelta.LocalTable.create(str(self.path), schema, partition_by=self.keys, properties=properties, mode=mode)
        self.trace.append(f"create {mode} by {self.keys} with {names}, {properties}")

    # -- steps ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do something, publish most of the time, and compare."""
        steps = self._steps()
        name, run = self.rng.choices(steps, [weight for _, _, weight in _WEIGHTS])[0]
        before = self.log.update().version
        try:
            run()
            self.trace.append(f"{before}: {name}")
        except UnsupportedFeatureError as error:
            self.trace.append(f"{before}: {name} refused: {str(error)[:80]}")
        if self.rng.random() < 0.8:
            self.check()

    def _steps(self) -> list[tuple[str, Callable[[], Any]]]:
        return [(name, getattr(self, f"_{method}")) for name, method, _ in _WEIGHTS]

    def _append(self) -> None:
        self.table.append(self.rows(self.rng.randrange(1, 6)))

    def _some_ids(self) -> str:
        first = self.rng.randrange(max(1, self.next_id))
        if self.rng.random() < 0.5:
            return f"id = {first}"
        return f"id >= {first} AND id < {first + self.rng.randrange(1, 12)}"

    def _delete(self) -> None:
        self.table.delete(self._some_ids())

    def _delete_all(self) -> None:
        self.table.delete()

    def _update(self) -> None:
        self.table.update(self._some_ids(), {"id": str(self.rng.randrange(self.next_id + 1))})

    def _merge(self) -> None:
        rows = self.rows(self.rng.randrange(2, 6))
        ids = self.rng.sample(range(self.next_id), min(rows.num_rows, self.next_id))
        rows = rows.set_column(rows.schema.get_field_index("id"), "id", pa.array(ids[: rows.num_rows], pa.int64()))
        held = self.table.scan(columns=["id"])["id"].to_pylist()
        if len(set(held)) == len(held):
            self.table.merge(rows, on="id")

    def _overwrite(self) -> None:
        self.table.overwrite(self.rows(self.rng.randrange(1, 6)))

    def _overwrite_schema(self) -> None:
        self.table.overwrite(self.rows(2), overwrite_schema=True)

    def _replace(self) -> None:
        self._create("replace")

    def _optimize(self) -> None:
        self.table.optimize()

    def _purge(self) -> None:
        self.table.purge()

    def _restore(self) -> None:
        newest = self.log.update().version
        version = self.rng.randrange(self.oldest, newest + 1)
        self.table.restore(version=version)
        self.keys = tuple(self.log.update().partition_columns)

    def _vacuum(self) -> None:
        newest = self.log.update().version
        vacuum(self.log, now_ms=_FAR)
        self.recorded = {version: rows for version, rows in self.recorded.items() if version == newest}
        self.oldest = newest
        entry = read_entry(self.log)
        assert entry is not None, "VACUUM keeps the entry"
        assert pyiceberg_rows(entry.location) == of_arrow(table_of(self.log)), "VACUUM keeps the entry's rows"
        self.check_snapshots()

    def _checkpoint(self) -> None:
        self.table.checkpoint()

    def _alter(self, change: Any) -> None:
        run_command(Alter(change, None), Context(self.log))

    def _fields(self) -> Iterator[Any]:
        for part in self.log.update().schema.fields:
            if part.name != "id" and part.name not in self.keys:
                yield part

    def _add_column(self) -> None:
        self.names += 1
        kind = parse_type(self.rng.choice(_NEW_TYPES))
        self._alter(AddColumns(columns=(NewColumn(path=(f"c{self.names}",), data_type=kind),)))

    def _drop_column(self) -> None:
        fields = list(self._fields())
        if self.mapped and len(fields) > 2:
            self._alter(DropColumns(paths=((self.rng.choice(fields).name,),)))

    def _rename_column(self) -> None:
        fields = list(self._fields())
        if self.mapped and fields:
            self.names += 1
            self._alter(RenameColumn(path=(self.rng.choice(fields).name,), name=f"r{self.names} x"))

    def _widen_column(self) -> None:
        fields = [part for part in self._fields() if str(part.data_type) in _WIDER]
        if fields:
            part = self.rng.choice(fields)
            kind = PrimitiveType(_WIDER[str(part.data_type)])
            self._alter(ChangeColumns(changes=(ChangeColumn(path=(part.name,), data_type=kind),)))

    def _vectors(self) -> None:
        self._alter(SetProperties(properties={"delta.enableDeletionVectors": self.rng.choice(("true", "false"))}))

    def _property(self) -> None:
        self._alter(SetProperties(properties={"note": str(self.rng.random())}))

    def _clone(self) -> None:
        target = self.path.with_name("clone")
        shutil.rmtree(target, ignore_errors=True)
        DeltaLog.clear_cache()
        self.table.clone(str(target))
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
        assert pyiceberg_rows(entry.metadata_location) == expected, "PyIceberg reads other rows"
        assert duckdb_rows(entry.location) == expected, "DuckDB reads other rows"
        self.recorded[version] = expected
        self._check_counts(entry.metadata_location, table.num_rows)
        self._check_filters(entry.metadata_location, table)
        if self.rng.random() < 0.05:
            self.check_snapshots()

    def _check_counts(self, location: str, rows: int) -> None:
        metadata = StaticTable.from_metadata(location).metadata
        summary = metadata.current_snapshot().summary
        assert int(summary["total-records"]) - int(summary["total-position-deletes"]) == rows
        assert int(summary["total-data-files"]) == self.log.update().num_files

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

    def _check_filters(self, location: str, table: pa.Table) -> None:
        names = [part.name for part in table.schema if is_simple(part.type)]
        rows = table.to_pylist()
        for name in self.rng.sample(names, min(3, len(names))):
            self._check_column(location, rows, table.schema, name)

    def _check_column(self, location: str, rows: list[dict[str, Any]], schema: pa.Schema, name: str) -> None:
        kind = schema.field(name).type
        columns = sorted(schema.names)
        values = [row[name] for row in rows if row[name] is not None and row[name] == row[name]]
        chosen = self.rng.choice(values) if values else None
        field = self.log.update().schema.field(name)
        metadata = {} if field is None else field.metadata
        if pa.types.is_float64(kind) and "delta.typeChanges" in metadata and values:
            chosen = 0.5  # In float32 files DuckDB compares with the literal as a float, 5e-324 as 0.
        quoted = '"' + name.replace('"', '""') + '"'

        def expect(holds: Callable[[Any], bool]) -> Rows:
            return canonical([row for row in rows if row[name] is not None and holds(row[name])], columns)

        nulls = canonical([row for row in rows if row[name] is None], columns)
        place = location.replace("'", "''")
        asked = [("IS NULL", nulls)]
        ice = [(IsNull(name), nulls)] if self.rng.random() < 0.3 else []
        if chosen is not None:
            literal = duckdb_literal(chosen, kind)
            is_float = pa.types.is_floating(kind)
            asked += [
                (f"= {literal}", expect(lambda found: found == chosen)),
                (f"<= {literal}", expect(lambda found: found <= chosen)),
                (f"> {literal}", expect(lambda found: found > chosen or (is_float and found != found))),
            ]
            given = pyiceberg_literal(chosen)
            if is_float and math.isinf(chosen):  # PyIceberg takes it for a value outside of the type of a float32 file.
                given = 0.5
                chosen = 0.5
            elif pa.types.is_int64(kind) and not -(2**31) <= chosen < 2**31 and "delta.typeChanges" in metadata:
                given = chosen = 7  # For a literal beyond a file's int32 PyIceberg gives all its rows, with null too.
            ice.append(
                self.rng.choice(
                    (
                        (EqualTo(name, given), expect(lambda found: found == chosen)),
                        (LessThanOrEqual(name, given), expect(lambda found: found <= chosen)),
                        (GreaterThan(name, given), expect(lambda found: found > chosen)),
                        (NotNull(name), expect(lambda found: True)),
                    )
                )
            )
        for condition, wanted in asked:
            query = f"SELECT * FROM iceberg_scan('{place}') WHERE {quoted} {condition}"
            assert of_arrow(duck().sql(query).to_arrow_table()) == wanted, f"DuckDB, where {name} {condition}"
        for condition, wanted in ice:
            assert pyiceberg_rows(location, condition) == wanted, f"PyIceberg, where {condition}"


_WEIGHTS = (
    ("append", "append", 24),
    ("delete", "delete", 18),
    ("update", "update", 12),
    ("merge", "merge", 10),
    ("overwrite", "overwrite", 2),
    ("overwrite with a new schema", "overwrite_schema", 1),
    ("replace the table", "replace", 1),
    ("delete all", "delete_all", 1),
    ("optimize", "optimize", 5),
    ("purge", "purge", 3),
    ("restore", "restore", 5),
    ("vacuum", "vacuum", 2),
    ("checkpoint", "checkpoint", 2),
    ("add a column", "add_column", 3),
    ("drop a column", "drop_column", 3),
    ("rename a column", "rename_column", 3),
    ("widen a column", "widen_column", 3),
    ("vectors on or off", "vectors", 4),
    ("a property", "property", 1),
    ("clone", "clone", 2),
)


class WrongRowsError(AssertionError):
    """A reader saw something else. The trace says what came before."""


def run_seed(folder: Path, seed: int, steps: int) -> World:
    """Run a seed.

    Raises:
        WrongRowsError: A reader saw something else, or a step failed.
    """
    DeltaLog.clear_cache()
    world = World(folder, seed)
    try:
        world.check()
        for _ in range(steps):
            world.step()
        world.check()
        world.check_snapshots()
    except (AssertionError, DeltaError, Exception) as error:
        last = "\n  ".join(world.trace[-25:])
        raise WrongRowsError(f"seed {seed} after {len(world.trace)} lines:\n  {last}\n{error}"[:6000]) from error
    return world
