"""Read the plainest conditions without Spark: ``p = 3``, ``day >= '2024-01-01' AND id < 7``.

Spark takes 20 ms to resolve a condition, however short. One or two comparisons of columns with constants of their types
mean the same here, and their texts in results and histories are those that Spark gives. Anything else is Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydelta.engines.arrow.exact import exact
from pydelta.engines.arrow.expressions import Exact
from pydelta.errors import DeltaError
from pydelta.predicate import And, Column, Compare, Expr, Literal, parse_predicate
from pydelta.predicate.expressions import split_conjuncts
from pydelta.protocol.sized_texts import LENGTH
from pydelta.protocol.types import PrimitiveType, StructField, StructType

__all__ = ["PlainCondition", "read_plain"]

_OTHER_MEANING: Final = ("spark.sql.ansi.", "spark.sql.parser.", "spark.sql.legacy.", "spark.sql.extensions")
_TERM: Final = r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=|<=|>=|<|>)\s*(-?[0-9]{1,9}|'[A-Za-z0-9 _:./-]*')\s*"
_TEXT: Final = re.compile(rf"{_TERM}(?:(?<=[ '\t\n])(?i:and)(?=\s){_TERM})?")
_SHOWN: Final[Mapping[str, tuple[str, str]]] = {
    "integer": ("", "{}"),
    "long": ("L", "CAST({} AS BIGINT)"),
    "string": ("", "'{}'"),
    "date": ("", "CAST('{}' AS DATE)"),
}
"""By type: what follows a column's number in a plan, and a constant as Spark's SQL has it."""


@dataclass(frozen=True, slots=True)
class _Term:
    """One comparison. Its constant has no quotes, and a number no zeros before it."""

    field: StructField
    position: int
    operator: str
    constant: str

    def sql(self) -> str:
        return f"({self.field.name} {self.operator} {_SHOWN[self._kind][1].format(self.constant)})"

    def shown(self) -> str:
        return f"({self.field.name}#{self.position}{_SHOWN[self._kind][0]} {self.operator} {self.constant})"

    def as_given(self) -> str:
        return f"('{self.field.name} {self.operator} {self.constant})"

    def is_meant(self, part: Expr) -> bool:
        """Return whether an expression is this comparison, with a constant of the column's type."""
        return (
            isinstance(part, Compare)
            and part.op == self.operator
            and part.left == Column((self.field.name,))
            and isinstance(part.right, Literal)
            and part.right.type == self.field.data_type
            and str(part.right.value) == self.constant
        )

    @property
    def _kind(self) -> str:
        return str(self.field.data_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCondition:
    """A condition that was read without Spark.

    Args:
        expression: Its meaning.
        sql: Its text as Spark writes it in SQL.
        shown: Its text as Spark shows it in a plan. The numbers are the columns' positions.
        as_given: Its text as Spark shows it before it is resolved.
    """

    expression: Expr
    sql: str
    shown: str
    as_given: str

    def conjuncts(self) -> tuple[Expr, ...]:
        """Return the conjuncts for pruning."""
        return split_conjuncts(self.expression)

    def exact(self, schema: StructType) -> Exact:
        """See ``Tree.exact``."""
        return exact(self.expression, schema)


def read_plain(text: str, schema: StructType, conf: Mapping[str, str]) -> PlainCondition | None:
    """Read a condition, or return None if Spark must.

    Args:
        text: The condition as SQL text.
        schema: The table's schema.
        conf: The session's settings. Some give texts another meaning.
    """
    found = _TEXT.fullmatch(text)
    if found is None or any(key.startswith(_OTHER_MEANING) or "collation" in key.lower() for key in conf):
        return None
    groups = [group for group in (found.groups()[:3], found.groups()[3:]) if group[0] is not None]
    terms = [term for group in groups if (term := _term(schema, *group)) is not None]
    if len({term.position for term in terms}) < len(groups):
        return None  # A column or constant is of another kind, or Spark may show two comparisons of one column as one.
    try:
        expression = parse_predicate(text, schema, time_zone=None)
    except DeltaError:
        return None  # Spark says what is wrong.
    parts = [expression.left, expression.right] if isinstance(expression, And) else [expression]
    if len(parts) != len(terms) or not all(term.is_meant(part) for term, part in zip(terms, parts, strict=True)):
        return None
    return PlainCondition(
        expression=expression,
        sql=_joined([term.sql() for term in terms]),
        shown=_joined([term.shown() for term in terms]),
        as_given=_joined([term.as_given() for term in terms]),
    )


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({' AND '.join(texts)})"


def _term(schema: StructType, name: str, operator: str, constant: str) -> _Term | None:
    for position, field in enumerate(schema.fields):
        if field.name == name:
            kind, is_text = field.data_type, constant.startswith("'")
            known = isinstance(kind, PrimitiveType) and str(kind) in _SHOWN and LENGTH not in field.metadata
            if not known or is_text != (str(kind) in ("string", "date")):
                return None
            return _Term(field, position, operator, constant.strip("'") if is_text else str(int(constant)))
    return None
