"""Conditions evaluated for one row at a time, by SQL's three values and Spark's order: what masks are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydelta.predicate import And, Column, Compare, Expr, In, IsNotNull, IsNull, Literal, Not, Or, TextTest


def order_of(value: Any) -> Any:
    """Spark's order: NaN equals itself and is greater than any number; strings by their UTF-8 bytes."""
    if hasattr(value, "order"):
        return value.order
    if value != value:
        return 1, 0
    return 0, value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def evaluate(expr: Expr, row: Mapping[str, Any]) -> Any:
    """The value of a condition for a row of top-level columns; None is unknown."""
    if isinstance(expr, Literal):
        return expr.value
    if isinstance(expr, Column):
        return row[expr.path[0]]
    if isinstance(expr, Not):
        value = evaluate(expr.child, row)
        return None if value is None else not value
    if isinstance(expr, (And, Or)):
        left, right = evaluate(expr.left, row), evaluate(expr.right, row)
        decisive = isinstance(expr, Or)
        if decisive in (left, right):
            return decisive
        return None if None in (left, right) else not decisive
    if isinstance(expr, IsNull):
        return evaluate(expr.child, row) is None
    if isinstance(expr, IsNotNull):
        return evaluate(expr.child, row) is not None
    if isinstance(expr, TextTest):
        value = evaluate(expr.child, row)
        return None if value is None else value.startswith(expr.part)
    if isinstance(expr, In):
        value = evaluate(expr.child, row)
        if value is None:
            return None
        if any(item is not None and order_of(item) == order_of(value) for item in expr.values):
            return True
        return None if None in expr.values else False
    assert isinstance(expr, Compare)
    left, right = evaluate(expr.left, row), evaluate(expr.right, row)
    if expr.op == "<=>":
        return (left is None) == (right is None) and (left is None or order_of(left) == order_of(right))
    if left is None or right is None:
        return None
    left, right = order_of(left), order_of(right)
    results = {"=": left == right, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return results[expr.op]
