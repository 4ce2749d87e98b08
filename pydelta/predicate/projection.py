"""Reduce an expression to forms that pruning understands: columns compared with constants, null tests, string prefixes.

Pruning knows bounds and counts of rows, or their partition values, in the types that these are stored in. So columns
are identified by their paths alone, and a cast that changes no value is left out. These are ``Unknown``: values
computed from columns, strings with a collation, whose order is not that of bounds, and times outside Python's calendar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydelta.predicate.expressions import (
    BOOLEAN,
    TRUE,
    WHOLE,
    And,
    Cast,
    Column,
    Compare,
    Expr,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    TextTest,
    Unknown,
    columns,
)
from pydelta.protocol.types import DataType, PrimitiveType

__all__ = ["is_beyond", "prunable"]

_TIMES: Final = tuple(map(PrimitiveType, ("date", "timestamp", "timestamp_ntz")))


def prunable(expr: Expr, text: Callable[[], str]) -> Expr:
    """Return a condition that is true wherever the given one is, built from parts that pruning understands.

    Args:
        expr: The condition, with types.
        text: Function that returns the SQL of the whole. Called only to make an ``Unknown``.

    Returns:
        The condition. A part of an ``AND``, ``OR`` or ``NOT`` that pruning does not understand is ``Unknown``.
    """
    if isinstance(expr, (And, Or)):
        return type(expr)(prunable(expr.left, text), prunable(expr.right, text))
    if isinstance(expr, Not):
        return Not(prunable(expr.child, text))
    found = _atom(expr)
    return Unknown(text(), frozenset(path[:1] for path in columns(expr))) if found is None else found


def _atom(expr: Expr) -> Expr | None:
    if isinstance(expr, Column):
        return Compare("=", Column(expr.path), TRUE) if expr.type == BOOLEAN else None
    if isinstance(expr, Literal):
        return _operand(expr) if expr.type == BOOLEAN else None
    if isinstance(expr, Compare):
        left, right = _operand(expr.left), _operand(expr.right)
        return None if left is None or right is None else Compare(expr.op, left, right)
    if not isinstance(expr, (In, IsNull, IsNotNull, TextTest)):
        return None
    child = _operand(expr.child)
    if not isinstance(child, Column):
        return None
    if isinstance(expr, In):
        beyond = any(is_beyond(value, expr.child.type) for value in expr.values)
        return None if beyond else In(child, expr.values)
    if isinstance(expr, TextTest):
        return TextTest(expr.kind, child, expr.part) if expr.kind == "starts" else None
    return type(expr)(child)


def _operand(expr: Expr) -> Column | Literal | None:
    if isinstance(expr, Literal):
        if expr.value is None:
            return Literal(None)
        return None if is_beyond(expr.value, expr.type) else expr
    if isinstance(expr, Cast) and isinstance(expr.child, Column):
        return Column(expr.child.path) if _is_wider(expr.child.type, expr.type) else None
    if isinstance(expr, Column) and not str(expr.type).startswith("string collate"):
        return Column(expr.path)
    return None


def _is_wider(source: DataType | None, target: DataType | None) -> bool:
    """Return whether a whole number type holds all values of another."""
    narrow, wide = str(source), str(target)
    return narrow in WHOLE and wide in WHOLE[WHOLE.index(narrow) :]


def is_beyond(value: Any, data_type: DataType | None) -> bool:
    """Return whether a constant is a day or a time outside Python's calendar."""
    return isinstance(value, int) and data_type in _TIMES
