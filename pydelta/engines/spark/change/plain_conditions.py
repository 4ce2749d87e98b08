"""Read the plainest conditions without Spark: ``p = 3``, ``day >= '2024-01-01' AND id BETWEEN 7 AND 9``.

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

__all__ = ["PlainCondition", "gives_another_meaning", "is_plain", "read_plain"]

_OTHER_MEANING: Final = ("spark.sql.ansi.", "spark.sql.parser.", "spark.sql.legacy.", "spark.sql.extensions")
_CONSTANT: Final = r"(-?[0-9]{1,9}|'[A-Za-z0-9 _:./-]*')"
_TERM: Final = (
    rf"\s*([A-Za-z_][A-Za-z0-9_]*)"
    rf"(?:\s*(=|<=|>=|<|>)\s*{_CONSTANT}|\s+(?i:between)\s+{_CONSTANT}\s+(?i:and)\s+{_CONSTANT})\s*"
)
_TEXT: Final = re.compile(rf"{_TERM}(?:(?<=[ '\t\n])(?i:and)(?=\s){_TERM})?")
_TERM_GROUPS: Final = 5
_SHOWN: Final[Mapping[str, tuple[str, str]]] = {
    "integer": ("", "{}"),
    "long": ("L", "CAST({} AS BIGINT)"),
    "string": ("", "'{}'"),
    "date": ("", "CAST('{}' AS DATE)"),
}
"""By type: what follows a column's number in a plan, and a constant of a comparison as Spark's SQL has it."""


@dataclass(frozen=True, slots=True)
class _Term:
    """One comparison, or two for BETWEEN. Constants have no quotes, and numbers no zeros before them."""

    field: StructField
    position: int
    comparisons: tuple[tuple[str, str], ...]

    def sql(self) -> str:
        if self._is_range:
            quote = "" if self._kind in ("integer", "long") else "'"
            return f"between({self.field.name}, {', '.join(f'{quote}{item}{quote}' for _, item in self.comparisons)})"
        ((operator, constant),) = self.comparisons
        return f"({self.field.name} {operator} {_SHOWN[self._kind][1].format(constant)})"

    def shown(self) -> str:
        column = f"{self.field.name}#{self.position}{_SHOWN[self._kind][0]}"
        return _joined([f"({column} {operator} {constant})" for operator, constant in self.comparisons])

    def as_given(self) -> str:
        if self._is_range:
            return f"'between('{self.field.name}, {', '.join(constant for _, constant in self.comparisons)})"
        ((operator, constant),) = self.comparisons
        return f"('{self.field.name} {operator} {constant})"

    def is_meant(self, parts: Sequence[Expr]) -> bool:
        """Return whether expressions are these comparisons, with constants of the column's type."""
        return len(parts) == len(self.comparisons) and all(
            isinstance(part, Compare)
            and part.op == operator
            and part.left == Column((self.field.name,))
            and isinstance(part.right, Literal)
            and part.right.type == self.field.data_type
            and str(part.right.value) == constant
            for part, (operator, constant) in zip(parts, self.comparisons, strict=True)
        )

    @property
    def _is_range(self) -> bool:
        return len(self.comparisons) > 1

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
    if found is None or gives_another_meaning(conf):
        return None
    groups = [found.groups()[:_TERM_GROUPS], found.groups()[_TERM_GROUPS:]]
    given = [group for group in groups if group[0] is not None]
    terms = [term for group in given if (term := _term(schema, *group)) is not None]
    if len({term.position for term in terms}) < len(given):
        return None  # A column or constant is of another kind, or Spark may show two comparisons of one column as one.
    try:
        expression = parse_predicate(text, schema, time_zone=None)
    except DeltaError:
        return None  # Spark says what is wrong.
    parts = [expression.left, expression.right] if isinstance(expression, And) and len(terms) > 1 else [expression]
    if len(parts) != len(terms) or not all(
        term.is_meant(split_conjuncts(part)) for term, part in zip(terms, parts, strict=True)
    ):
        return None
    return PlainCondition(
        expression=expression,
        sql=_joined([term.sql() for term in terms]),
        shown=_joined([term.shown() for term in terms]),
        as_given=_joined([term.as_given() for term in terms]),
    )


def gives_another_meaning(conf: Mapping[str, str]) -> bool:
    """Return whether a session's settings may give SQL text another meaning than Spark's default ones."""
    return any(key.startswith(_OTHER_MEANING) or "collation" in key.lower() for key in conf)


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({' AND '.join(texts)})"


def _term(schema: StructType, name: str, operator: str | None, *constants: str | None) -> _Term | None:
    for position, field in enumerate(schema.fields):
        if field.name == name:
            given = [constant for constant in constants if constant is not None]
            kind = str(field.data_type)
            if not is_plain(field) or any(item.startswith("'") != (kind in ("string", "date")) for item in given):
                return None
            plain = [item.strip("'") if item.startswith("'") else str(int(item)) for item in given]
            return _Term(field, position, tuple(zip((operator,) if operator else (">=", "<="), plain, strict=True)))
    return None


def is_plain(field: StructField) -> bool:
    """Return whether a column has one of the types whose constants are read here."""
    kind = field.data_type
    return isinstance(kind, PrimitiveType) and str(kind) in _SHOWN and LENGTH not in field.metadata
