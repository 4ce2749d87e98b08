"""Change tables of the stack at random, as ``world`` does, and compare what engines read by metastore and REST catalog.

It runs on the machine of the stack, whose ports are on the loopback: ``scripts/test-stack-iceberg``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import duckdb
import duckdb_extensions
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from catalog_sync.iceberg.entry import found_iceberg
from catalog_sync.iceberg.sync import sync_iceberg
from catalog_sync.inputs import SyncOptions
from catalog_sync.names import TableName, iceberg_name
from catalog_sync.thrift.client import Metastore
from jobs.verify.trino import TrinoError
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.testing.commands import vacuum
from tests.iceberg.readers import Rows, of_arrow, table_of
from tests.iceberg.trino import Engine, to_milliseconds
from tests.iceberg.values import TYPES, is_simple
from tests.iceberg.world import World, WrongRowsError

__all__ = ["DATABASE", "Stack", "StackWorld", "run_stack_seed"]

_NO_RANGES = "cannot use empty ranges"

DATABASE = "stack_tests"
_FAR = 1 << 45


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The stack's services, at their ports of this machine.

    Args:
        metastore: A connection.
        store: Address of the object store.
        rest: URL of the Iceberg REST catalog.
        trino: Trino.
        presto: Presto; None without it.
        run: Part of the tables' names: Trino keeps metadata files by their paths, and knows one that is gone.
        key: Key of the store and its secret.
        token: Token for the REST catalog.
    """

    metastore: Metastore
    store: str
    rest: str
    trino: Engine
    presto: Engine | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    key: tuple[str, str] = field(repr=False)
    token: str = field(repr=False)

    @property
    def engines(self) -> list[Engine]:
        """The engines that read by the metastore."""
        return [self.trino] if self.presto is None else [self.trino, self.presto]

    def pyiceberg(self) -> RestCatalog:
        """PyIceberg's client of the REST catalog."""
        store = {
            "s3.endpoint": f"http://{self.store}",
            "s3.region": "us-east-1",
            "s3.access-key-id": self.key[0],
            "s3.secret-access-key": self.key[1],
        }
        return RestCatalog("lake", uri=self.rest, token=self.token, **store)

    @contextmanager
    def duckdb(self, token: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of DuckDB that has the REST catalog attached as ``lake``."""
        with duckdb.connect() as link:
            for name in ("httpfs", "avro", "iceberg"):
                duckdb_extensions.import_extension(name, con=link)
                link.sql(f"LOAD {name}")
            link.sql("SET TimeZone = 'UTC'")
            link.sql(
                f"CREATE SECRET store (TYPE s3, KEY_ID '{self.key[0]}', SECRET '{self.key[1]}', REGION 'us-east-1', "
                f"ENDPOINT '{self.store}', USE_SSL false, URL_STYLE 'path')"
            )
            link.sql(f"CREATE SECRET rest (TYPE iceberg, TOKEN '{token or self.token}')")
            link.sql(
                f"ATTACH 'lake' AS lake (TYPE iceberg, SECRET rest, ENDPOINT '{self.rest}', "
                "ACCESS_DELEGATION_MODE 'none')"
            )
            yield link

    def environment(self) -> dict[str, str]:
        """The variables by which a table is found at its URI alone."""
        return dict(os.environ) | {
            "PYDELTA_FS_S3A_ENDPOINT": f"http://{self.store}",
            "PYDELTA_FS_S3A_ENDPOINT_REGION": "us-east-1",
            "PYDELTA_FS_S3A_PATH_STYLE_ACCESS": "true",
            "AWS_ACCESS_KEY_ID": self.key[0],
            "AWS_SECRET_ACCESS_KEY": self.key[1],
        }


class _Folder(str):
    """A folder of the store, by its URI."""

    __slots__ = ()

    def __truediv__(self, name: str) -> _Folder:
        return _Folder(f"{self}/{name}")


class StackWorld(World):
    """A table in the stack's store with an entry in its metastore.

    Args:
        stack: The stack.
        seed: What decides everything. Times have a zone for even ones alone: with it Presto refuses a table.
    """

    def __init__(self, stack: Stack, seed: int) -> None:
        self.stack = stack
        self.zoned = seed % 2 == 0
        self.name = TableName(database=DATABASE, name=f"seed_{seed}_{stack.run}")
        self.seen: dict[int, tuple[pa.Schema, Rows]] = {}
        self.reads: dict[str, int] = {}
        self._clones = 0
        self._adopt = False
        # Those of the third kind would ask for format 3, which Trino 476 does not read.
        super().__init__(_Folder(f"s3a://warehouse/{DATABASE}/{self.name.name}"), seed // 2 * 3 + seed % 2)

    @property
    def entry(self) -> TableName:
        """Name of the entry."""
        return iceberg_name(self.name)

    # -- steps that differ in the stack ---------------------------------------------------------------------------

    def _create(self, mode: str) -> None:
        with mock.patch.dict(TYPES, {} if self.zoned else {"t": pa.timestamp("us")}):
            super()._create(mode)
        self._adopt = mode == "replace"

    def _vacuum(self) -> None:
        newest = self.log.update().version
        there = found_iceberg(self.stack.metastore.table(self.entry.database, self.entry.name))
        vacuum(self.log, now_ms=_FAR)
        self.recorded = {}
        self.seen = {version: rows for version, rows in self.seen.items() if version == newest}
        self.oldest = newest
        if there.version == newest:
            table = table_of(self.log)
            assert self.stack.trino.rows(self.entry, table.schema) == of_arrow(table), "VACUUM keeps the entry's rows"

    def _clone(self) -> None:
        self._clones += 1
        name = TableName(database=DATABASE, name=f"{self.name.name}_clone_{self._clones}")
        target = f"s3a://warehouse/{DATABASE}/{name.name}"
        self.table.clone(target)
        log = DeltaLog.for_table(target)
        sync_iceberg(log, self.stack.metastore, iceberg_name(name), iceberg=True)
        table = table_of(log)
        assert self.stack.trino.rows(iceberg_name(name), table.schema) == of_arrow(table), "Trino reads another clone"
        self.stack.metastore.drop(iceberg_name(name).database, name.name)

    # -- comparing ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Sync the entry, and compare the rows of each reader, and those that conditions keep."""
        options = SyncOptions(full=self.rng.random() < 0.03, adopt=self._adopt)
        result = sync_iceberg(self.log, self.stack.metastore, self.entry, options, iceberg=True)
        self._adopt = False
        assert result is not None
        assert result.version == self.log.update().version
        self.trace.append(f"synced {result.version}, {result.reason or 'changes'}")
        table = table_of(self.log)
        rows = of_arrow(table)
        self.seen[result.version] = (table.schema, rows)
        self._check_rest(rows)
        for engine in self.stack.engines:
            self._check_engine(engine, table)

    def check_snapshots(self) -> None:
        """Compare the newest snapshots with the rows that their versions had, by Trino."""
        loaded = self.stack.pyiceberg().load_table((self.name.database, self.name.name))
        for snapshot in sorted(loaded.metadata.snapshots, key=lambda item: item.sequence_number)[-4:]:
            version = int(snapshot.summary["pydelta.version"])
            if version in self.seen:
                schema, rows = self.seen[version]
                place = f"{self.entry} FOR VERSION AS OF {snapshot.snapshot_id}"
                assert self.stack.trino.rows(place, schema) == rows, f"the snapshot of version {version} has other rows"
                self._count("Trino, an older snapshot")

    def _check_rest(self, rows: Rows) -> None:
        name = (self.name.database, self.name.name)
        found = self.stack.pyiceberg().load_table(name).scan().to_arrow()
        assert of_arrow(found) == rows, "PyIceberg reads other rows through the REST catalog"
        with self.stack.duckdb() as link:
            table = link.sql(f"SELECT * FROM lake.{self.name}").to_arrow_table()
        assert of_arrow(table) == rows, "DuckDB reads other rows through the REST catalog"
        self._count("PyIceberg and DuckDB by REST")

    def _check_engine(self, engine: Engine, table: pa.Table) -> None:
        if engine.is_presto and any(pa.types.is_timestamp(part.type) and part.type.tz for part in table.schema):
            self._check_refused(engine)
            return
        if engine.is_presto:
            table = to_milliseconds(table)
        if engine.is_presto and self.log.update().column_mapping_mode != "none":
            nested = [part.name for part in table.schema if pa.types.is_nested(part.type)]
            for name in nested:
                self._check_nested(engine, table.select([name]))
            table = table.drop_columns(nested)
        found, wanted = engine.rows(self.entry, table.schema), of_arrow(table)
        assert found == wanted, (
            f"{engine.name} reads other rows: {_differing(found, wanted, sorted(table.column_names))}"
        )
        self._count(engine.name)
        self._check_conditions(engine, table)

    def _check_refused(self, engine: Engine) -> None:
        try:
            engine.run(f"SELECT id FROM iceberg.{self.entry}")
        except TrinoError as error:
            assert "timestamptz is not supported" in str(error), f"{engine.name} says: {error}"
            self._count(f"{engine.name} refuses times with a zone")
        else:
            raise AssertionError(f"{engine.name} reads times with a zone: docs/guides/iceberg.md is wrong")

    def _check_nested(self, engine: Engine, table: pa.Table) -> None:
        """Presto finds parts of a column by their names in the files, where column mapping gives them others."""
        try:
            found = engine.rows(self.entry, table.schema)
        except TrinoError:
            self._count(f"{engine.name} fails over nested columns of a table with column mapping")
            return
        if found != of_arrow(table):
            self._count(f"{engine.name} reads nested columns of a table with column mapping wrongly")

    def _check_conditions(self, engine: Engine, table: pa.Table) -> None:
        """Ask for the ids under conditions over every column, each of which may leave out files by their bounds."""
        rows = table.to_pylist()
        asked: list[str] = []
        expected: list[list[int]] = []
        for part in table.schema:
            if not is_simple(part.type):
                continue
            values = [row[part.name] for row in rows if row[part.name] is not None and row[part.name] == row[part.name]]
            value = self.rng.choice(values) if values else None
            if engine.is_presto and pa.types.is_timestamp(part.type):  # It compares times that it has cut.
                value = None
            if pa.types.is_float64(part.type) and self._is_widened(part.name):
                self._check_widened(engine, part, value)
                continue
            for sign, condition in engine.conditions(part, value).items():
                wanted = sorted(row["id"] for row in rows if _holds(sign, row, part.name, value))
                asked.append(condition)
                expected.append(wanted)
        for condition, wanted, found in zip(asked, expected, self._ids(engine, asked), strict=True):
            assert found is None or found == wanted, f"{engine.name}, where {condition}: {found}, not {wanted}"
        self._count(f"{engine.name}, conditions", len(asked))

    def _ids(self, engine: Engine, conditions: list[str]) -> list[list[int] | None]:
        """Ask for the ids under conditions in one statement, or one by one where Presto 0.287 fails over some.

        It fails over IS NULL where a column is null in a whole row group that has page indexes.
        """
        try:
            return [*engine.ids(self.entry, conditions)]
        except TrinoError as error:
            if not engine.is_presto or _NO_RANGES not in str(error):
                raise
        found: list[list[int] | None] = []
        for condition in conditions:
            try:
                found += engine.ids(self.entry, [condition])
            except TrinoError as error:
                assert condition.endswith(" IS NULL") and _NO_RANGES in str(error), f"where {condition}: {error}"
                self._count("Presto fails over IS NULL")
                found.append(None)
        return found

    def _is_widened(self, name: str) -> bool:
        field = self.log.update().schema.field(name)
        return field is not None and "delta.typeChanges" in field.metadata

    def _check_widened(self, engine: Engine, part: pa.Field, value: float | None) -> None:
        """Trino 476 and Presto 0.287 fail over a condition on a double whose files have floats and their statistics."""
        condition = engine.conditions(part, value).get("<=")
        if condition is not None:
            try:
                engine.ids(self.entry, [condition])
            except TrinoError as error:
                known = ("Corrupted statistics", "Float cannot be cast")
                assert any(words in str(error) for words in known), f"{engine.name}, where {condition}: {error}"
                self._count(f"{engine.name} fails over a condition on a widened float")

    def _count(self, what: str, number: int = 1) -> None:
        self.reads[what] = self.reads.get(what, 0) + number


def _differing(found: Rows, wanted: Rows, names: list[str]) -> str:
    """Say how many rows differ, and what in the first one that does."""
    for row, other in zip(found, wanted, strict=False):
        if row != other:
            parts = [f"{name} is {a!r}, not {b!r}" for name, a, b in zip(names, row, other, strict=True) if a != b]
            return f"{len(found)} of {len(wanted)}; {'; '.join(parts)}"
    return f"{len(found)} of {len(wanted)}"


def _holds(sign: str, row: Mapping[str, Any], name: str, value: Any) -> bool:
    found = row[name]
    if sign.startswith("IS"):
        return (found is None) == (sign == "IS NULL")
    if found is None:
        return False
    return {"=": found == value, "<>": found != value, "<=": found <= value, ">": found > value}[sign]


def run_stack_seed(stack: Stack, seed: int, steps: int) -> StackWorld:
    """Run a seed.

    Raises:
        WrongRowsError: A reader saw something else, or a step failed.
    """
    with mock.patch.dict(os.environ, stack.environment()):
        DeltaLog.clear_cache()
        world = StackWorld(stack, seed)
        try:
            world.check()
            for _ in range(steps):
                world.step()
            world.check()
            world.check_snapshots()
        except (AssertionError, DeltaError, Exception) as error:
            last = "\n  ".join(world.trace[-25:])
            raise WrongRowsError(f"seed {seed} after {len(world.trace)} lines:\n  {last}\n{error}"[:6000]) from error
        finally:
            DeltaLog.clear_cache()
    return world
