"""Read the plainest values of an UPDATE without Spark: ``7``, ``'paid'``, another column, ``v + 1``.

Each must have the type of its column without a cast that could change it. Anything else is Spark's, which also reports
what is wrong with a text or a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydelta.commands.engine import Assignments
from pydelta.engines.arrow.exact import assigned, field_of
from pydelta.engines.arrow.expressions import Exact, NotHere, arithmetic
from pydelta.engines.spark.change.plain_conditions import gives_another_meaning, is_plain
from pydelta.errors import DeltaError
from pydelta.predicate.expressions import Literal
from pydelta.protocol.types import StructField, StructType

__all__ = ["read_plain_values"]

_NAME: Final = "[A-Za-z_][A-Za-z0-9_]*"
_NUMBER: Final = "[0-9]{1,9}"
_ONE: Final = re.compile(rf"\s*(?:{_NAME}|-?{_NUMBER}|'[A-Za-z0-9 _:./-]*')\s*")
_SUM: Final = re.compile(rf"\s*({_NAME})\s*([+-])\s*({_NUMBER})\s*")
_NUMBERS: Final[Mapping[str, type]] = {"integer": int, "long": int, "double": float}
"""By type of a column: how a whole number becomes a value of it."""


def read_plain_values(given: Assignments, schema: StructType, conf: Mapping[str, str]) -> dict[str, Exact] | None:
    """Read the assignments of an UPDATE, or return None if Spark must.

    Args:
        given: Columns and their new values, as the user wrote them.
        schema: The table's schema.
        conf: The session's settings. Some give texts another meaning.
    """
    if not given or gives_another_meaning(conf):
        return None
    fields = {field.name: field for field in schema.fields}
    values: dict[str, Exact] = {}
    for name, text in given:
        field = fields.get(name)
        value = None if field is None or name in values else _value(field, text, schema, fields)
        if value is None:
            return None
        values[name] = value
    return values


def _value(field: StructField, text: Any, schema: StructType, fields: Mapping[str, StructField]) -> Exact | None:
    if not _is_plain(field) or not isinstance(text, str):
        return None
    try:
        if found := _SUM.fullmatch(text):
            return _sum(field, found[1], found[2], int(found[3]), schema, fields)
        if not _ONE.fullmatch(text):
            return None
        value = assigned(field.name, text, schema)
    except (DeltaError, NotHere):
        return None
    if isinstance(value, Literal):  # Spark stores no text in a column of days.
        return value if ("'" in text) == (str(field.data_type) == "string") and value.value is not None else None
    return value if _is_column(text.strip(), field, fields) else None


def _sum(
    field: StructField, name: str, operator: str, number: int, schema: StructType, fields: Mapping[str, StructField]
) -> Exact | None:
    column, held = assigned(field.name, name, schema), _NUMBERS.get(str(field.data_type))
    if isinstance(column, Literal) or held is None or not _is_column(name, field, fields):
        return None  # The text is a constant, such as TRUE, or a column of another type.
    return arithmetic(operator, field_of(schema, (name,)), Literal(held(number), field.data_type))


def _is_plain(field: StructField) -> bool:
    return is_plain(field) or str(field.data_type) in _NUMBERS


def _is_column(name: str, target: StructField, fields: Mapping[str, StructField]) -> bool:
    """Return whether a name is exactly that of a column with the target's type."""
    field = fields.get(name)
    return field is not None and _is_plain(field) and field.data_type == target.data_type
