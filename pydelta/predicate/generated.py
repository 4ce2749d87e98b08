r"""Derive conditions over generated partition columns from conditions over their base columns. Pure.

::

    day = CAST(ts AS DATE)              ts >= '2024-03-05 12:00'   -->  day >= 2024-03-04
    y = YEAR(d), m = MONTH(d)           d < '2024-03-05'           -->  y < 2024 OR (y = 2024 AND m <= 3)
    code = SUBSTRING(name, 1, 2)        name LIKE 'abc%'           -->  code = 'ab'

A derived condition is true wherever the original one can be: it only rules partitions out. The day of an instant
depends on the unrecorded time zone of the session that wrote the row, so the days of all zones count.

Protocol: "Generated Columns".
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

from pydelta.predicate.expressions import (
    FLIPPED,
    WHOLE,
    And,
    Column,
    Compare,
    Expr,
    In,
    IsNull,
    Literal,
    Or,
    TextTest,
    conjunction,
)
from pydelta.protocol.types import DataType, PrimitiveType, StructType

__all__ = ["GeneratedPartitions", "generated_partitions"]

_GENERATION: Final = "delta.generationExpression"
_ANY_ZONE: Final = dt.timedelta(hours=16)
_MOST_POINTS: Final = 200
_CALENDAR: Final = ("year", "month", "day", "hour")

Bound: TypeAlias = Any
"""A value of the base column: ``date``, naive or aware ``datetime``, ``str`` or number. None for no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One generated partition column.

    Args:
        column: Name of the column.
        base: Lower-case path of the column that it is computed from.
        kind: ``date``, ``text`` (of a date or time), ``trunc``, ``year`` … ``hour``, ``prefix`` or ``same``.
        base_type: Type of the base column.
        data_type: Type of the partition column.
        argument: The format, the unit or the length.
    """

    column: str
    base: tuple[str, ...]
    kind: str
    base_type: str
    data_type: str
    argument: str = ""


_NAME: Final = r"((?:`(?:[^`]|``)+`|[A-Za-z_]\w*)(?:\s*\.\s*(?:`(?:[^`]|``)+`|[A-Za-z_]\w*))*)"
_FORMS: Final[Sequence[tuple[str, re.Pattern[str]]]] = tuple(
    (kind, re.compile(pattern.replace("NAME", _NAME), re.IGNORECASE))
    for kind, pattern in (
        ("same", r"NAME"),
        ("date", r"cast\s*\(\s*NAME\s+as\s+date\s*\)"),
        ("date", r"(?:to_)?date\s*\(\s*NAME\s*\)"),
        ("year", r"year\s*\(\s*NAME\s*\)"),
        ("month", r"month\s*\(\s*NAME\s*\)"),
        ("day", r"day(?:ofmonth)?\s*\(\s*NAME\s*\)"),
        ("hour", r"hour\s*\(\s*NAME\s*\)"),
        ("trunc", r"trunc\s*\(\s*NAME\s*,\s*'(\w+)'\s*\)"),
        ("trunc-time", r"date_trunc\s*\(\s*'(\w+)'\s*,\s*NAME\s*\)"),
        ("text", r"date_format\s*\(\s*NAME\s*,\s*'([^']*)'\s*\)"),
        ("prefix", r"substr(?:ing)?\s*\(\s*NAME\s*,\s*[01]\s*,\s*(\d+)\s*\)"),
        ("prefix", r"left\s*\(\s*NAME\s*,\s*(\d+)\s*\)"),
    )
)
_INNER_DATE: Final = re.compile(rf"(year|month|day|dayofmonth)\s*\(\s*cast\s*\(\s*{_NAME}\s+as\s+date\s*\)\s*\)", re.I)
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([A-Za-z_]\w*)")
_TEXT_FORMAT: Final = re.compile(r"yyyy(?:([-/_. ]?)MM(?:([-/_. ]?)dd(?:([-/_. ]?)HH)?)?)?")
_UNITS: Final = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mm", "mon"), "month"),
    "week": "week",
    **dict.fromkeys(("day", "dd"), "day"),
    "hour": "hour",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedPartitions:
    """The rules of a table's generated partition columns."""

    rules: tuple[_Rule, ...] = ()

    def derive(self, conditions: Iterable[Expr]) -> tuple[Expr, ...]:
        """Derive conditions over partition columns that are true wherever all given ones are.

        Args:
            conditions: Conjuncts over any columns, by logical name.
        """
        if not self.rules:
            return ()
        found = [self._derived(condition) for condition in conditions]
        together = self._derived_ranges([item for item in conditions if isinstance(item, Compare)])
        return tuple(item for item in (*found, together) if item is not None)

    def _derived(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Or):
            left, right = self._derived(expr.left), self._derived(expr.right)
            return None if left is None or right is None else Or(left, right)
        if isinstance(expr, And):
            return _both(self._derived(expr.left), self._derived(expr.right))
        if isinstance(expr, In) and isinstance(expr.child, Column):
            return self._one_of(expr.child, expr.values)
        if isinstance(expr, TextTest) and expr.kind == "starts" and isinstance(expr.child, Column):
            return self._prefixed(expr.child, expr.part)
        if isinstance(expr, IsNull) and isinstance(expr.child, Column):
            parts = [IsNull(Column((rule.column,))) for rule in self._rules_of(expr.child)]
            return conjunction(parts) if parts else None
        compared = _comparison(expr)
        if compared is None:
            return None
        column, op, value = compared
        return self._range(column, *_bounds(op, value))

    def _derived_ranges(self, compares: Sequence[Compare]) -> Expr | None:
        """Derive conditions from a lower and an upper bound of one column together."""
        bounds: dict[tuple[str, ...], tuple[Bound, Bound]] = {}
        for compare in compares:
            compared = _comparison(compare)
            if compared is None:
                continue
            column, op, value = compared
            key = _key(column)
            low, high = _bounds(op, value)
            old_low, old_high = bounds.get(key, (None, None))
            try:
                low = _tighter(max, low, old_low)
                high = _tighter(min, high, old_high)
            except TypeError:
                continue
            bounds[key] = low, high
        found: Expr | None = None
        for key, (low, high) in bounds.items():
            if low is not None and high is not None:
                found = _both(found, self._range(Column(key), low, high))
        return found

    def _rules_of(self, column: Column) -> tuple[_Rule, ...]:
        return tuple(rule for rule in self.rules if rule.base == _key(column))

    def _one_of(self, column: Column, values: Sequence[Any]) -> Expr | None:
        present = [value for value in values if value is not None]
        if not present:
            return None
        if len(present) > _MOST_POINTS:
            try:
                return self._range(column, min(present), max(present))
            except TypeError:
                return None
        points = [self._range(column, value, value) for value in present]
        known = [point for point in points if point is not None]
        return reduce(Or, known) if len(known) == len(points) else None

    def _prefixed(self, column: Column, prefix: str) -> Expr | None:
        parts: list[Expr] = []
        for rule in self._rules_of(column):
            part = Column((rule.column,))
            size = int(rule.argument) if rule.kind == "prefix" else len(prefix) + 1
            begins: Expr = TextTest("starts", part, prefix)
            if len(prefix) >= size:
                begins = Compare("=", part, Literal(prefix[:size], "string"))
            if rule.kind in ("same", "prefix"):  # An empty string is null as a partition value.
                parts.append(Or(begins, IsNull(part)))
        return conjunction(parts) if parts else None

    def _range(self, column: Column, low: Bound, high: Bound) -> Expr | None:
        """Derive conditions from ``low <= column <= high``."""
        rules = self._rules_of(column)
        found: list[Expr] = []
        for rule in rules:
            if _fits(rule.base_type, low) and _fits(rule.base_type, high):
                try:
                    found += [item for item in _RANGES.get(rule.kind, _nothing)(rule, low, high) if item is not None]
                except OverflowError:  # Python cannot represent the date.
                    continue
        calendar = {rule.kind: rule for rule in rules if rule.kind in _CALENDAR}
        if calendar:
            with contextlib.suppress(OverflowError):
                found += _calendar_range(calendar, low, high)
        return conjunction(found) if found else None


def generated_partitions(schema: StructType, partition_columns: Sequence[str]) -> GeneratedPartitions:
    """Find the rules by which a table's partition columns are generated from other columns.

    Args:
        schema: The logical schema.
        partition_columns: Logical names.
    """
    rules = []
    for name in partition_columns:
        field = schema.field(name)
        expression = field.metadata.get(_GENERATION) if field is not None else None
        if field is None or expression is None or not isinstance(field.data_type, PrimitiveType):
            continue
        rule = _rule(schema, field.name, field.data_type.name, str(expression).strip())
        if rule is not None:
            rules.append(rule)
    return GeneratedPartitions(rules=tuple(rules))


def _rule(schema: StructType, column: str, data_type: str, expression: str) -> _Rule | None:
    inner = _INNER_DATE.fullmatch(expression)
    if inner is not None:
        expression = f"{inner.group(1)}({inner.group(2)})"
    for kind, pattern in _FORMS:
        match = pattern.fullmatch(expression)
        if match is None:
            continue
        groups = [text for text in match.groups() if text is not None]
        if kind == "trunc-time":
            groups.reverse()
        base = tuple((quoted.replace("``", "`") if quoted else plain) for quoted, plain in _PART.findall(groups[0]))
        base_type = _type_at(schema, base)
        argument = groups[1] if len(groups) > 1 else ""
        if base_type is None or not _known(kind, base_type, data_type, argument):
            return None
        return _Rule(
            column=column,
            base=tuple(part.lower() for part in base),
            kind="trunc" if kind == "trunc-time" else kind,
            base_type=base_type,
            data_type=data_type,
            argument=_UNITS.get(argument.lower(), argument) if kind.startswith("trunc") else argument,
        )
    return None


def _type_at(schema: StructType, path: Sequence[str]) -> str | None:
    level: DataType = schema
    for part in path:
        field = level.field(part) if isinstance(level, StructType) else None
        if field is None:
            return None
        level = field.data_type
    return level.name if isinstance(level, PrimitiveType) else None


def _known(kind: str, base_type: str, data_type: str, argument: str) -> bool:
    """Return whether an expression of this form and type is known to grow with its base."""
    on_time = base_type in ("date", "timestamp", "timestamp_ntz")
    if kind == "same":
        return base_type == data_type and base_type not in ("float", "double", "binary", "variant")
    if kind == "date":
        return on_time and data_type == "date"
    if kind in _CALENDAR:
        return on_time and data_type in WHOLE and (kind != "hour" or base_type != "date")
    if kind == "trunc":
        return on_time and data_type == "date" and _UNITS.get(argument.lower()) in ("year", "quarter", "month", "week")
    if kind == "trunc-time":
        return on_time and data_type == "timestamp" and argument.lower() in _UNITS
    if kind == "text":
        return on_time and data_type == "string" and _TEXT_FORMAT.fullmatch(argument) is not None
    return kind == "prefix" and base_type == "string" and data_type == "string" and int(argument) > 0


def _comparison(expr: Expr) -> tuple[Column, str, Any] | None:
    if not isinstance(expr, Compare):
        return None
    left, right, op = expr.left, expr.right, expr.op
    if isinstance(right, Column):
        left, right, op = right, left, FLIPPED[op]
    if isinstance(left, Column) and isinstance(right, Literal) and right.value is not None:
        return left, op, right.value
    return None


def _bounds(op: str, value: Any) -> tuple[Bound, Bound]:
    """Return the closed range that a comparison leaves. An open end is treated as closed."""
    if op in ("<", "<="):
        return None, value
    return (value, None) if op in (">", ">=") else (value, value)


def _tighter(choose: Callable[[Bound, Bound], Bound], bound: Bound, other: Bound) -> Bound:
    """Choose between two bounds, of which either may be missing."""
    if bound is None or other is None:
        return other if bound is None else bound
    return choose(bound, other)


def _key(column: Column) -> tuple[str, ...]:
    return tuple(part.lower() for part in column.path)


def _both(left: Expr | None, right: Expr | None) -> Expr | None:
    if left is None or right is None:
        return right if left is None else left
    return And(left, right)


def _fits(base_type: str, value: Bound) -> bool:
    """Return whether a bound is a value of the base column's type."""
    if value is None:
        return True
    if base_type == "date":
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    if base_type in ("timestamp", "timestamp_ntz"):
        return isinstance(value, dt.datetime) and (value.tzinfo is not None) == (base_type == "timestamp")
    if base_type == "string":
        return isinstance(value, str)
    return not isinstance(value, (str, dt.date))


def _wall_clock(rule: _Rule, low: Bound, high: Bound) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return bounds of the base column in local time, for any time zone."""

    def shown(value: Bound, shift: dt.timedelta) -> dt.datetime | None:
        if value is None:
            return None
        if rule.base_type == "date":
            return dt.datetime(value.year, value.month, value.day)
        if rule.base_type == "timestamp_ntz":
            naive: dt.datetime = value
            return naive
        moved: dt.datetime = value.astimezone(dt.UTC).replace(tzinfo=None) + shift
        return moved

    return shown(low, -_ANY_ZONE), shown(high, _ANY_ZONE)


def _at_least(rule: _Rule, value: Any) -> Expr | None:
    if value is None:
        return None
    part = Column((rule.column,))
    return Or(Compare(">=", part, Literal(value, rule.data_type)), IsNull(part))


def _at_most(rule: _Rule, value: Any) -> Expr | None:
    if value is None:
        return None
    part = Column((rule.column,))
    return Or(Compare("<=", part, Literal(value, rule.data_type)), IsNull(part))


def _nothing(rule: _Rule, low: Bound, high: Bound) -> Iterable[Expr | None]:
    return ()


def _same(rule: _Rule, low: Bound, high: Bound) -> Iterable[Expr | None]:
    return _at_least(rule, low), _at_most(rule, high)


def _date(rule: _Rule, low: Bound, high: Bound) -> Iterable[Expr | None]:
    first, last = _wall_clock(rule, low, high)
    return _at_least(rule, first.date() if first else None), _at_most(rule, last.date() if last else None)


def _text(rule: _Rule, low: Bound, high: Bound) -> Iterable[Expr | None]:
    match = _TEXT_FORMAT.fullmatch(rule.argument)
    assert match is not None

    def text(moment: dt.datetime | None) -> str | None:
        if moment is None:
            return None
        shown = f"{moment.year:04d}"
        for separator, number in zip(match.groups(), (moment.month, moment.day, moment.hour), strict=True):
            if separator is not None:
                shown += f"{separator}{number:02d}"
        return shown

    first, last = _wall_clock(rule, low, high)
    lower = _at_least(rule, text(first))
    beyond = TextTest("starts", Column((rule.column,)), "+")  # Years after 9999 sort before the others as text.
    return None if lower is None else Or(lower, beyond), _at_most(rule, text(last))


def _trunc(rule: _Rule, low: Bound, high: Bound) -> Iterable[Expr | None]:
    first, last = _wall_clock(rule, low, high)
    if rule.data_type == "date":
        lower = None if first is None else _floor(first, rule.argument).date()
        return _at_least(rule, lower), _at_most(rule, last.date() if last else None)
    start = None if first is None else (_floor(first, rule.argument) - _ANY_ZONE).replace(tzinfo=dt.UTC)
    return _at_least(rule, start), _at_most(rule, (last + _ANY_ZONE).replace(tzinfo=dt.UTC) if last else None)


def _floor(moment: dt.datetime, unit: str) -> dt.datetime:
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "hour":
        return moment.replace(minute=0, second=0, microsecond=0)
    if unit == "week":
        return day - dt.timedelta(days=day.weekday())
    if unit == "month":
        return day.replace(day=1)
    if unit == "quarter":
        return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    return day.replace(month=1, day=1) if unit == "year" else day


def _prefix(rule: _Rule, low: Bound, high: Bound) -> Iterable[Expr | None]:
    size = int(rule.argument)
    return (
        _at_least(rule, low[:size] if low is not None else None),
        _at_most(rule, high[:size] if high is not None else None),
    )


_RANGES: Final[Mapping[str, Callable[[_Rule, Bound, Bound], Iterable[Expr | None]]]] = {
    "same": _same,
    "date": _date,
    "text": _text,
    "trunc": _trunc,
    "prefix": _prefix,
}


def _calendar_range(rules: Mapping[str, _Rule], low: Bound, high: Bound) -> list[Expr]:
    """Derive conditions over year, month, day and hour. A smaller unit counts only if the larger one is at a bound."""
    any_rule = next(iter(rules.values()))
    if not (_fits(any_rule.base_type, low) and _fits(any_rule.base_type, high)):
        return []
    first, last = _wall_clock(any_rule, low, high)
    found: list[Expr] = []
    leading = []
    for unit in _CALENDAR:
        if unit not in rules:
            break
        leading.append(rules[unit])
    if leading:
        found += [_lexical(leading, ">", first)] if first else []
        found += [_lexical(leading, "<", last)] if last else []
    if first is None or last is None:
        return found
    for unit in _CALENDAR:
        if unit in rules and rules[unit] not in leading:
            least, most = (int(getattr(moment, unit)) for moment in (first, last))
            found += [item for item in (_at_least(rules[unit], least), _at_most(rules[unit], most)) if item]
        if getattr(first, unit) != getattr(last, unit):
            break
    return found


def _lexical(rules: Sequence[_Rule], op: str, moment: dt.datetime) -> Expr:
    rule, rest = rules[0], rules[1:]
    part = Column((rule.column,))
    value = Literal(int(getattr(moment, rule.kind)), rule.data_type)
    if not rest:
        return Or(Compare(f"{op}=", part, value), IsNull(part))
    inside = And(Compare("=", part, value), _lexical(rest, op, moment))
    return Or(Or(Compare(op, part, value), inside), IsNull(part))
