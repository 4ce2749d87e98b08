"""Random histories of tables with odd names against a model: whatever folders, files, columns and values are called.

Files come from our own writers and from foreign ones, which spell one name in several ways. After each step the rows
are the model's, FSCK finds nothing, and VACUUM in its three ways leaves what readers need.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pydelta.api.python.local import LocalTable
from pydelta.api.routing.datasource_read import read_file
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.inventory_sources import from_frame
from pydelta.errors import SchemaError
from pydelta.log import DeltaLog
from pydelta.manifests import publish, verify_manifests
from pydelta.protocol.actions import AddFile
from pydelta.protocol.partitions import partition_dir
from pydelta.protocol.paths import encode_log_path, is_absolute_path
from pydelta.protocol.types import PrimitiveType, StructField, StructType
from pydelta.settings import Settings
from pydelta.storage.local import LocalStore
from pydelta.testing.commands import clone_table, create_table, fsck, restore, vacuum
from pydelta.txn import Operation, start_transaction

NAMES = (
    "t", "a b", "p%25q", "50%", "%2F", "x#y", "q?r", "\u00e9", "e\u0301", "n=1", "a+b&c", "10:00", "C:", "C:x", "file:",
    "s3:b", "back\\slash", "_x", ".x", "..x", "new\nline", "~", "it's \"`", "[x]*{y}^", ";", "\u2028", "l" * 120,
)  # fmt: skip
COLUMNS = ("p", "50%", "10:00", "a+b", "\u00e9", "q?r#s", "back\\slash", "_p", ".p", "%25")
VALUES = (*NAMES, None, "a/b", "a://b", "/", "__HIVE_DEFAULT_PARTITION__")
SPELLINGS = ("ours", "bare", "over", "absolute")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("append", "foreign", "foreign", "delete", "update", "optimize", "vacuum", "clone", "restore", "publish")
        ),
        st.integers(0, 2**16),
    ),
    min_size=3,
    max_size=9,
)


def spelt(path: str, root: str, kind: str) -> str:
    """A path as some writer spells it in the log; each leads to one file."""
    bare = path.replace("%", "%25")
    if kind == "bare" and not is_absolute_path(bare):
        return bare
    if kind == "over":
        return "".join(char if char == "/" else "".join(f"%{byte:02x}" for byte in char.encode()) for char in path)
    if kind == "absolute":
        return f"{root.replace('file:///', 'file:/')}/{quote(path)}"
    return encode_log_path(path)


class World:
    def __init__(self, folder: Path, table: str, column: str) -> None:
        self.folder, self.column = folder, column
        self.root = folder / table / "t"
        self.log = DeltaLog(LocalStore(str(self.root)), settings=Settings())
        fields = (("id", "long"), (column, "string"))
        schema = StructType(tuple(StructField(name, PrimitiveType(kind)) for name, kind in fields))
        definition = TableDefinition(schema=schema, partition_columns=[column])
        create_table(self.log, definition, mode=CreateMode.CREATE, settings=Settings())
        self.rows: dict[int, str | None] = {}
        self.versions: dict[int, dict[int, str | None]] = {0: {}}
        self.oldest, self.next, self.clones = 0, 0, 0

    def step(self, what: str, choice: int) -> None:
        getattr(self, what)(choice)
        version = self.log.update().version
        self.versions[version] = dict(self.rows)
        self.check(self.log, self.rows)

    def check(self, log: DeltaLog, rows: dict[int, str | None]) -> None:
        report = fsck(log)
        assert report.ok, report
        snapshot = log.update()
        found = {}
        for add in snapshot.files.adds(snapshot.files.core):
            for batch in read_file(snapshot, add.path, add.partition_values, {}, add.deletion_vector):
                for row in batch.to_pylist():
                    assert found.setdefault(row["id"], row[self.column]) == row[self.column]
        assert found == rows
        if not any(is_absolute_path(add.path) for add in snapshot.files.adds(snapshot.files.core)):
            table = LocalTable(log).scan()
            assert dict(zip(*(table[name].to_pylist() for name in ("id", self.column)), strict=True)) == rows

    def fresh(self, choice: int) -> tuple[int, str | None]:
        self.next += 1
        return self.next, VALUES[choice % len(VALUES)]

    def append(self, choice: int) -> None:
        rows = [self.fresh(choice), self.fresh(choice // 7)]
        columns = {
            "id": pa.array([row[0] for row in rows]),
            self.column: pa.array([row[1] for row in rows], pa.string()),
        }
        LocalTable(self.log).append(pa.table(columns))
        self.rows.update(rows)

    def foreign(self, choice: int) -> None:
        number, value = self.fresh(choice)
        name, kind = NAMES[choice // 5 % len(NAMES)], SPELLINGS[choice // 3 % len(SPELLINGS)]
        folder = ("", f"{partition_dir({self.column: value})}/", f"{NAMES[choice // 11 % len(NAMES)]}/")[choice % 3]
        path = f"{folder}{name}-{number}.parquet" if choice % 2 else f"{folder}{name}"
        file = self.root / path
        if file.exists() or any(above.is_file() for above in file.parents):
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([number])}), str(file))
        add = AddFile(
            path=spelt(path, self.log.uri, kind), partition_values={self.column: value}, size=file.stat().st_size,
            modification_time=1, data_change=True,
        )  # fmt: skip
        start_transaction(self.log).commit([add], Operation(name="WRITE"))
        self.rows[number] = value

    def _chosen(self, choice: int) -> int | None:
        return sorted(self.rows)[choice % len(self.rows)] if self.rows and not self._has_absolute() else None

    def _has_absolute(self) -> bool:
        return any(is_absolute_path(path) for path in self.log.update().files.core["path"])

    def delete(self, choice: int) -> None:
        number = self._chosen(choice)
        if number is not None:
            LocalTable(self.log).delete(f"id = {number}")
            del self.rows[number]

    def update(self, choice: int) -> None:
        number = self._chosen(choice)
        if number is not None:
            LocalTable(self.log).update(f"id = {number}", {"id": str(number + 10_000)})
            self.rows[number + 10_000] = self.rows.pop(number)

    def optimize(self, choice: int) -> None:
        if not self._has_absolute():
            LocalTable(self.log).optimize()

    def publish(self, choice: int) -> None:
        if "__HIVE_DEFAULT_PARTITION__" in self.rows.values():
            try:
                publish(self.log)
            except SchemaError as error:
                assert "__HIVE_DEFAULT_PARTITION__" in str(error) or "line break" in str(error)
                return
            raise AssertionError("Hive's name for NULL was published")
        try:
            publish(self.log)
        except SchemaError as error:
            assert "line break" in str(error)
            return
        assert verify_manifests(self.log).ok

    def vacuum(self, choice: int) -> None:
        later = time.time_ns() // 1_000_000 + 60_000
        how = {
            0: Vacuum(retention_hours=0, enforce_retention=False),
            1: Vacuum(retention_hours=0, enforce_retention=False, mode="lite"),
        }.get(choice % 3)
        if how is None:
            listed = list(self.log.store.list_all())
            frame = pl.DataFrame(
                {
                    "path": [f"{self.root}/{info.path}" if choice % 2 else info.path for info in listed],
                    "length": [info.size for info in listed],
                    "isDir": [False] * len(listed),
                    "modificationTime": [info.modification_time_ms for info in listed],
                }
            )
            inventory = from_frame(frame, encoded=False)
            how = Vacuum(retention_hours=0, enforce_retention=False, inventory=inventory)
        vacuum(self.log, how, now_ms=later)
        self.oldest = self.log.update().version

    def restore(self, choice: int) -> None:
        known = [version for version in self.versions if version >= self.oldest]
        if known:
            version = known[choice % len(known)]
            restore(self.log, version=version)
            self.rows = dict(self.versions[version])

    def clone(self, choice: int) -> None:
        self.clones += 1
        root = self.folder / NAMES[choice % len(NAMES)] / f"clone{self.clones}"
        log = DeltaLog(LocalStore(str(root)), settings=Settings())
        clone_table(self.log, log, shallow=bool(choice % 2))
        self.check(log, self.rows)
        rows = dict(self.rows)
        for table in (self.log, log):
            request = Vacuum(retention_hours=0, enforce_retention=False)
            vacuum(table, request, now_ms=time.time_ns() // 1_000_000 + 60_000)
            self.check(log, rows)
        self.oldest = self.log.update().version
        again = DeltaLog(LocalStore(str(root.parent / f"again{self.clones}")), settings=Settings())
        clone_table(log, again, shallow=bool(choice // 2 % 2))
        self.check(again, rows)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(COLUMNS), STEPS)
@example("p%25q", "p", [("append", 4), ("foreign", 3), ("clone", 1), ("clone", 3), ("vacuum", 0)])
@example("t", "p", [("foreign", 56), ("foreign", 61), ("foreign", 65), ("vacuum", 0), ("vacuum", 2), ("vacuum", 5)])
@example("t", "p", [("foreign", 5392), ("delete", 0), ("append", 0)])
@example("10:00", "10:00", [("foreign", 63), ("append", 11), ("optimize", 0), ("vacuum", 1), ("restore", 0)])
def test_a_table_keeps_its_rows_whatever_its_names_are(table, column, steps):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), table, column)
        for what, choice in steps:
            world.step(what, choice)
