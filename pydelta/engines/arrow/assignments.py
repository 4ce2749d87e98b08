"""Turn the values of an UPDATE that were written as SQL text into expressions of this process, without Spark.

A value is a constant or another column of the table, of the type of the column that is set; whatever would be cast in a
way that rounds or fails is ``NotHere``, and a time without a zone takes the zone that is given.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np

from pydelta.engines.arrow.columns import field_of
from pydelta.engines.arrow.expressions import Constant, Exact, NotHere, cast, check_simple
from pydelta.engines.arrow.predicates import fitting, simple_value
from pydelta.predicate import Column, parse_value, value_of_text
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructType

__all__ = ["assigned"]

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def assigned(column: str, text: str, schema: StructType, time_zone: str | None = None) -> Exact:
    """Return the new value of a column.

    Args:
        column: The table's name of it.
        text: SQL text.
        schema: The table's.
        time_zone: Of times that name none; None refuses them where they have to be moments.

    Raises:
        ParseError, BindError: The text is not a value, or names a column that the table does not have.
        NotHere: It is more than a constant or a column, or of another type than the column.

    Example:
        >>> from pydelta.protocol.types import PrimitiveType, StructField, StructType
        >>> schema = StructType((StructField("n", PrimitiveType("integer")),))
        >>> assigned("n", "7", schema)
        Constant(value=7, type=PrimitiveType(name='integer'))
    """
    field = schema.field(column)
    assert field is not None, "the target was resolved"
    kind = check_simple(field.data_type)
    parsed = parse_value(text, schema, time_zone=time_zone)
    if parsed is None:
        raise NotHere("a value that is not a constant or a column")
    if isinstance(parsed, Column):
        return cast(field_of(schema, parsed.path), kind)
    value = parsed.value
    if isinstance(value, str):
        value = value_of_text(value, kind, time_zone)
    return Constant(_value(value, kind), kind)


def _value(value: Any, kind: DataType) -> Any:
    """A constant as a column of this type holds it."""
    if value is None:
        return None
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name in _BITS and whole:
        if not -(1 << (_BITS[name] - 1)) <= value < 1 << (_BITS[name] - 1):
            raise NotHere(f"a number beyond {kind}")
        return value
    number = not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__")
    if name == "double" and number:
        return float(value)
    if name == "float" and number:
        if float(np.float32(value)) != float(value):
            raise NotHere("a number that float rounds")
        return float(value)
    if isinstance(kind, DecimalType) and number and not isinstance(value, float):
        return fitting(Decimal(value), kind)
    found = simple_value(value, name)
    if found is None:
        raise NotHere(f"such a constant for a column of type {kind}")
    return found
