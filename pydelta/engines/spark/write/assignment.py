"""Cast values to column types by the session's ``spark.sql.storeAssignmentPolicy``.

::

    ANSI      Spark's cast in ANSI mode, whatever the session's mode: a value that does not fit fails the job
    LEGACY    Spark's old cast: a value that does not fit becomes null, or wraps
    STRICT    only lossless casts: others fail when the statement is resolved

The casts and their errors are Catalyst's. INSERT matches struct fields by position, UPDATE and MERGE by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import ArithmeticException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from pydelta.engines.spark.jvm import Jvm, scala_object
from pydelta.engines.spark.write.columns import as_type, ddl, same_type
from pydelta.errors import CastOverflowError, SchemaMismatchError
from pydelta.errors.conditions import Condition
from pydelta.protocol.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StoreAssignment", "has_fields_of", "has_struct", "telling_overflow"]

_POLICY: Final = "spark.sql.storeAssignmentPolicy"
_OVERFLOW: Final = "CAST_OVERFLOW_IN_TABLE_INSERT"
_WHOLE: Final = ("byte", "short", "integer", "long")
_VOID: Final = PrimitiveType("void")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAssignment:
    """A session's policy.

    Args:
        jvm: The session's JVM.
        policy: ANSI, LEGACY or STRICT.
    """

    jvm: Jvm
    policy: str

    @classmethod
    def of(cls, spark: SparkSession) -> StoreAssignment:
        """Read the policy of a session."""
        return cls(jvm=Jvm.of(spark), policy=str(spark.conf.get(_POLICY, "ANSI")).upper())

    def cast(self, value: Column, source: DataType, target: DataType, path: str) -> Column:
        """Cast one value. Spark refuses a cast that the policy forbids when it resolves the column.

        Args:
            value: The value.
            source: Its type.
            target: The column's type.
            path: The column's name, for the error about a value that does not fit.
        """
        if same_type(source, target):
            return value
        expressions = self.jvm.view.org.apache.spark.sql.catalyst.expressions
        if self.policy == "STRICT":
            given, wanted = self.jvm.expression(value), self.jvm.data_type.fromDDL(ddl(target))
            made = expressions.UpCast(given, wanted, self.jvm.seq([]))
        else:
            made = self._cast_in("LEGACY" if self.policy == "LEGACY" else "ANSI", value, target)
            if self.policy != "LEGACY" and _overflows(target):
                made = expressions.CheckOverflowInTableInsert(made, path)
        column: Column = ClassicColumn(self.jvm.column_of(made))
        return column

    def cast_text(self, text: str | None, target: DataType) -> Column:
        """Cast the text that Spark's parser made of a value of ``PARTITION (…)``.

        It is not a value of the query, so that every type takes it. Only the policy LEGACY lets a session without ANSI
        mode turn a text that does not fit into null.

        Args:
            text: The text, or None for null.
            target: The column's type.
        """
        if self.policy == "LEGACY":
            return F.lit(text).cast(ddl(target))
        column: Column = ClassicColumn(self.jvm.column_of(self._cast_in("ANSI", F.lit(text), target)))
        return column

    def _cast_in(self, mode: str, value: Column, target: DataType) -> Any:
        expressions = self.jvm.view.org.apache.spark.sql.catalyst.expressions
        modes: Any = scala_object(expressions, "EvalMode")
        wanted = self.jvm.data_type.fromDDL(ddl(target))
        return expressions.Cast(self.jvm.expression(value), wanted, self.jvm.none, getattr(modes, mode)())

    def by_position(
        self, value: Column, source: DataType, target: DataType, path: str, keeps: Callable[..., bool] | None = None
    ) -> Column:
        """Cast a value of an INSERT. Fields of structs, and of structs in arrays, are matched by position.

        Args:
            value: The value.
            source: Its type.
            target: The column's type.
            path: The column's name.
            keeps: Returns, from a value's and a column's type, whether the value stays unchanged because the column
                evolves or its parts are matched by name.

        Raises:
            SchemaMismatchError: A struct has fewer fields than the column's, or the column is not a struct.
        """
        if same_type(source, target) or (keeps is not None and keeps(source, target)):
            return value
        if isinstance(source, StructType) and isinstance(target, StructType):
            return self._struct_by_position(value, source, target, path, keeps)
        if not has_struct(source):
            return self.cast(value, source, target, path)

        def part(item: Column, own: DataType, wanted: DataType) -> Column:
            return self.by_position(item, own, wanted, path, keeps)

        return self._parts(value, source, target, path, part)

    def _parts(
        self,
        value: Column,
        source: DataType,
        target: DataType,
        path: str,
        part: Callable[[Column, DataType, DataType], Column],
    ) -> Column:
        """Cast the elements of an array, or the keys and values of a map."""
        if isinstance(source, ArrayType) and isinstance(target, ArrayType):
            elements = source.element_type, target.element_type
            return F.transform(value, lambda item: part(item, *elements))
        if isinstance(source, MapType) and isinstance(target, MapType):
            keys, values = (source.key_type, target.key_type), (source.value_type, target.value_type)
            if not same_type(*keys):
                value = F.transform_keys(value, lambda key, _: part(key, *keys))
            if not same_type(*values):
                value = F.transform_values(value, lambda _, item: part(item, *values))
            return value
        return self.cast(value, source, target, path)

    def _struct_by_position(
        self, value: Column, source: StructType, target: StructType, path: str, keeps: Callable[..., bool] | None
    ) -> Column:
        if len(source) < len(target):
            raise SchemaMismatchError(
                f"The struct for column {path!r} has {len(source)} fields, but the column has {len(target)}: "
                f"{', '.join(target.names)}.",
                hint="INSERT matches struct fields by position: give each field, or NULL if it has no value.",
                condition=Condition.of(
                    "DELTA_INSERT_COLUMN_ARITY_MISMATCH", numColumns=len(target), insertColumns=len(source)
                ),
            )
        parts = []
        for place, item in enumerate(source.fields):
            part = value.getField(item.name)
            if place >= len(target):
                parts.append(part.alias(item.name))
                continue
            field = target.fields[place]
            part = self.by_position(part, item.data_type, field.data_type, f"{path}.{field.name}", keeps)
            parts.append(part.alias(field.name))
        return F.when(value.isNotNull(), F.struct(*parts))

    def by_name(self, value: Column, source: DataType, target: DataType, path: str, *, fill: bool = False) -> Column:
        """Cast a value of UPDATE or MERGE. Struct fields are matched by name at any depth.

        Args:
            value: The value.
            source: Its type.
            target: The column's type.
            path: The column's name.
            fill: Whether fields that the value lacks become null instead of an error.

        Raises:
            SchemaMismatchError: A struct has a field that the column's lacks, or (without ``fill``) lacks a field.
        """
        if same_type(source, target):
            return value
        if source == _VOID:
            return as_type(value, target)  # It may be more than NULL: raise_error has this type.
        if isinstance(source, StructType) and isinstance(target, StructType):
            _check_fields(source, target, path, fill=fill)
            parts = []
            for field in target.fields:
                item = source.field(field.name)
                part = as_type(F.lit(None), field.data_type)
                if item is not None:
                    own = f"{path}.{field.name}"
                    part = self.by_name(value.getField(item.name), item.data_type, field.data_type, own, fill=fill)
                parts.append(part.alias(field.name))
            return F.when(value.isNotNull(), F.struct(*parts))
        if not has_struct(source):
            return self.cast(value, source, target, path)

        def inner(item: Column, own: DataType, wanted: DataType) -> Column:
            return self.by_name(item, own, wanted, path, fill=fill)

        return self._parts(value, source, target, path, inner)


def has_fields_of(source: DataType, target: DataType) -> bool:
    """Return whether a value has all parts of a type, with equal names and types in any order, and maybe more."""
    if isinstance(source, StructType) and isinstance(target, StructType):
        pairs = [(source.field(field.name), field.data_type) for field in target.fields]
        return all(item is not None and has_fields_of(item.data_type, wanted) for item, wanted in pairs)
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return has_fields_of(source.element_type, target.element_type)
    if isinstance(source, MapType) and isinstance(target, MapType):
        parts = (source.key_type, target.key_type), (source.value_type, target.value_type)
        return all(has_fields_of(*part) for part in parts)
    return same_type(source, target)


def _check_fields(source: StructType, target: StructType, path: str, *, fill: bool) -> None:
    known, given = ({name.lower() for name in kind.names} for kind in (target, source))
    more = [name for name in source.names if name.lower() not in known]
    missing = [name for name in target.names if name.lower() not in given]
    if not more and (fill or not missing):
        return
    what = f"has a field {more[0]!r} that the column lacks" if more else f"lacks the field {missing[0]!r}"
    raise SchemaMismatchError(
        f"The value for column {path!r} {what}: the column is {target}, but the value is {source}.",
        hint="Make a struct of the column's fields with named_struct, or let MERGE evolve the schema.",
        condition=Condition.of("DELTA_METADATA_MISMATCH"),
    )


def has_struct(data_type: DataType) -> bool:
    """Return whether a type is a struct or contains one."""
    if isinstance(data_type, ArrayType):
        return has_struct(data_type.element_type)
    if isinstance(data_type, MapType):
        return has_struct(data_type.key_type) or has_struct(data_type.value_type)
    return isinstance(data_type, StructType)


def _overflows(target: DataType) -> bool:
    """Return whether a value can be too large for a part of the type."""
    if isinstance(target, ArrayType):
        return _overflows(target.element_type)
    if isinstance(target, MapType):
        return _overflows(target.key_type) or _overflows(target.value_type)
    if isinstance(target, StructType):
        return any(_overflows(field.data_type) for field in target.fields)
    return isinstance(target, DecimalType) or (isinstance(target, PrimitiveType) and target.name in _WHOLE)


@contextmanager
def telling_overflow() -> Iterator[None]:
    """Convert overflow errors in the jobs of UPDATE and MERGE, because Spark's error refers to an INSERT.

    Raises:
        CastOverflowError: A value is too large for its column.
    """
    try:
        yield
    except ArithmeticException as error:
        if error.getCondition() != _OVERFLOW:
            raise
        given = error.getMessageParameters() or {}
        column, source, target = (given.get(key, "") for key in ("columnName", "sourceType", "targetType"))
        raise CastOverflowError(
            f"A value of type {source} does not fit the column {column}, which is {target}.",
            hint="Widen the column, or use try_cast on the value to get null instead.",
        ) from error
