"""Turn a Delta schema into an Iceberg schema with lasting field ids, and a name mapping for files without ids. Pure.

::

    column mapping    id of a column                     id of an element, key or value
    none              given once, kept by its path       given once, kept by its path
    none              parquet.field.id, if there is one  none
    name, id          delta.columnMapping.id             delta.columnMapping.nested.ids

Files of columns with ids have these ids, and then readers find nothing that lacks one: DuckDB reads NULL for the
elements of an array without an error. So arrays and maps without nested ids (icebergCompatV2 gives them) are refused.
delta-rs copies ``parquet.field.id`` from the rows that it writes into the schema and the files.

The name mapping is the memory of ids: it also names columns that only files have (dropped, left out, row tracking),
because readers refuse a file with a column that it does not name. Every column is optional, since files may lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.types import DecimalType as IcebergDecimal
from pyiceberg.types import MapType as IcebergMap
from pyiceberg.types import PrimitiveType as IcebergPrimitive
from pyiceberg.types import StructType as IcebergStruct

from pydelta.errors import SchemaError, UnsupportedFeatureError
from pydelta.manifests.iceberg.name_mapping import (
    MappedName,
    find_name,
    ids_of,
    mapping_text,
    previous_mapping,
    with_names,
    with_retired,
)
from pydelta.protocol.iceberg_compat import NESTED_IDS
from pydelta.protocol.schema import EXISTENCE_DEFAULT, FIELD_ID, physical_name
from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType, parse_type

__all__ = ["EntryLeaf", "EntrySchema", "IcebergColumn", "PreviousColumns", "entry_schema", "promotes"]

_FIRST_PART_ID: Final = 1_000_000_000
"""First id for what column mapping gives no id, all of it left out. Ids of later columns never reach it."""
_COLLATIONS: Final = "__COLLATIONS"
_PARQUET_ID: Final = "parquet.field.id"
_PRIMITIVES: Final[Mapping[str, IcebergPrimitive]] = {
    "byte": IntegerType(),
    "short": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_WHOLE: Final = ("byte", "short", "integer", "long")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLeaf:
    """A column without parts outside lists and maps, so that its statistics can be used.

    Args:
        field_id: Its id.
        path: Its physical name, below those of the structs that hold it: its place in the statistics.
        data_type: Its type in Delta.
        collated: Whether a collation orders its texts.
    """

    field_id: int
    path: tuple[str, ...]
    data_type: DataType
    collated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergColumn:
    """A column of the table as the entry has it: its name in the table, its id and its type in Delta."""

    name: str
    field_id: int
    data_type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySchema:
    """The schema of the entry at one version.

    Args:
        schema: Iceberg's schema, with schema id 0.
        name_mapping: ``schema.name-mapping.default``. Give it back the next time, because it remembers ids.
        last_column_id: The highest id ever given.
        left_out: Names of the columns that Iceberg cannot hold.
        restarts: Why older snapshots can no longer be read with this name mapping, as a phrase, or None if they can.
        leaves: The columns whose statistics can be used.
        columns: The columns at the top, by their name in lower case.
    """

    schema: Schema
    name_mapping: str
    last_column_id: int
    left_out: tuple[str, ...]
    restarts: str | None
    leaves: tuple[EntryLeaf, ...]
    columns: Mapping[str, IcebergColumn]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousColumns:
    """The columns that an entry has, which keep their ids.

    Args:
        schema: Its current schema; None for a new entry.
        last_column_id: Its ``last-column-id``, the largest id ever given.
        name_mapping: Its current name mapping, as JSON; None if it has none.
    """

    schema: Schema | None
    last_column_id: int
    name_mapping: str | None = None


def entry_schema(
    schema: StructType,
    *,
    mode: str,
    previous: PreviousColumns | None = None,
    omit: bool = False,
    only_in_files: Sequence[Sequence[str]] = (),
) -> EntrySchema:
    """Turn a table's schema into the entry's.

    Args:
        schema: The table's schema.
        mode: ``delta.columnMapping.mode``.
        previous: The columns that the entry has; None for a new entry.
        omit: Whether to leave out columns that Iceberg cannot hold, rather than refuse them.
        only_in_files: Paths of columns that files have beside the schema's: the materialized columns of row tracking,
            and columns that were dropped before the entry was first published.

    Raises:
        UnsupportedFeatureError: Iceberg cannot hold a column. Names each, and what to do.
        SchemaError: Two columns have the same full name in Iceberg, or no column is left.
    """
    held = previous or PreviousColumns(schema=None, last_column_id=0, name_mapping=None)
    mapping = previous_mapping(held.name_mapping, held.schema)
    marked = _PARQUET_ID if any(_PARQUET_ID in item.metadata for item in _fields_in(schema)) else None
    id_key = FIELD_ID if mode != "none" else marked
    builder = _Builder(mode=mode, id_key=id_key, previous=held.schema, last_id=held.last_column_id)
    fields, named = builder.fields(schema, mapping, ())
    if builder.problems and not omit:
        raise _refused(builder.problems)
    if not fields:
        raise SchemaError(
            "Iceberg can hold none of the table's columns: " + "; ".join(map(str, builder.problems)) + ".",
            hint="Add a column of another type.",
        )
    _refuse_same_names(fields)
    built = Schema(*fields)
    builder.check_returned(built, mapping)
    return EntrySchema(
        schema=built,
        name_mapping=mapping_text(
            with_names(with_retired(named, mapping, builder.new_id), only_in_files, builder.new_id)
        ),
        last_column_id=builder.last_id,
        left_out=tuple(builder.left_out),
        restarts=builder.restarts,
        leaves=tuple(builder.leaves),
        columns=builder.columns,
    )


def promotes(old: DataType, new: DataType) -> bool:
    """Return whether a reader of Iceberg v2 reads files of the old type as the new one."""
    if old == new:
        return True
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    first, second = str(old), str(new)
    if first in _WHOLE and second in _WHOLE:
        return _WHOLE.index(first) <= _WHOLE.index(second)
    return (first, second) == ("float", "double")


@dataclass(frozen=True, slots=True)
class _Problem:
    """A column that Iceberg cannot hold."""

    name: str
    why: str
    cure: str

    def __str__(self) -> str:
        return f"{self.name!r}, which {self.why}"


_COPY: Final = "copy the rows into a new table (CREATE TABLE … AS SELECT)"
_OTHER_TYPE: Final = "cast it to another type"
_UNMAP: Final = "set delta.columnMapping.mode to none, which rewrites the files (names must be plain)"
_NESTED_CURE: Final = f"{_UNMAP}, or copy the rows into a table with delta.enableIcebergCompatV2"


def _refused(problems: Sequence[_Problem]) -> UnsupportedFeatureError:
    first = {problem.name: problem for problem in reversed(problems)}
    cures = " or ".join(dict.fromkeys(problem.cure for problem in problems))
    return UnsupportedFeatureError(
        "The Iceberg entry cannot hold "
        + "; ".join(str(first[name]) for name in dict.fromkeys(problem.name for problem in problems))
        + ".",
        features=("iceberg",),
        hint=f"{cures[:1].upper()}{cures[1:]}, or leave such columns out of the entry: set the property "
        "'pydelta.iceberg.unsupported' = 'omit'.",
    )


@dataclass(slots=True)
class _Builder:
    """Builds fields and their name mapping together. ``restarts`` gets the first reason."""

    mode: str
    id_key: str | None
    previous: Schema | None
    last_id: int
    restarts: str | None = None
    problems: list[_Problem] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    leaves: list[EntryLeaf] = field(default_factory=list)
    columns: dict[str, IcebergColumn] = field(default_factory=dict)
    _nested: Mapping[str, int] = field(default_factory=dict)

    def fields(
        self, struct: StructType, mapped: Sequence[MappedName], above: tuple[str, ...] | None, full: str = ""
    ) -> tuple[list[NestedField], list[MappedName]]:
        """Build the fields of a struct. ``above`` is its path in the statistics, or None inside a list or a map."""
        fields, named = [], []
        for item in struct.fields:
            found, name = self._field(item, mapped, above, full)
            named.append(name)
            if found is not None:
                fields.append(found)
        return fields, named

    def _field(
        self, item: StructField, mapped: Sequence[MappedName], above: tuple[str, ...] | None, full: str
    ) -> tuple[NestedField | None, MappedName]:
        physical = physical_name(item) if self.mode != "none" else item.name
        name = f"{full}.{item.name}" if full else item.name
        identifier, partner = self._id(item, physical, mapped, name)
        path = None if above is None else (*above, physical)
        outer = self._nested
        self._nested = item.metadata.get(NESTED_IDS) or {} if self.mode != "none" else {}
        problems = len(self.problems)
        parts = partner.parts if partner is not None else ()
        kind, children = self._type(item.data_type, parts, path, name, physical)
        self._nested = outer
        names = (physical, *(old for old in (partner.names if partner is not None else ()) if old != physical))
        mapping = MappedName(identifier, names, tuple(children))
        if kind is not None and len(self.problems) > problems and not isinstance(kind, IcebergStruct):
            kind = None
        if kind is None or self._has_wrong_files(item, name):
            self._leave_out(name, path)
            return None, mapping
        if path is not None and isinstance(kind, IcebergPrimitive):
            collated = _COLLATIONS in item.metadata
            self.leaves.append(EntryLeaf(field_id=identifier, path=path, data_type=item.data_type, collated=collated))
        if not full:
            column = IcebergColumn(name=item.name, field_id=identifier, data_type=item.data_type)
            self.columns[item.name.lower()] = column
        comment = item.metadata.get("comment")
        return NestedField(identifier, item.name, kind, required=False, doc=str(comment) if comment else None), mapping

    def _leave_out(self, name: str, path: tuple[str, ...] | None) -> None:
        """Note that a column is left out as a whole, with the leaves in it."""
        self.left_out = [*(other for other in self.left_out if not other.startswith(f"{name}.")), name]
        if path is not None:
            self.leaves = [leaf for leaf in self.leaves if leaf.path[: len(path)] != path]

    def _has_wrong_files(self, item: StructField, name: str) -> bool:
        """Return whether files of older types, or without the column, would be read wrongly. Notes why."""
        for change in item.metadata.get("delta.typeChanges") or ():
            old, new = parse_type(change.get("fromType")), parse_type(change.get("toType"))
            if not promotes(old, new):
                part = f".{change['fieldPath']}" if change.get("fieldPath") else ""
                cure = "rewrite such files by ALTER TABLE … DROP FEATURE typeWidening"
                why = f"was widened from {old} to {new}, as Iceberg does not allow"
                self.problems.append(_Problem(f"{name}{part}", why, cure))
                return True
        default = item.metadata.get(EXISTENCE_DEFAULT)
        if default is None or str(default).strip().upper() == "NULL":
            return False
        why = f"is {default} in files that lack it ({EXISTENCE_DEFAULT}), where readers of Iceberg find NULL"
        self.problems.append(_Problem(name, why, _COPY))
        return True

    def _id(
        self, item: StructField, physical: str, mapped: Sequence[MappedName], name: str
    ) -> tuple[int, MappedName | None]:
        """Return the column's id and its place in the previous name mapping."""
        if self.id_key is not None and self.id_key in item.metadata:
            identifier = int(item.metadata[self.id_key])
            self.last_id = max(self.last_id, identifier)
            partner = next((known for known in mapped if known.field_id == identifier), None)
            if any(physical in known.names and known.field_id != identifier for known in mapped):
                self._restart(f"the column {name} has another id")
            elif partner is not None and not self._is_readable(identifier, item.data_type):
                self._restart(f"the column {name} has another type")
            return identifier, partner
        if self.id_key is not None:
            self.problems.append(_Problem(name, "has no id, although others have one", self._cure))
        return self._kept_id(find_name(mapped, physical), item.data_type, name)

    def _part(
        self, part: str, data_type: DataType, mapped: Sequence[MappedName], name: str, physical: str
    ) -> tuple[int, MappedName | None]:
        """Return the id of an element, key or value."""
        given = self._nested.get(f"{physical}.{part}")
        partner = next((known for known in mapped if part in known.names), None)
        if given is None:
            return self._kept_id(partner, data_type, f"{name}.{part}")
        self.last_id = max(self.last_id, int(given))
        if partner is not None and partner.field_id != int(given):
            self._restart(f"the column {name}.{part} has another id")
        return int(given), partner

    def _kept_id(self, partner: MappedName | None, data_type: DataType, name: str) -> tuple[int, MappedName | None]:
        lowest = 1 if self.id_key is None else _FIRST_PART_ID
        if partner is None:
            return self.new_id(), partner
        if partner.field_id < lowest:
            self._restart(f"the column {name} has another id")
            return self.new_id(), partner
        if self._is_readable(partner.field_id, data_type):
            return partner.field_id, partner
        self._restart(f"the column {name} has another type")
        return self.new_id(), None

    def _is_readable(self, identifier: int, data_type: DataType) -> bool:
        """Return whether files with the id's previous type, if it is known, are read rightly as the new type."""
        if self.previous is None or identifier not in self.previous.field_ids:
            return True
        return _goes_over(self.previous.find_field(identifier).field_type, data_type)

    def new_id(self) -> int:
        """Return an id that was never given."""
        self.last_id = max(self.last_id, 0 if self.id_key is None else _FIRST_PART_ID - 1) + 1
        return self.last_id

    def _restart(self, reason: str) -> None:
        if self.restarts is None and self.previous is not None:
            self.restarts = reason

    def _type(
        self,
        data_type: DataType,
        mapped: Sequence[MappedName],
        path: tuple[str, ...] | None,
        name: str,
        physical: str,
    ) -> tuple[IcebergType | None, list[MappedName]]:
        """Return the Iceberg type, or None for a problem, and the name mapping of its parts."""
        if isinstance(data_type, StructType):
            fields, named = self.fields(data_type, mapped, path, name)
            if not fields and not data_type.fields:
                self.problems.append(_Problem(name, "is a struct without fields", _OTHER_TYPE))
            return (IcebergStruct(*fields) if fields else None), named
        if isinstance(data_type, ArrayType):
            self._check_parts({"element": data_type.element_type}, name, physical)
            (item,) = self._parts({"element": data_type.element_type}, mapped, name, physical)
            kind = None if item.kind is None else ListType(item.field_id, item.kind, element_required=False)
            return kind, [item.mapped]
        if isinstance(data_type, MapType):
            parts = {"key": data_type.key_type, "value": data_type.value_type}
            self._check_parts(parts, name, physical)
            key, value = self._parts(parts, mapped, name, physical)
            named = [key.mapped, value.mapped]
            if key.kind is None or value.kind is None:
                return None, named
            return IcebergMap(key.field_id, key.kind, value.field_id, value.kind, value_required=False), named
        if isinstance(data_type, DecimalType):
            return IcebergDecimal(data_type.precision, data_type.scale), []
        simple = _PRIMITIVES.get(data_type.name)
        if simple is not None:
            return simple, []
        # Version 3 has unknown and variant, but DuckDB cannot open a table with the one, PyIceberg none with the other.
        self.problems.append(
            _Problem(name, f"is {data_type.name}, a type that some readers of Iceberg lack", _OTHER_TYPE)
        )
        inside = ("metadata", "value") if data_type.name == "variant" else ()
        return None, [self.only_in_files(part, mapped) for part in inside]

    def _check_parts(self, parts: Mapping[str, DataType], name: str, physical: str) -> None:
        """Note why readers would find NULL inside an array or a map."""
        if self.id_key is not None and any(f"{physical}.{part}" not in self._nested for part in parts):
            self.problems.append(_Problem(name, "is an array or a map without ids for its parts", self._cure))
        inner = [part for part in parts.values() if isinstance(part, ArrayType | MapType)]
        if self.mode != "none" and any(physical_name(item) != item.name for part in inner for item in _fields_in(part)):
            why = "has fields with other names in the files inside two arrays or maps, for which PyIceberg reads NULL"
            self.problems.append(_Problem(name, why, _UNMAP))

    @property
    def _cure(self) -> str:
        return _COPY if self.mode == "none" else _NESTED_CURE

    def _parts(
        self, parts: Mapping[str, DataType], mapped: Sequence[MappedName], name: str, physical: str
    ) -> list[_Part]:
        found = []
        for part, kind in parts.items():
            identifier, partner = self._part(part, kind, mapped, name, physical)
            below = partner.parts if partner is not None else ()
            problems = len(self.problems)
            built, named = self._type(kind, below, None, f"{name}.{part}", f"{physical}.{part}")
            whole = None if len(self.problems) > problems else built
            mapping = MappedName(identifier, (part,), tuple(named))
            found.append(_Part(identifier, whole, mapping))
        return found

    def only_in_files(self, name: str, mapped: Sequence[MappedName]) -> MappedName:
        """Name a column that files have but the entry has not."""
        partner = find_name(mapped, name)
        return MappedName(self.new_id(), (name,)) if partner is None else partner

    def check_returned(self, schema: Schema, mapped: Sequence[MappedName]) -> None:
        """Start the entry again if a dropped column is back: older snapshots may have it in another type."""
        if self.previous is not None:
            back = (schema.field_ids - self.previous.field_ids) & set(ids_of(mapped))
            for identifier in sorted(back):
                self._restart(f"the column {schema.find_column_name(identifier)} was dropped and added again")


@dataclass(frozen=True, slots=True)
class _Part:
    """An element, key or value."""

    field_id: int
    kind: IcebergType | None
    mapped: MappedName


def _fields_in(data_type: DataType) -> Iterator[StructField]:
    if isinstance(data_type, StructType):
        for item in data_type.fields:
            yield item
            yield from _fields_in(item.data_type)
    elif isinstance(data_type, ArrayType):
        yield from _fields_in(data_type.element_type)
    elif isinstance(data_type, MapType):
        yield from _fields_in(data_type.key_type)
        yield from _fields_in(data_type.value_type)


def _goes_over(before: IcebergType | None, data_type: DataType) -> bool:
    """Return whether a reader reads values of Iceberg's type as the Delta type. Parts are compared on their own."""
    if isinstance(data_type, StructType):
        return isinstance(before, IcebergStruct)
    if isinstance(data_type, ArrayType):
        return isinstance(before, ListType)
    if isinstance(data_type, MapType):
        return isinstance(before, IcebergMap)
    if isinstance(data_type, DecimalType):
        if not isinstance(before, IcebergDecimal):
            return False
        return before.scale == data_type.scale and before.precision <= data_type.precision
    after = _PRIMITIVES.get(data_type.name)
    if after == before:
        return True
    return (type(before), type(after)) in ((IntegerType, LongType), (FloatType, DoubleType))


def _refuse_same_names(fields: Sequence[NestedField]) -> None:
    """Refuse columns that Iceberg cannot tell apart: it joins the names of a column and its parts by dots."""
    seen: dict[str, int] = {}

    def walk(kind: IcebergType, full: str) -> None:
        for part in _parts_of(kind):
            name = f"{full}.{part.name}" if full else part.name
            folded = name.lower()
            if folded in seen:
                raise SchemaError(
                    f"Two columns have the same full name in Iceberg, {name!r}: a name with a dot is that of a part of "
                    "another column.",
                    hint="Rename one of them.",
                )
            seen[folded] = part.field_id
            walk(part.field_type, name)

    walk(IcebergStruct(*fields), "")


_PARTS: Final[Mapping[type, Callable[[Any], tuple[NestedField, ...]]]] = {
    IcebergStruct: lambda kind: kind.fields,
    ListType: lambda kind: (kind.element_field,),
    IcebergMap: lambda kind: (kind.key_field, kind.value_field),
}


def _parts_of(kind: IcebergType) -> tuple[NestedField, ...]:
    parts = _PARTS.get(type(kind))
    return parts(kind) if parts is not None else ()
