"""The analysed join of a merge in, what it says of the target's columns out: equal keys, conditions of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydelta.spark.jvm import Jvm, java_class_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MergeKey", "keys_of", "target_conjuncts"]

_RANGED: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeKey:
    """``target = expression over the source``, a conjunct of the condition.

    Args:
        target: The table's column.
        source_sql: The other side.
    """

    target: str
    source_sql: str


def keys_of(jvm: Jvm, join: Any, target: DataFrame) -> Iterator[MergeKey]:
    """The keys by which a merge condition demands equality, of types whose order statistics follow."""
    del jvm
    own = _ids(target)
    for conjunct in _conjuncts(join.condition().get()):
        if _class(conjunct) != "EqualTo":
            continue
        for mine, theirs in ((conjunct.left(), conjunct.right()), (conjunct.right(), conjunct.left())):
            column = _column(mine)
            if column is None or _id(column) not in own:
                continue
            others = _references(theirs)
            kind = str(column.dataType().catalogString())
            if others and not others & own and (kind in _RANGED or kind.startswith("decimal")):
                yield MergeKey(target=str(column.name()), source_sql=str(theirs.sql()))


def target_conjuncts(join: Any, target: DataFrame) -> Iterator[str]:
    """Conjuncts of the condition over the target alone, as SQL."""
    own = _ids(target)
    for conjunct in _conjuncts(join.condition().get()):
        references = _references(conjunct)
        if references and references <= own:
            yield str(conjunct.sql())


def _conjuncts(expression: Any) -> Iterator[Any]:
    if _class(expression) == "And":
        yield from _conjuncts(expression.left())
        yield from _conjuncts(expression.right())
    else:
        yield expression


def _class(expression: Any) -> str:
    return java_class_name(expression).rsplit(".", 1)[-1]


def _column(expression: Any) -> Any | None:
    """The column, looked at through a cast to a wider whole number, which keeps the order."""
    if _class(expression) == "Cast":
        inner = expression.child()
        whole = {"tinyint", "smallint", "int", "bigint"}
        kinds = {str(inner.dataType().catalogString()), str(expression.dataType().catalogString())}
        if _class(inner) != "AttributeReference" or not kinds <= whole:
            return None
        expression = inner
    return expression if _class(expression) == "AttributeReference" else None


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _ids(frame: DataFrame) -> set[int]:
    output = frame._jdf.queryExecution().analyzed().output()
    return {_id(output.apply(place)) for place in range(output.size())}


def _references(expression: Any) -> set[int]:
    references = expression.references().toSeq()
    return {_id(references.apply(place)) for place in range(references.size())}
