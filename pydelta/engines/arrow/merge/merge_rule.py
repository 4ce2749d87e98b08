"""Define a merge over columns of the table and of the source, for this process to compute.

::

    condition --conjuncts--> keys: table's side = source's side, by which pairs are joined
                         --> rest: further conditions on a pair
    keys of the source --> conditions over the table that are true for every row with a match, to choose files
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pydelta.commands.change.merge import ClauseAction, ClauseOn
from pydelta.engines.arrow.evaluate import Columns, evaluate
from pydelta.engines.arrow.expressions import Exact, NotHere, source_field
from pydelta.predicate.expressions import (
    FALSE,
    Cast,
    Column,
    Compare,
    Expr,
    In,
    Literal,
    fields_of,
    split_conjuncts,
)
from pydelta.protocol.types import DecimalType, PrimitiveType

__all__ = [
    "MOST_LISTED",
    "ArrowClause",
    "MergeRule",
    "SeveralSources",
    "both_sides",
    "comparable",
    "one_array",
    "outwards",
    "ranges",
]

_KEYS: Final = ("boolean", "byte", "short", "integer", "long", "string", "binary", "date", "timestamp", "timestamp_ntz")
_RANGED: Final = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "string")
MOST_LISTED: Final = 1000
"""Up to this many keys of a source, each is compared with statistics. Otherwise only their range is."""
_DIGITS: Final = 15


class SeveralSources(NotHere):
    """Several rows of the source would change the same row of the table: an error that Spark reports with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowClause:
    """A clause whose expressions this process computes.

    Args:
        on: Kind of rows that it applies to.
        action: Its action.
        condition: Its condition, or None for all rows.
        values: New values by the table's names of columns.
    """

    on: ClauseOn
    action: ClauseAction
    condition: Exact | None = None
    values: Mapping[str, Exact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """A merge, over the columns of the table and of the source.

    Args:
        keys: Pairs of expressions, over the table and over the source, that are equal in every pair of rows.
        rest: Further conditions on a pair of rows.
        clauses: The clauses, in order.
    """

    keys: tuple[tuple[Exact, Exact], ...]
    rest: tuple[Exact, ...]
    clauses: tuple[ArrowClause, ...]

    @classmethod
    def of(cls, condition: Exact, clauses: Sequence[ArrowClause]) -> MergeRule:
        """Split a condition into keys and the rest.

        Raises:
            NotHere: It does not require a column of the table to equal one of the source, with a type that can be
                joined.
        """
        keys, rest = [], []
        for part in split_conjuncts(condition):
            key = _keys_in(part)
            if key is None:
                rest.append(part)
            else:
                keys.append(key)
        if not keys:
            raise NotHere("a merge without an equality of keys")
        return cls(keys=tuple(keys), rest=tuple(rest), clauses=tuple(clauses))

    def numbers(self, on: ClauseOn) -> list[int]:
        """Return the positions of the clauses of a kind."""
        return [number for number, clause in enumerate(self.clauses) if clause.on is on]

    @property
    def table_fields(self) -> Iterator[Column]:
        """The columns of the table that pairing reads."""
        of_pairs = [clause.condition for clause in self.clauses if clause.on is not ClauseOn.NOT_MATCHED]
        for expr in (*(mine for mine, _ in self.keys), *self.rest, *(item for item in of_pairs if item is not None)):
            yield from (item for item in fields_of(expr) if not source_field(item.path))


def _keys_in(part: Exact) -> tuple[Exact, Exact] | None:
    """Return both sides of an equality of table and source, the table's first, or None for any other condition."""
    if not isinstance(part, Compare) or part.op != "=":
        return None
    kind = part.left.type
    if not (isinstance(kind, DecimalType) or (isinstance(kind, PrimitiveType) and kind.name in _KEYS)):
        return None
    for mine, theirs in ((part.left, part.right), (part.right, part.left)):
        own, others = list(fields_of(mine)), list(fields_of(theirs))
        apart = not any(source_field(item.path) for item in own) and all(source_field(item.path) for item in others)
        if own and others and apart:
            return mine, theirs
    return None


def ranges(rule: MergeRule, source: Iterable[pa.Table], partitions: Collection[str]) -> list[Expr]:
    """Find conditions over the table's keys that are true for every row with a match, or ``FALSE`` if none can match.

    Args:
        rule: The merge.
        source: Rows of the source, in parts.
        partitions: Partition columns of the table, in lower case. Their values in file entries are not rounded.

    Returns:
        For each key that narrows the files, the list of its values if they are few, else their range. A list avoids
        conflicts with writers of values between two of them.

    Raises:
        NotHere: Only Spark can compute the result for a key.
    """
    seen = [_KeyValues() for _ in rule.keys]
    for part in source:
        column = both_sides(None, part)
        for values, (_, theirs) in zip(seen, rule.keys, strict=True):
            values.add(evaluate(theirs, column, part.num_rows))
    found: list[Expr] = []
    for values, (mine, _) in zip(seen, rule.keys, strict=True):
        if values.are_null:
            return [FALSE]
        found += _narrowing(mine, values, partitions)
    return found


class _KeyValues:
    """The values of a key: all of them while they are few, the smallest and the largest."""

    def __init__(self) -> None:
        self.are_null = True
        self.distinct: pa.Array | None = None
        self._is_few = True
        self._bounds: pa.Array | None = None

    def add(self, values: pa.Array) -> None:
        """Add values, of which some may be null."""
        values = values.drop_null()
        if not len(values):
            return
        self.are_null = False
        if self._is_few:
            unique = pc.unique(values)
            self.distinct = unique if self.distinct is None else pc.unique(pa.concat_arrays([self.distinct, unique]))
            self._is_few = len(self.distinct) <= MOST_LISTED
            self.distinct = self.distinct if self._is_few else None
        bounds = pc.min_max(values)
        ends = pa.array([bounds["min"], bounds["max"]], type=values.type)
        self._bounds = ends if self._bounds is None else pa.concat_arrays([self._bounds, ends])

    def ends(self) -> tuple[Any, Any]:
        """Return the smallest and the largest value. ValueError, OverflowError: Python cannot represent one."""
        bounds = pc.min_max(self._bounds)
        return bounds["min"].as_py(), bounds["max"].as_py()


def _narrowing(mine: Exact, values: _KeyValues, partitions: Collection[str]) -> list[Expr]:
    """Return conditions over a key of the table, none if it does not narrow the files."""
    target = mine.child if isinstance(mine, Cast) else mine
    kind = mine.type.name if isinstance(mine.type, PrimitiveType) else ""
    if isinstance(mine.type, DecimalType):
        kind = f"decimal({mine.type.precision},{mine.type.scale})"
    elif kind not in _RANGED:
        return []
    if not isinstance(target, Column) or len(target.path) > 1:
        return []
    column = Column(target.path)
    try:
        if values.distinct is not None:
            listed = tuple(values.distinct.to_pylist())
            if target.path[0].lower() in partitions or comparable(listed):
                return [In(column, listed)]
        low, high = values.ends()
    except (ValueError, OverflowError):  # Python cannot represent the time, so it does not narrow the files.
        return []
    low, high = outwards(low, ROUND_FLOOR), outwards(high, ROUND_CEILING)
    return [Compare(">=", column, Literal(low, kind)), Compare("<=", column, Literal(high, kind))]


def comparable(values: Sequence[Any]) -> bool:
    """Return whether statistics compare each of these values exactly. A decimal of many digits is rounded."""
    return all(outwards(value, ROUND_FLOOR) == value for value in values)


def outwards(bound: Any, rounding: str) -> Any:
    """Round a decimal bound to the digits that statistics compare. ``rounding`` must lead out of the range."""
    return Context(prec=_DIGITS, rounding=rounding).plus(bound) if isinstance(bound, Decimal) else bound


def both_sides(mine: Columns | None, theirs: pa.Table | None) -> Columns:
    """Return a function that gives the values of a column of the table or of the source."""

    def column(path: tuple[str, ...]) -> Any:
        if not source_field(path):
            assert mine is not None, "the expression is not over the table"
            return mine(path)
        assert theirs is not None, "the expression is not over the source"
        values = one_array(theirs.column(int(path[1])))
        inner = list(path[2:])
        return pc.struct_field(values, inner) if inner else values

    return column


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
