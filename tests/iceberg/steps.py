"""Change a table in every way that an Iceberg entry has to follow, chosen at random.

Constraints, defaults and SET NOT NULL are left out: they need Spark, and change nothing that an entry has.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import pydelta
from pydelta.commands.alter.command import Alter
from pydelta.commands.alter.features import DropFeature
from pydelta.commands.alter.requests import (
    AddColumns,
    ChangeColumn,
    ChangeColumns,
    ClusterBy,
    DropColumns,
    NewColumn,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from pydelta.commands.run import run as run_command
from pydelta.log import DeltaLog
from pydelta.protocol.schema_edits import After, First
from pydelta.protocol.types import PrimitiveType, StructField, StructType, parse_type
from pydelta.testing.commands import enable_row_tracking
from tests.iceberg.values import TYPES, value

_PARTITIONS = ((), ("s",), ("d",), ("n",), ("t",), ("s", "n"), ("m",), ("o",), ("k", "d"))
_NEW_TYPES = ("long", "string", "double", "date", "decimal(12,3)", "boolean", "integer")
_WIDER = {"short": "integer", "integer": "long", "float": "double"}
_FORMAT = "pydelta.iceberg.formatVersion"
_MAPPING = "delta.columnMapping.mode"
_KEPT = ("delta.enableDeletionVectors", "delta.enableTypeWidening", _MAPPING, _FORMAT)


class ChangingTable:
    """A table that changes at random.

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
        self.format = 3 if seed % 3 == 2 else 2
        self._create("error")

    @property
    def table(self) -> pydelta.LocalTable:
        """The table, read again."""
        return pydelta.open(str(self.path), time_zone="UTC")

    @property
    def log(self) -> DeltaLog:
        """Its log."""
        return DeltaLog.for_table(str(self.path))

    @property
    def keys(self) -> tuple[str, ...]:
        """Its partition columns."""
        return tuple(self.log.update().partition_columns)

    @property
    def is_mapped(self) -> bool:
        """Whether its columns have ids."""
        return self.log.update().column_mapping_mode != "none"

    def rows(self, count: int) -> pa.Table:
        """New rows of the table's columns."""
        schema, keys = self.table.schema, self.keys
        columns: dict[str, list[Any]] = {}
        for part in schema:
            columns[part.name] = [value(self.rng, part.type, partition=part.name in keys) for _ in range(count)]
        columns["id"] = [self.next_id + at for at in range(count)]
        self.next_id += count
        return pa.table(columns, schema=pa.schema([pa.field(part.name, part.type) for part in schema]))

    def _properties(self) -> dict[str, str]:
        properties = {
            "delta.enableDeletionVectors": self.rng.choice(("true", "false")),
            "delta.enableTypeWidening": "true",
            "delta.checkpointInterval": str(self.rng.choice((3, 10))),
        }
        if self.rng.random() < 0.5:
            properties[_MAPPING] = "name"
        if self.rng.random() < 0.2:
            properties["delta.enableRowTracking"] = "true"
        if self.format == 3 and self.rng.random() < 0.7:  # Otherwise it is asked for later.
            properties[_FORMAT] = "3"
        return properties

    def _create(self, mode: str) -> None:
        keys, properties = self.rng.choice(_PARTITIONS), self._properties()
        keys = keys if mode != "replace" or self._may_partition else ()
        names = [name for name in TYPES if name in keys or self.rng.random() < 0.7]
        if _MAPPING in properties:
            names = [name for name in names if name != "l"]  # Its parts have no ids, so it is refused.
        key = pa.field("id", pa.int64(), nullable=self.rng.random() < 0.7)
        schema = pa.schema([key, *((name, TYPES[name]) for name in names)])
        pydelta.LocalTable.create(str(self.path), schema, partition_by=keys, properties=properties, mode=mode)
        self.trace.append(f"create {mode} by {keys} with {names}, {properties}")

    # -- rows --------------------------------------------------------------------------------------------------------

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
        changed = {"id": str(self.rng.randrange(self.next_id + 1))}
        names = [part.name for part in self._fields()]
        if names and self.rng.random() < 0.3:
            changed = {_quoted(self.rng.choice(names)): "NULL"}
        self.table.update(self._some_ids(), changed)

    def _merge(self) -> None:
        rows = self.rows(self.rng.randrange(2, 6))
        ids = self.rng.sample(range(self.next_id), min(rows.num_rows, self.next_id))
        rows = rows.set_column(rows.schema.get_field_index("id"), "id", pa.array(ids[: rows.num_rows], pa.int64()))
        matched, inserted, others = "update", "insert", None
        if self.rng.random() < 0.4:
            matched, inserted = self.rng.choice((("delete", "insert"), (None, "insert"), ("update", None)))
        if self.rng.random() < 0.1:
            others = "delete"
        self.table.merge(rows, on="id", matched=matched, not_matched=inserted, not_matched_by_source=others)

    def _overwrite(self) -> None:
        self.table.overwrite(self.rows(self.rng.randrange(1, 6)))

    def _overwrite_some(self) -> None:
        first = self.rng.randrange(max(1, self.next_id))
        rows = self.rows(2)
        rows = rows.set_column(rows.schema.get_field_index("id"), "id", pa.array([first, first + 1], pa.int64()))
        self.table.overwrite(rows, where=f"id >= {first} AND id < {first + 3}")

    # -- the whole table ---------------------------------------------------------------------------------------------

    def _overwrite_schema(self) -> None:
        self.table.overwrite(self.rows(2), overwrite_schema=True)

    def _replace(self) -> None:
        self._create("replace")

    @property
    def _may_partition(self) -> bool:
        """Whether the table may be replaced by a partitioned one: not once it has had clustering columns."""
        return "clustering" not in (self.log.update().protocol.writer_features or ())

    def _repartition(self) -> None:
        """Replace the table by its own rows, by other partition columns and in their present types."""
        rows = self.table.scan()
        found = {part.name: part.type for part in rows.schema if not pa.types.is_nested(part.type)}
        keys = self.rng.choice([keys for keys in _PARTITIONS if all(found.get(key) == TYPES[key] for key in keys)])
        keys = keys if self._may_partition else ()
        properties = dict(self.log.update().metadata.configuration)
        kept = {name: text for name, text in properties.items() if name in _KEPT}
        pydelta.LocalTable.create(str(self.path), rows, partition_by=keys, properties=kept, mode="replace")
        self.trace.append(f"repartitioned by {keys}")

    def _optimize(self) -> None:
        self.table.optimize()

    def _purge(self) -> None:
        self.table.purge()

    def _restore(self) -> None:
        newest = self.log.update().version
        version = self.rng.randrange(self.oldest, newest + 1)
        self.table.restore(version=version)
        self.trace.append(f"restored {version}")

    def _checkpoint(self) -> None:
        self.table.checkpoint()

    # -- ALTER TABLE -------------------------------------------------------------------------------------------------

    def _alter(self, change: Any) -> None:
        run_command(Alter(change, None), self.table._context)

    def _fields(self) -> Iterator[StructField]:
        keys = self.keys
        for part in self.log.update().schema.fields:
            if part.name != "id" and part.name not in keys:
                yield part

    def _structs(self) -> list[StructField]:
        return [part for part in self._fields() if isinstance(part.data_type, StructType)]

    def _new_name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def _add_column(self) -> None:
        kind = parse_type(self.rng.choice(_NEW_TYPES))
        position = self.rng.choice((None, None, First(), After("id")))
        self._alter(AddColumns(columns=(NewColumn(path=(self._new_name("c"),), data_type=kind, position=position),)))

    def _add_part(self) -> None:
        structs = self._structs()
        if structs:
            kind = parse_type(self.rng.choice(_NEW_TYPES))
            path = (self.rng.choice(structs).name, self._new_name("p"))
            self._alter(AddColumns(columns=(NewColumn(path=path, data_type=kind),)))

    def _drop_column(self) -> None:
        fields = list(self._fields())
        if self.is_mapped and len(fields) > 2:
            self._alter(DropColumns(paths=((self.rng.choice(fields).name,),)))

    def _change_part(self) -> None:
        """Rename or drop a part of a struct."""
        structs = [part for part in self._structs() if len(part.data_type.fields) > 1]
        if self.is_mapped and structs:
            struct = self.rng.choice(structs)
            path = (struct.name, self.rng.choice(struct.data_type.fields).name)
            renamed = RenameColumn(path=path, name=self._new_name("q "))
            self._alter(self.rng.choice((renamed, DropColumns(paths=(path,)))))

    def _rename_column(self) -> None:
        fields = list(self._fields())
        if self.is_mapped and fields:
            self._alter(RenameColumn(path=(self.rng.choice(fields).name,), name=self._new_name("r ")))

    def _rename_key(self) -> None:
        if self.is_mapped and self.keys:
            self._alter(RenameColumn(path=(self.rng.choice(self.keys),), name=self._new_name("k ")))

    def _change(self, **what: Any) -> None:
        self._alter(ChangeColumns(changes=(ChangeColumn(**what),)))

    def _widen_column(self) -> None:
        fields = [part for part in self._fields() if str(part.data_type) in _WIDER]
        allowed = self.log.update().properties.enable_type_widening  # RESTORE may have gone to a version without it.
        if fields and allowed:
            part = self.rng.choice(fields)
            self._change(path=(part.name,), data_type=PrimitiveType(_WIDER[str(part.data_type)]))

    def _move_column(self) -> None:
        fields = [part.name for part in self._fields()]
        if fields:
            self._change(path=(self.rng.choice(fields),), position=self.rng.choice((First(), After("id"))))

    def _drop_not_null(self) -> None:
        self._change(path=("id",), nullable=True)

    def _comment(self) -> None:
        fields = [part.name for part in self._fields()]
        if fields:
            self._change(path=(self.rng.choice(fields),), comment=self.rng.choice(("", "a", "é")))
        self._alter(SetComment(text=self.rng.choice((None, "a table"))))

    def _replace_columns(self) -> None:
        """Name all columns again, in another order."""
        fields = list(self.log.update().schema.fields)
        self.rng.shuffle(fields)
        columns = tuple(
            NewColumn(path=(part.name,), data_type=part.data_type, nullable=part.nullable) for part in fields
        )
        self._alter(ReplaceColumns(columns=columns))

    def _cluster(self) -> None:
        if not self.keys:
            self._alter(ClusterBy(columns=self.rng.choice((("id",), None))))

    def _vectors(self) -> None:
        self._alter(SetProperties(properties={"delta.enableDeletionVectors": self.rng.choice(("true", "false"))}))

    def _property(self) -> None:
        self._alter(SetProperties(properties={"note": str(self.rng.random())}))
        self._alter(UnsetProperties(names=("note",)))

    def _ask_for_format(self) -> None:
        self._alter(SetProperties(properties={_FORMAT: str(self.format)}))

    def _map_columns(self) -> None:
        if not any("array" in str(part.data_type) for part in self.log.update().schema.fields):
            self._alter(SetProperties(properties={_MAPPING: "name"}))

    def _track_rows(self) -> None:
        enable_row_tracking(self.log)

    def _drop_widening(self) -> None:
        """Drop the feature, which rewrites older files, and set its property again, also if a file needs Spark."""
        try:
            run_command(DropFeature(name="typeWidening"), self.table._context)
        finally:
            self._alter(SetProperties(properties={"delta.enableTypeWidening": "true"}))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


STEPS: Mapping[str, int] = {
    "append": 24,
    "delete": 18,
    "update": 12,
    "merge": 10,
    "overwrite": 2,
    "overwrite_some": 3,
    "overwrite_schema": 1,
    "replace": 1,
    "repartition": 2,
    "delete_all": 1,
    "optimize": 5,
    "purge": 3,
    "restore": 5,
    "vacuum": 2,
    "checkpoint": 2,
    "add_column": 3,
    "add_part": 1,
    "drop_column": 3,
    "change_part": 2,
    "rename_column": 3,
    "rename_key": 1,
    "widen_column": 3,
    "move_column": 2,
    "drop_not_null": 1,
    "comment": 1,
    "replace_columns": 1,
    "cluster": 1,
    "vectors": 4,
    "property": 1,
    "ask_for_format": 1,
    "map_columns": 1,
    "track_rows": 1,
    "drop_widening": 1,
    "clone": 2,
}
"""Steps with their weights."""
