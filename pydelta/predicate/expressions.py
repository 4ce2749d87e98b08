"""Define expressions over the rows of a table: one tree for conditions and values.

::

    SQL text ------parse_predicate--+            +--prunable--> masks, partition values, conflicts
    Catalyst ------Tree-------------+--> Expr ---+
                                                 +--exact-----> engines.arrow.evaluate

A condition is true, false or null, by SQL's three-valued logic. Column paths are tuples of logical names. A type is one
of the table's schema, or None before it is resolved. Pruning needs no types: see ``prunable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Final, TypeAlias

from pydelta.protocol.types import DataType, PrimitiveType, parse_type

__all__ = [
    "BOOLEAN",
    "FALSE",
    "FLIPPED",
    "OPERATORS",
    "STRING",
    "TRUE",
    "WHOLE",
    "And",
    "Arithmetic",
    "CaseWhen",
    "Cast",
    "Coalesce",
    "Column",
    "Compare",
    "Concat",
    "Expr",
    "In",
    "IsNan",
    "IsNotNull",
    "IsNull",
    "Like",
    "Literal",
    "Negative",
    "Not",
    "Or",
    "TextTest",
    "Unknown",
    "columns",
    "conjunction",
    "fields_of",
    "has_unknown",
    "is_partition_only",
    "rename_columns",
    "split_conjuncts",
]

BOOLEAN: Final = PrimitiveType("boolean")
STRING: Final = PrimitiveType("string")
WHOLE: Final = ("byte", "short", "integer", "long")
"""Names of the whole number types, the narrowest first."""

OPERATORS: Final = ("=", "<=>", "<", "<=", ">", ">=")
FLIPPED: Final = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The equivalent operator with the sides exchanged."""


class _Condition:
    """An expression that is true, false or null."""

    __slots__ = ()
    type: ClassVar[DataType] = BOOLEAN


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field within a struct column."""

    path: tuple[str, ...]
    type: DataType | None = None

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True, init=False)
class Literal:
    """A constant, None for null.

    Args:
        value: ``int``, ``float``, ``str``, ``bool``, ``bytes``, ``Decimal``, ``date``, ``datetime`` (aware for
            timestamp, naive for timestamp_ntz). A day or a time may be Spark's ``int`` (days or microseconds since
            1970), and must be if Python's calendar lacks it.
        type: The type, or its name in the log (``integer``, ``decimal(10,2)`` …). None for a null that takes the type
            of the other side.
    """

    value: Any
    type: DataType | None

    def __init__(self, value: Any, type: DataType | str | None = None) -> None:  # noqa: A002
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "type", parse_type(type) if isinstance(type, str) else type)

    def __str__(self) -> str:
        return f"'{self.value}'" if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True, slots=True)
class Compare(_Condition):
    """``left op right``. ``op`` is one of ``OPERATORS`` (``!=`` is ``Not`` of ``=``).

    Both sides have one type, or they are numbers, which are compared by their values. NaN equals itself and is greater
    than all numbers, -0.0 equals 0.0, and strings are ordered by their bytes.
    """

    op: str
    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


@dataclass(frozen=True, slots=True)
class And(_Condition):
    """Conjunction."""

    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"({self.left} AND {self.right})"


@dataclass(frozen=True, slots=True)
class Or(_Condition):
    """Disjunction."""

    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"({self.left} OR {self.right})"


@dataclass(frozen=True, slots=True)
class Not(_Condition):
    """Negation. The negation of null is null."""

    child: Expr

    def __str__(self) -> str:
        return f"(NOT {self.child})"


@dataclass(frozen=True, slots=True)
class In(_Condition):
    """Membership in constants, as ``Literal`` holds them. With a None among them, a miss is null, as in SQL."""

    child: Expr
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"({self.child} IN ({', '.join(map(str, self.values))}))"


@dataclass(frozen=True, slots=True)
class IsNull(_Condition):
    """True for null, false otherwise, never null."""

    child: Expr

    def __str__(self) -> str:
        return f"({self.child} IS NULL)"


@dataclass(frozen=True, slots=True)
class IsNotNull(_Condition):
    """False for null, true otherwise, never null."""

    child: Expr

    def __str__(self) -> str:
        return f"({self.child} IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class IsNan(_Condition):
    """True for NaN, false otherwise, including null."""

    child: Expr


@dataclass(frozen=True, slots=True)
class TextTest(_Condition):
    """Whether a string ``starts`` or ``ends`` with a constant, or ``contains`` it, by its bytes."""

    kind: str
    child: Expr
    part: str

    def __str__(self) -> str:
        before, behind = "%" * (self.kind != "starts"), "%" * (self.kind != "ends")
        return f"({self.child} LIKE '{before}{self.part}{behind}')"


@dataclass(frozen=True, slots=True)
class Like(_Condition):
    """Whether a string matches a pattern of ``%`` and ``_``."""

    child: Expr
    pattern: Expr
    escape: str


@dataclass(frozen=True, slots=True)
class Cast:
    """The child's value in another type."""

    child: Expr
    type: DataType | None


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left op right`` of one type. ``op`` is ``+``, ``-``, ``*``, ``/`` or ``%``."""

    op: str
    left: Expr
    right: Expr
    type: DataType | None


@dataclass(frozen=True, slots=True)
class Negative:
    """The number with the opposite sign."""

    child: Expr
    type: DataType | None


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first part that is not null."""

    parts: tuple[Expr, ...]
    type: DataType | None


@dataclass(frozen=True, slots=True)
class CaseWhen:
    """``CASE WHEN``: the value of the first branch whose condition is true, otherwise ``otherwise``."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr
    type: DataType | None


@dataclass(frozen=True, slots=True)
class Concat:
    """Concatenated strings, null if one of them is."""

    parts: tuple[Expr, ...]
    type: ClassVar[DataType] = STRING


@dataclass(frozen=True, slots=True)
class Unknown(_Condition):
    """A condition that the tree cannot express. Its value is not known, so it rules nothing out.

    Args:
        text: The SQL text, for messages.
        references: Paths of the columns that it reads.
        reason: The part that the tree cannot express.
    """

    text: str
    references: frozenset[tuple[str, ...]] = frozenset()
    reason: str = ""

    def __str__(self) -> str:
        return self.text


Expr: TypeAlias = (
    Column
    | Literal
    | Compare
    | And
    | Or
    | Not
    | In
    | IsNull
    | IsNotNull
    | IsNan
    | TextTest
    | Like
    | Cast
    | Arithmetic
    | Negative
    | Coalesce
    | CaseWhen
    | Concat
    | Unknown
)
_PAIR: Final = (Compare, And, Or, Arithmetic)
_SINGLE: Final = (Not, In, IsNull, IsNotNull, IsNan, TextTest, Cast, Negative)
_PRUNED: Final = (Column, Literal, Compare, And, Or, Not, In, IsNull, IsNotNull, TextTest)

TRUE: Final = Literal(True, BOOLEAN)
FALSE: Final = Literal(False, BOOLEAN)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct parts of an expression."""
    if isinstance(expr, _PAIR):
        return (expr.left, expr.right)
    if isinstance(expr, _SINGLE):
        return (expr.child,)
    if isinstance(expr, Like):
        return (expr.child, expr.pattern)
    if isinstance(expr, (Coalesce, Concat)):
        return expr.parts
    if isinstance(expr, CaseWhen):
        return (*(part for branch in expr.branches for part in branch), expr.otherwise)
    return ()


def _with_children(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """Replace the parts of an expression by the same number of others."""
    if isinstance(expr, _PAIR):
        return replace(expr, left=parts[0], right=parts[1])
    if isinstance(expr, _SINGLE):
        return replace(expr, child=parts[0])
    if isinstance(expr, Like):
        return replace(expr, child=parts[0], pattern=parts[1])
    if isinstance(expr, (Coalesce, Concat)):
        return replace(expr, parts=parts)
    if isinstance(expr, CaseWhen):
        return replace(expr, branches=tuple(zip(parts[:-1:2], parts[1::2], strict=True)), otherwise=parts[-1])
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """Iterate over an expression and all its parts, at any depth."""
    todo = [expr]
    while todo:
        part = todo.pop()
        yield part
        todo += reversed(children(part))


def fields_of(expr: Expr) -> Iterator[Column]:
    """Find the columns that an expression reads, with duplicates."""
    return (part for part in walk(expr) if isinstance(part, Column))


def columns(expr: Expr) -> frozenset[tuple[str, ...]]:
    """Find the paths of the columns that the expression reads."""
    found: set[tuple[str, ...]] = set()
    for part in walk(expr):
        if isinstance(part, Column):
            found.add(part.path)
        elif isinstance(part, Unknown):
            found |= part.references
    return frozenset(found)


def has_unknown(expr: Expr) -> bool:
    """Return whether pruning does not understand some part of an expression."""
    for part in walk(expr):
        if not isinstance(part, _PRUNED) or (isinstance(part, TextTest) and part.kind != "starts"):
            return True
    return False


def split_conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Split a condition into the parts that must all be true."""
    found: list[Expr] = []
    todo = [expr]
    while todo:
        part = todo.pop()
        if isinstance(part, And):
            todo += (part.right, part.left)
        else:
            found.append(part)
    return tuple(found)


def conjunction(parts: Iterable[Expr]) -> Expr:
    """Join conditions with AND. Without conditions, return ``TRUE``."""
    items = list(parts)
    return reduce(And, items) if items else TRUE


def is_partition_only(expr: Expr, partition_columns: Iterable[str]) -> bool:
    """Return whether a condition is fully understood and reads only partition columns (by logical name, any case)."""
    names = {name.lower() for name in partition_columns}
    return not has_unknown(expr) and all(len(path) == 1 and path[0].lower() in names for path in columns(expr))


def rename_columns(expr: Expr, mapping: Mapping[tuple[str, ...], tuple[str, ...]]) -> Expr:
    """Replace the column paths in an expression, at any depth. Paths that the mapping lacks stay."""
    built: list[Expr] = []
    for part in reversed(list(walk(expr))):  # Parts come before the expression that holds them, the left one last.
        if isinstance(part, Column):
            built.append(replace(part, path=mapping.get(part.path, part.path)))
        elif isinstance(part, Unknown):
            built.append(replace(part, references=frozenset(mapping.get(path, path) for path in part.references)))
        else:
            built.append(_with_children(part, tuple(built.pop() for _ in children(part))))
    return built.pop()
