"""Define what a merge does, over columns of the table and of the source, for this process to compute.

::

    condition --conjuncts--> keys: table's side = source's side     what pairs are joined by
                         --> rest: what else a pair satisfies
    keys of the source --> conditions over the table that hold for every row with a match: which files are read
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
"""Keys of a source that are compared with statistics one by one; of more only the range is."""
_DIGITS: Final = 15


class SeveralSources(NotHere):
    """Rows of the source that would change the same row of the table: an error, which Spark words with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowClause:
    """A clause whose expressions are computed here.

    Args:
        on: Which rows it is for.
        action: What it does with them.
        condition: None for all of them.
        values: By the table's names of columns, what they become.
    """

    on: ClauseOn
    action: ClauseAction
    condition: Exact | None = None
    values: Mapping[str, Exact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """What a merge does, over the columns of the table and of the source.

    Args:
        keys: Pairs of expressions, over the table and over the source, that are equal in every pair of rows.
        rest: What else a pair of rows has to satisfy.
        clauses: In their order.
    """

    keys: tuple[tuple[Exact, Exact], ...]
    rest: tuple[Exact, ...]
    clauses: tuple[ArrowClause, ...]

    @classmethod
    def of(cls, condition: Exact, clauses: Sequence[ArrowClause]) -> MergeRule:
        """Take a condition apart.

        Raises:
            NotHere: It demands no equality of a column of the table with one of the source, of a type that is joined.
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
        """Places of the clauses of a kind."""
        return [number for number, clause in enumerate(self.clauses) if clause.on is on]

    @property
    def table_fields(self) -> Iterator[Column]:
        """The table's columns that pairing reads."""
        of_pairs = [clause.condition for clause in self.clauses if clause.on is not ClauseOn.NOT_MATCHED]
        for expr in (*(mine for mine, _ in self.keys), *self.rest, *(item for item in of_pairs if item is not None)):
            yield from (item for item in fields_of(expr) if not source_field(item.path))


def _keys_in(part: Exact) -> tuple[Exact, Exact] | None:
    """Return both sides of an equality of the table with the source, the table's first; None for anything else."""
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


def ranges(rule: MergeRule, source: pa.Table, partitions: Collection[str]) -> list[Expr]:
    """Find conditions over the table's keys that hold for every row with a match; ``FALSE`` where there can be none.

    Args:
        rule: The merge.
        source: The source's rows.
        partitions: The table's partition columns, in lower case, whose values are not rounded in any file's entry.

    Returns:
        For each key that narrows: the list of its values while they are few, so that what another writer does between
        two of them is no conflict; their range otherwise.

    Raises:
        NotHere: A key for which only Spark may say what comes out.
    """
    found: list[Expr] = []
    for mine, theirs in rule.keys:
        values = evaluate(theirs, both_sides(None, source), source.num_rows)
        if values.null_count == len(values):
            return [FALSE]
        target = mine.child if isinstance(mine, Cast) else mine
        kind = mine.type.name if isinstance(mine.type, PrimitiveType) else ""
        if isinstance(mine.type, DecimalType):
            kind = f"decimal({mine.type.precision},{mine.type.scale})"
        elif kind not in _RANGED:
            continue
        if not isinstance(target, Column) or len(target.path) > 1:
            continue
        column = Column(target.path)
        try:
            distinct = pc.unique(values)
            if len(distinct) <= MOST_LISTED:
                listed = tuple(item for item in distinct.to_pylist() if item is not None)
                if target.path[0].lower() in partitions or comparable(listed):
                    found.append(In(column, listed))
                    continue
            bounds = pc.min_max(values)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
        except (ValueError, OverflowError):  # a time that Python does not hold narrows nothing
            continue
        low, high = outwards(low, ROUND_FLOOR), outwards(high, ROUND_CEILING)
        found += [Compare(">=", column, Literal(low, kind)), Compare("<=", column, Literal(high, kind))]
    return found


def comparable(values: Sequence[Any]) -> bool:
    """Whether statistics compare each of these values as it is: a decimal of many digits only rounded."""
    return all(outwards(value, ROUND_FLOOR) == value for value in values)


def outwards(bound: Any, rounding: str) -> Any:
    """Round a bound that is a decimal to as many digits as statistics compare; ``rounding`` leads out of the range."""
    return Context(prec=_DIGITS, rounding=rounding).plus(bound) if isinstance(bound, Decimal) else bound


def both_sides(mine: Columns | None, theirs: pa.Table | None) -> Columns:
    """Return what gives the values of a column of the table, or of the source."""

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
