"""Tables and commands as values, drawn from a seed. A command says what is done, not by whom.

::

    Table    columns, partitions, properties, constraints, generated and identity columns
    Command  append, overwrite, replace where, delete, update, merge, optimize, purge, restore, vacuum, ALTER
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pyarrow as pa

from pydelta.protocol.schema import to_arrow
from pydelta.protocol.types import DataType, PrimitiveType, StructField, StructType
from tests.arrow_rows import Generator
from tests.routes.conditions import draw_condition, draw_value, is_simple, literal, quoted

__all__ = ["Column", "Command", "Rows", "Table", "draw_command", "draw_table"]

LONG: Final = PrimitiveType("long")
_MAPPED_ONLY: Final = " ,;{}()\n\t="
_KEYS: Final = range(1, 10)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a new table: ``made`` is what it is generated as, ``identity`` says ALWAYS or BY DEFAULT."""

    name: str
    kind: DataType
    nullable: bool = True
    made: str = ""
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A new table."""

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    properties: dict[str, str]
    checks: dict[str, str]
    folder: str


@dataclass(frozen=True, slots=True)
class Rows:
    """New rows: the columns that they have, in the table's types, and the same values in another layout of Arrow."""

    plain: pa.Table
    odd: pa.Table
    values: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Command:
    """What is done. Of the fields, each kind uses its own.

    Args:
        kind: Its name.
        rows: What comes in.
        where: A condition.
        values: Column -> SQL, of an update.
        clauses: Of a merge: what becomes of matched rows, of new ones, and of those that the rows lack.
        text: The rest of an ALTER; ``TABLE`` stands for the table.
        names: Columns to order by.
        version: What is gone back to.
        as_columns: Whether the API is given columns rather than texts.
    """

    kind: str
    rows: Rows | None = None
    where: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    clauses: tuple[str, str, str] = ("", "", "")
    text: str = ""
    names: tuple[str, ...] = ()
    version: int = 0
    as_columns: bool = False

    def __str__(self) -> str:
        rows = None if self.rows is None else list(self.rows.values)
        parts = {name: getattr(self, name) for name in ("where", "values", "text", "names", "version")}
        parts |= {"clauses": self.clauses if any(self.clauses) else "", "rows": rows}
        return f"{self.kind} " + ", ".join(f"{name}={value!r}" for name, value in parts.items() if value)


def draw_table(random: Random) -> Table:
    """Draw a table; its first column is a key, ``id``."""
    generator = Generator(random.randrange(2**32))
    mapped = random.random() < 0.5
    drawn = [item for item in generator.schema().fields[1:] if mapped or _is_plain(item)]
    columns = [Column("id", LONG, random.random() < 0.8)]
    columns += [Column(item.name, item.data_type, random.random() < 0.9) for item in drawn]
    simple = [column.name for column in columns[1:] if is_simple(column.kind)]
    partition_by = tuple(random.sample(simple, min(len(simple), random.choice([0, 0, 1, 1, 2]))))
    if len(partition_by) >= len(columns) - 1:
        partition_by = partition_by[: len(columns) - 2]
    if random.random() < 0.15:
        columns.append(Column("Made", LONG, made=random.choice(["id % 3", "id * 2"])))
        partition_by = random.choice([partition_by, ("Made",)])
    if random.random() < 0.15:
        columns.append(Column("no", LONG, identity=random.choice(["ALWAYS", "BY DEFAULT"])))
    flags = {
        "delta.enableDeletionVectors": 0.5, "delta.enableChangeDataFeed": 0.4, "delta.enableRowTracking": 0.2,
        "delta.enableInCommitTimestamps": 0.1,
    }  # fmt: skip
    properties = {name: "true" for name, often in flags.items() if random.random() < often}
    if mapped:
        properties["delta.columnMapping.mode"] = random.choice(["name", "name", "id"])
    if random.random() < 0.1:
        properties["delta.checkpoint.writeStatsAsStruct"] = "true"
    if random.random() < 0.1:
        properties["delta.dataSkippingNumIndexedCols"] = random.choice(["0", "1", "2"])
    checks = {"small one": "id < 8"} if random.random() < 0.15 else {}
    return Table(tuple(columns), partition_by, properties, checks, random.choice(["t", "é t", "a%20b", "x=1", "p.q"]))


def _is_plain(item: StructField) -> bool:
    return not any(char in str(item.to_dict()["name"]) + _names_in(item.data_type) for char in _MAPPED_ONLY)


def _names_in(kind: DataType) -> str:
    inner = [getattr(kind, part) for part in ("element_type", "key_type", "value_type") if hasattr(kind, part)]
    fields = list(kind.fields) if isinstance(kind, StructType) else []
    return "".join(
        [item.name for item in fields] + [_names_in(item) for item in (*inner, *(f.data_type for f in fields))]
    )


_KINDS: Final = (
    *("append",) * 6, *("merge",) * 6, *("update",) * 5, *("delete",) * 4, "overwrite", "replace where", "optimize",
    "optimize", "purge", "restore", "vacuum", *("alter",) * 3,
)  # fmt: skip


def draw_command(random: Random, schema: StructType, partition_by: tuple[str, ...], version: int) -> Command:
    """Draw what is done next to a table.

    Args:
        random: Decides.
        schema: The table's, as it is.
        partition_by: Its partition columns.
        version: Its newest version.
    """
    kind = random.choice(_KINDS)
    as_columns = random.random() < 0.5
    if kind in ("append", "overwrite"):
        keys = [random.choice(_KEYS) for _ in range(random.randint(1, 4))]
        return Command(kind, _rows(random, schema, keys))
    if kind == "replace where":
        keys = random.sample(_KEYS, 2)
        return Command(kind, _rows(random, schema, keys), where=f"id IN ({keys[0]}, {keys[1]})")
    if kind == "merge":
        clauses = (
            random.choice(["update", "update", "delete", ""]), random.choice(["insert", "insert", ""]),
            random.choice(["", "", "delete"]),
        )  # fmt: skip
        rows = _rows(random, schema, random.sample(_KEYS, random.randint(1, 4)), whole=True)
        return Command(kind, rows, clauses=clauses if any(clauses) else ("update", "", ""), as_columns=as_columns)
    if kind == "update":
        return Command(
            kind,
            where=None if random.random() < 0.2 else _where(random, schema),
            values=_assignments(random, schema),
            as_columns=as_columns,
        )
    if kind == "delete":
        return Command(kind, where=_where(random, schema), as_columns=as_columns)
    if kind == "optimize":
        rest = [item.name for item in schema.fields if item.name not in partition_by and is_simple(item.data_type)]
        return Command(kind, names=tuple(random.sample(rest, min(len(rest), random.choice([0, 0, 1, 2])))))
    if kind == "restore":
        return Command(kind, version=random.randint(0, version))
    return Command(kind, text=_alteration(random, schema)) if kind == "alter" else Command(kind)


def _writable(schema: StructType) -> list[StructField]:
    computed = ("delta.generationExpression", "delta.identity.step")
    return [item for item in schema.fields if not any(key in item.metadata for key in computed)]


def _rows(random: Random, schema: StructType, keys: list[int], *, whole: bool = False) -> Rows:
    """Draw rows of some keys, of the columns that a writer may give; ``whole``: of all of them."""
    fields = _writable(schema)
    if not whole:
        fields = [item for item in fields if item.name == "id" or random.random() < 0.9]
    if not any(item.name == "id" for item in fields):  # it was renamed
        keys = keys[:1]
    generator = Generator(random.randrange(2**32))
    shape = StructType(tuple(item.replace(nullable=True, metadata={}) for item in fields))
    values = [{item.name: generator.value(item.data_type) for item in fields} | {"id": key} for key in keys]
    for item in fields:
        if not item.nullable and item.name != "id" and random.random() < 0.8:
            for row in values:
                while row[item.name] is None:
                    row[item.name] = generator.value(item.data_type)
    # Fields of structs may be left out here, and then they are left out of ``values`` too.
    odd = {
        item.name: generator.chunked([row[item.name] for row in values], item.data_type, spoil=False)
        for item in shape.fields
    }
    plain = to_arrow(shape)
    arrays = [pa.array([row[item.name] for row in values], _storage(item.type)).cast(item.type) for item in plain]
    return Rows(pa.Table.from_arrays(arrays, schema=plain), pa.table(odd), tuple(values))


def _storage(target: pa.DataType) -> pa.DataType:
    """The type with days and microseconds as whole numbers, which Arrow takes from Python beyond the year 9999."""
    if pa.types.is_date(target):
        return pa.int32()
    if pa.types.is_timestamp(target):
        return pa.int64()
    if pa.types.is_struct(target):
        return pa.struct([pa.field(item.name, _storage(item.type)) for item in target])
    if pa.types.is_list(target):
        return pa.list_(_storage(target.value_type))
    return pa.map_(_storage(target.key_type), _storage(target.item_type)) if pa.types.is_map(target) else target


def _where(random: Random, schema: StructType) -> str:
    return draw_condition(random, schema.fields, _KEYS).text


def _assignments(random: Random, schema: StructType) -> dict[str, str]:
    fields = [item for item in _writable(schema) if item.name != "id"] or list(schema.fields)
    values = {}
    for item in random.sample(fields, min(len(fields), random.choice([1, 1, 2]))):
        same = [other.name for other in schema.fields if other.data_type == item.data_type and other != item]
        if same and random.random() < 0.4:
            values[quoted(item.name)] = quoted(random.choice(same))
        elif is_simple(item.data_type) and random.random() < 0.85:
            values[quoted(item.name)] = literal(draw_value(random, item.data_type), item.data_type)
        else:
            values[quoted(item.name)] = "NULL"
    return values


def _alteration(random: Random, schema: StructType) -> str:
    column = quoted(random.choice(schema.names))
    new = random.choice(["new", "Neu é", "new.er", "N-2"])
    return random.choice(
        [
            f"ADD COLUMNS ({quoted(new)} {random.choice(['INT', 'STRING', 'TIMESTAMP', 'STRUCT<`a.b`: DATE>'])})",
            f"ADD COLUMN {quoted(new)} DECIMAL(5,2) FIRST",
            f"RENAME COLUMN {column} TO {quoted(new)}",
            f"DROP COLUMN {column}",
            f"ALTER COLUMN {column} COMMENT 'it''s é'",
            f"SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{random.choice(['true', 'false'])}')",
            f"SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{random.choice(['true', 'false'])}', 'k.é' = 'v')",
            "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            f"ADD CONSTRAINT few CHECK (id < {random.choice([7, 100])})",
            "DROP CONSTRAINT IF EXISTS few",
        ]
    )
