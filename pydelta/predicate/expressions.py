"""Define the conditions that pruning and conflict detection understand, as a small tree; the rest is ``Unknown``.

Column paths are tuples of logical names; literals hold Python values (``int``, ``float``, ``str``, ``bool``, ``bytes``,
``Decimal``, ``date``, ``datetime`` aware for timestamp and naive for timestamp_ntz, None).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, TypeAlias

__all__ = [
    "FALSE",
    "TRUE",
    "And",
    "Column",
    "Compare",
    "Expr",
    "In",
    "IsNotNull",
    "IsNull",
    "Literal",
    "Not",
    "Or",
    "StartsWith",
    "Unknown",
    "columns",
    "conjunction",
    "has_unknown",
    "is_partition_only",
    "rename_columns",
    "split_conjuncts",
]

OPERATORS: Final = ("=", "<=>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field within a struct column."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. ``type`` is its type's name in the log (``integer``, ``decimal(10,2)`` …) or None for null."""

    value: Any
    type: str | None = None

    def __str__(self) -> str:
        return f"'{self.value}'" if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True, slots=True)
class Compare:
    """``left op right``; ``op`` is one of ``OPERATORS`` (``!=`` is ``Not`` of ``=``)."""

    op: str
    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


@dataclass(frozen=True, slots=True)
class And:
    """Both."""

    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"({self.left} AND {self.right})"


@dataclass(frozen=True, slots=True)
class Or:
    """Either."""

    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"({self.left} OR {self.right})"


@dataclass(frozen=True, slots=True)
class Not:
    """Negation; of unknown it is unknown."""

    child: Expr

    def __str__(self) -> str:
        return f"(NOT {self.child})"


@dataclass(frozen=True, slots=True)
class In:
    """Membership in constants; a None among them makes a miss unknown, as in SQL."""

    child: Expr
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"({self.child} IN ({', '.join(map(str, self.values))}))"


@dataclass(frozen=True, slots=True)
class IsNull:
    """True for null, false otherwise; never unknown."""

    child: Expr

    def __str__(self) -> str:
        return f"({self.child} IS NULL)"


@dataclass(frozen=True, slots=True)
class IsNotNull:
    """False for null, true otherwise; never unknown."""

    child: Expr

    def __str__(self) -> str:
        return f"({self.child} IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A string column begins with a constant."""

    child: Expr
    prefix: str

    def __str__(self) -> str:
        return f"({self.child} LIKE '{self.prefix}%')"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything else: nothing is known of its value, so it rules nothing out.

    Args:
        text: For messages.
        references: Paths of the columns it reads.
    """

    text: str
    references: frozenset[tuple[str, ...]] = frozenset()

    def __str__(self) -> str:
        return self.text


Expr: TypeAlias = Column | Literal | Compare | And | Or | Not | In | IsNull | IsNotNull | StartsWith | Unknown

TRUE: Final = Literal(True, "boolean")
FALSE: Final = Literal(False, "boolean")


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression."""
    if isinstance(expr, (Compare, And, Or)):
        return (expr.left, expr.right)
    if isinstance(expr, (Not, In, IsNull, IsNotNull, StartsWith)):
        return (expr.child,)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its parts, however deep."""
    todo = [expr]
    while todo:
        part = todo.pop()
        yield part
        todo += reversed(children(part))


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
    """Return whether some part of it is ``Unknown``."""
    return any(isinstance(part, Unknown) for part in walk(expr))


def split_conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Split a condition into the parts that must all hold."""
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
    """Join conditions with AND; ``TRUE`` for none."""
    items = list(parts)
    return reduce(And, items) if items else TRUE


def is_partition_only(expr: Expr, partition_columns: Iterable[str]) -> bool:
    """Return whether it reads only partition columns (by logical name, any case) and is understood in full."""
    names = {name.lower() for name in partition_columns}
    return not has_unknown(expr) and all(len(path) == 1 and path[0].lower() in names for path in columns(expr))


def rename_columns(expr: Expr, mapping: Mapping[tuple[str, ...], tuple[str, ...]]) -> Expr:
    """Return the expression, however deep, with column paths replaced; paths that the mapping lacks stay."""
    built: list[Expr] = []
    for part in reversed(list(walk(expr))):  # parts come before what they are parts of, the left one last
        if isinstance(part, Column):
            built.append(Column(mapping.get(part.path, part.path)))
        elif isinstance(part, Unknown):
            built.append(Unknown(part.text, frozenset(mapping.get(path, path) for path in part.references)))
        elif isinstance(part, (Compare, And, Or)):
            left, right = built.pop(), built.pop()
            built.append(replace(part, left=left, right=right))
        elif isinstance(part, (Not, In, IsNull, IsNotNull, StartsWith)):
            built.append(replace(part, child=built.pop()))
        else:
            built.append(part)
    return built.pop()
