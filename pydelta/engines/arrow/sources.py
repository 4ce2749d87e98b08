"""Check rows of Arrow and Polars tables, and write them in the table's types.

::

    pyarrow.Table, polars.DataFrame --arrow_of--> pyarrow.Table --ArrowRows--> files of the table
                                                       |
                                                       +--schema_of_arrow--> columns of a new table
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.commands.engine import RewriteOutput
from pydelta.commands.write.command import WriteTarget
from pydelta.engines.arrow.columns import fields_in, only_spark, refuse_depth
from pydelta.engines.arrow.conform import conformed
from pydelta.engines.arrow.evaluate import true_rows
from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.arrow.layout import Session, TableShape, make_task, output_of, written_columns
from pydelta.engines.arrow.tasks.arrow import require_valid
from pydelta.engines.arrow.tasks.write_files import run_task
from pydelta.engines.arrow.threads import cores
from pydelta.errors import (
    ConstraintViolatedError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    first_line,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.sized_texts import LENGTH
from pydelta.protocol.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_type,
)

__all__ = [
    "ArrowRows",
    "arrow_of",
    "check_replaced",
    "refuse_new_rules",
    "refuse_rules",
    "schema_of_arrow",
    "with_inserts",
]

_RULES: Final = (
    "delta.generationExpression",
    "delta.invariants",
    "delta.identity.step",
    "CURRENT_DEFAULT",
    LENGTH,
)
_CONSTRAINT: Final = "delta.constraints."
_BATCH_ROWS: Final = 131_072
_MOST_DIGITS: Final = 38
_TYPES: Final[Mapping[str, str]] = {
    "null": "void", "bool": "boolean", "int8": "byte", "int16": "short", "int32": "integer", "int64": "long",
    "uint8": "short", "uint16": "integer", "uint32": "long", "uint64": "decimal(20,0)", "halffloat": "float",
    "float": "float", "double": "double", "string": "string", "large_string": "string", "string_view": "string",
    "binary": "binary", "large_binary": "binary", "binary_view": "binary", "date32[day]": "date", "date64[ms]": "date",
}  # fmt: skip
"""The column type that holds each value of an Arrow type, by Arrow's name."""


def arrow_of(rows: Any) -> pa.Table:
    """Return rows as an Arrow table.

    Raises:
        InvalidArgumentError: They are neither an Arrow nor a Polars table.
        SchemaMismatchError: A column of Polars holds values that no column of a table can hold.
    """
    if isinstance(rows, pl.DataFrame):
        return _of_polars(rows)
    if not isinstance(rows, pa.Table):
        raise InvalidArgumentError(
            f"Rows are a pyarrow.Table or a polars.DataFrame, not {type(rows).__name__}.",
            hint="Make one with pyarrow.table({…}) or polars.DataFrame({…}).",
        )
    return rows


def _of_polars(rows: pl.DataFrame) -> pa.Table:
    """Convert rows to Arrow. A Python object is refused here, because Arrow would write its address."""
    for name, kind in rows.schema.items():
        try:
            if _has_objects(kind):
                raise pa.ArrowInvalid("Arrow has no objects of Python")
            rows.select(pl.col(name).head(0)).to_arrow()
        except (pa.ArrowException, pl.exceptions.PolarsError) as error:
            raise SchemaMismatchError(
                f"Column {name!r} of the rows is {kind}, which no column of a table holds: {first_line(error)}",
                hint="Cast the column to the table's type first.",
            ) from error
    return rows.to_arrow()


def _has_objects(kind: Any) -> bool:
    if isinstance(kind, pl.Struct):
        return any(_has_objects(field.dtype) for field in kind.fields)
    return _has_objects(kind.inner) if isinstance(kind, (pl.List, pl.Array)) else kind == pl.Object


def schema_of_arrow(schema: pa.Schema) -> StructType:
    """Return the columns of a table that can hold every row of an Arrow schema.

    Raises:
        UnsupportedFeatureError: No column type holds the values of a type; the error names the column.
        SchemaMismatchError: A name occurs twice, ignoring case.
    """
    names = [name.lower() for name in schema.names]
    if twice := [name for place, name in enumerate(schema.names) if name.lower() in names[:place]]:
        raise SchemaMismatchError(
            f"The rows have the column {twice[0]!r} twice; names ignore case.", hint="Rename one of the columns."
        )
    return StructType(tuple(StructField(item.name, _type_of(item.type, item.name), item.nullable) for item in schema))


def _type_of(kind: pa.DataType, name: str) -> DataType:
    kinds = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _type_of(kind.storage_type, name)
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return _type_of(kind.value_type, name)
    if kinds.is_timestamp(kind):
        return PrimitiveType("timestamp" if kind.tz is not None else "timestamp_ntz")
    if kinds.is_decimal(kind) and kind.precision <= _MOST_DIGITS and kind.scale >= 0:
        return DecimalType(kind.precision, kind.scale)
    if kinds.is_fixed_size_binary(kind):
        return PrimitiveType("binary")
    if kinds.is_struct(kind):
        parts = [kind.field(place) for place in range(kind.num_fields)]
        fields = (StructField(part.name, _type_of(part.type, f"{name}.{part.name}"), part.nullable) for part in parts)
        return StructType(tuple(fields))
    if kinds.is_map(kind):
        key, value = _type_of(kind.key_type, f"{name}.key"), _type_of(kind.item_type, f"{name}.value")
        return MapType(key, value, kind.item_field.nullable)
    if hasattr(kind, "value_field"):  # These are all kinds of list.
        return ArrayType(_type_of(kind.value_type, f"{name}.element"), kind.value_field.nullable)
    found = _TYPES.get(str(kind))
    if found is None:
        raise UnsupportedFeatureError(
            f"Column {name!r} of the rows is {kind}, which no column of a table can hold.",
            features=(str(kind),),
            hint="Cast the column first, for example to a number, text or a timestamp.",
        )
    return parse_type(found)


def refuse_rules(snapshot: Snapshot) -> None:
    """Check that new rows of the table need no check and no value that only Spark computes.

    Raises:
        UnsupportedFeatureError: They do; the error names the rules.
    """
    try:
        refuse_depth(snapshot.schema)
    except NotHere as reason:
        raise only_spark(reason, snapshot) from None
    assert snapshot.metadata is not None
    rules = _constraints(snapshot.metadata.configuration)
    for field in fields_in(snapshot.schema):
        rules |= {f"{field.name}: {key}" for key in _RULES if key in field.metadata}
    _refuse(rules, snapshot)


def refuse_new_rules(snapshot: Snapshot, properties: Mapping[str, str]) -> None:
    """Check that a new table's properties hold no constraint on its first rows, which only Spark would check.

    Raises:
        UnsupportedFeatureError: They do; the error names the constraint.
    """
    _refuse(_constraints(properties), snapshot)


def _constraints(properties: Mapping[str, str]) -> set[str]:
    return {key for key in properties if key.lower().startswith(_CONSTRAINT)}


def _refuse(rules: Set[str], snapshot: Snapshot) -> None:
    if rules:
        raise only_spark(NotHere(f"rules of the table ({', '.join(sorted(rules))})"), snapshot)


def check_replaced(target: WriteTarget, names: Sequence[str], rows: pa.Table | pa.RecordBatch) -> None:
    """Check that new rows satisfy the condition of the rows that they replace (``replaceWhere``).

    Args:
        target: The write, with the condition if there is one.
        names: Logical names of the columns of ``rows``, in order.
        rows: The rows, in the table's types.

    Raises:
        ConstraintViolatedError: A row does not satisfy it.
        UnsupportedFeatureError: Only Spark can say whether a row satisfies it.
    """
    if target.predicate is None or target.condition is None or not rows.num_rows:
        return
    assert target.snapshot is not None
    places = {name.lower(): place for place, name in enumerate(names)}

    def column(path: tuple[str, ...]) -> Any:
        place = places.get(path[0].lower())
        if place is None:  # Files hold no void columns.
            return pa.nulls(rows.num_rows)
        values = rows.column(place)
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return pc.struct_field(values, list(path[1:])) if path[1:] else values

    try:
        fits = true_rows(target.condition.native, column, rows.num_rows)
    except NotHere as reason:
        raise only_spark(reason, target.snapshot) from None
    if not fits.all():
        raise ConstraintViolatedError(
            f"{int((~fits).sum())} rows do not satisfy the condition of the rows that they replace: {target.predicate}",
            hint="Nothing was written to the table. Leave these rows out, or choose another condition.",
            condition=Condition.of("DELTA_REPLACE_WHERE_MISMATCH", replaceWhere=target.predicate, message=""),
        )


def with_inserts(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield all rows twice, as ``WriteTask.change_data`` takes them: once for the table, once for its change feed."""
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        size = batch.num_rows
        for kind in (pa.nulls(size, pa.string()), pa.repeat("insert", size)):
            yield pa.RecordBatch.from_arrays([*batch.columns, kind], names=[*batch.schema.names, "kind"])


class ArrowRows:
    """An Arrow table as a source of rows for ``Write``.

    Args:
        log: The table.
        snapshot: The version whose columns the rows have.
        rows: The rows; columns are matched by name, ignoring case.
        schema: The columns of a table that the write creates or defines again; None for those of the snapshot.

    Raises:
        InvalidArgumentError: The Arrow table is damaged.
        SchemaMismatchError: The table lacks a column of the rows, or the rows have one twice.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot, rows: pa.Table, *, schema: StructType | None = None) -> None:
        require_valid(rows, "a valid Arrow table")
        self._rows, self._store, self._options = rows, log.store, log.options
        self._partitions = {name.lower() for name in snapshot.partition_columns}
        columns = snapshot.schema if schema is None else schema
        given: dict[str, StructField] = {}
        for name in rows.schema.names:
            field = columns.field(name)
            if field is None or field.name in given:
                raise SchemaMismatchError(
                    f"The rows have a column {name!r}, which the table {'lacks' if field is None else 'has once'}.",
                    hint=f"The table's columns are: {', '.join(columns.names)}.",
                )
            given[field.name] = field
        self._given = {field.name: place for place, field in enumerate(given.values())}
        self._schema = StructType(tuple(field for field in columns.fields if field.name in given))

    @property
    def schema(self) -> StructType:
        """See ``RowSource.schema``."""
        return self._schema

    def write(self, target: WriteTarget) -> RewriteOutput:
        """See ``RowSource.write``."""
        plan = target.plan
        shape = TableShape.planned(target.table_uri, plan)
        session = Session(settings=target.settings, store_options=self._options)
        task = make_task(shape, target.options, session, change_data=target.record_inserts)
        data, partitions = written_columns(plan.schema, plan.partition_columns)
        names = (*data, *partitions)
        lower = {name.lower() for name in partitions}
        columns = [self._column(plan.schema, name, lower) for name in names]
        for name in set(self._schema.names).difference(data, partitions):  # Files cannot store values of type void.
            self._column(plan.schema, name, lower)
        table = pa.Table.from_arrays(columns, names=[f"c{number}" for number in range(len(columns))])
        check_replaced(target, names, table)
        batches = with_inserts(table) if target.record_inserts else table.to_batches(max_chunksize=_BATCH_ROWS)
        return output_of(run_task(batches, replace(task, encoders=cores()), partition_id=0, store=self._store))

    def as_table(self, schema: StructType) -> pa.Table:
        """Return the rows under the table's names and in its types.

        Raises:
            SchemaMismatchError, ConstraintViolatedError: As ``LocalTable.append``.
        """
        names = self._schema.names
        return pa.Table.from_arrays([self._column(schema, name, self._partitions) for name in names], names=list(names))

    def _column(self, schema: StructType, name: str, partitions: Set[str]) -> pa.ChunkedArray:
        field = schema.field(name)
        assert field is not None, "the names are the schema's own"
        place = self._given.get(field.name)
        nothing = pa.chunked_array([pa.nulls(self._rows.num_rows)])
        column = nothing if place is None else self._rows.column(place)
        return conformed(column, field, partition=field.name.lower() in partitions)
