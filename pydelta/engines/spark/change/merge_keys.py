"""Find the parts of a resolved merge condition that narrow the files to read: equal keys, conditions on the table.

Nothing here decides the result of a merge. Parts that are not understood, or that the source alone cannot compute, do
not narrow the files.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from pydelta.engines.arrow.merge.merge_rule import MOST_LISTED, comparable, outwards
from pydelta.engines.spark.jvm import Jvm, java_class_name
from pydelta.engines.spark.scan.filters import literal_of, to_expressions
from pydelta.predicate import FALSE, Column, Compare, Expr, In, IsNull, Literal, Or

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MergeKey", "keeps_order", "keys_of", "ranges_of", "target_conjuncts"]

_LOG = logging.getLogger(__name__)

_WHOLE: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_RANGED: Final = frozenset({*_WHOLE, "date", "timestamp", "timestamp_ntz", "string"})
_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_ESTIMATED: Final = MOST_LISTED * 5 // 4
"""The limit for an estimated number of keys that may be few: the estimate is usually off by at most a twentieth."""
_USER_DEFINED: Final = "org.apache.spark.sql.catalyst.expressions.UserDefinedExpression"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeKey:
    """The conjunct ``target = expression over the source`` of a condition.

    Args:
        target: Column of the table.
        source: The other side, a Catalyst expression over the source's columns.
        data_type: Type in which both are compared, by its name in the log.
        null_safe: Whether null matches null (``<=>``).
    """

    target: str
    source: Any
    data_type: str
    null_safe: bool = False


def keeps_order(source: str, target: str) -> bool:
    """Return whether a cast preserves every value of a type, so that bounds stay valid after the cast. Pure.

    This holds for whole numbers and decimals cast to types with room for all of their digits, and for equal types.

    Args:
        source: A type by its name in the log, such as ``integer`` or ``decimal(10,2)``.
        target: The type that it is cast to.
    """
    if source == target:
        return True
    if source in _WHOLE and target in _WHOLE:
        return _WHOLE[source] <= _WHOLE[target]
    wide, narrow = _DECIMAL.fullmatch(target), _DECIMAL.fullmatch(source)
    if wide is None or (narrow is None and source not in _WHOLE):
        return False
    precision, scale = int(wide.group(1)), int(wide.group(2))
    digits, fraction = (int(narrow.group(1)), int(narrow.group(2))) if narrow else (_WHOLE[source], 0)
    return scale >= fraction and precision - scale >= digits - fraction


def keys_of(jvm: Jvm, condition: Any, target: DataFrame) -> Iterator[MergeKey]:
    """Find the keys that a merge condition requires to be equal, of types that statistics order in the same way.

    Args:
        jvm: The session's JVM.
        condition: The resolved Catalyst expression.
        target: Rows of the table, whose columns the condition reads.
    """
    own = _ids(target)
    for conjunct in _conjuncts(condition):
        if _class(conjunct) not in ("EqualTo", "EqualNullSafe"):
            continue
        for mine, theirs in ((conjunct.left(), conjunct.right()), (conjunct.right(), conjunct.left())):
            column = _column(mine)
            if column is None or _id(column) not in own:
                continue
            others, kind = _references(theirs), str(mine.dataType().typeName())
            ranged = kind in _RANGED or _DECIMAL.fullmatch(kind) is not None
            if ranged and others and not others & own and not _runs_user_code(jvm, theirs):
                null_safe = _class(conjunct) == "EqualNullSafe"
                yield MergeKey(target=str(column.name()), source=theirs, data_type=kind, null_safe=null_safe)


def target_conjuncts(condition: Any, target: DataFrame) -> Sequence[Expr]:
    """Return the conjuncts of the condition over the target alone. See ``keys_of``."""
    own = _ids(target)
    alone = []
    for conjunct in _conjuncts(condition):
        references = _references(conjunct)
        if references and references <= own:
            alone.append(conjunct)
    return to_expressions(alone)


def ranges_of(jvm: Jvm, source: DataFrame, keys: Sequence[MergeKey], partitions: frozenset[str]) -> list[Expr]:
    """Compute conditions over the table's keys that hold for every row with a match, or ``FALSE`` if none can match.

    Args:
        jvm: The session's JVM.
        source: The stored rows of the source.
        keys: The keys to examine.
        partitions: Partition columns of the table, in lower case. Their values in file entries are not rounded.

    Returns:
        For each key the list of its values if they are few, else their range. A list avoids conflicts with writers of
        values between two of them.
    """
    if not keys:
        return []
    values = [SparkColumn(jvm.column_of(key.source)) for key in keys]
    try:
        parts = [
            (F.min(value), F.max(value), F.count_if(value.isNull()), F.approx_count_distinct(value)) for value in values
        ]
        bounds = source.agg(*itertools.chain(*parts)).toArrow()
        found: list[Expr] = []
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            low, high, nulls, about = (bounds.column(4 * number + place)[0] for place in range(4))
            with_null = key.null_safe and nulls.as_py() > 0
            if not low.is_valid and not with_null:
                return [FALSE]
            few = about.as_py() <= _ESTIMATED
            listed = _listed(source, key, value, is_partition=key.target.lower() in partitions) if few else None
            narrowed = [listed] if listed is not None else list(_range(key, low, high))
            if with_null and low.is_valid:
                narrowed = [Or(part, IsNull(Column((key.target,)))) for part in narrowed]
            elif with_null:
                narrowed = [IsNull(Column((key.target,)))]
            found += narrowed
    except (PySparkException, Py4JError) as error:  # The join may skip a row for which this query fails.
        _LOG.debug("no range of merge keys: %s", error)
        return []
    return found


def _range(key: MergeKey, low: pa.Scalar, high: pa.Scalar) -> Iterator[Expr]:
    for operator, bound, rounding in ((">=", low, ROUND_FLOOR), ("<=", high, ROUND_CEILING)):
        literal = _literal(bound, key.data_type)
        if literal is None:
            continue
        yield Compare(operator, Column((key.target,)), Literal(outwards(literal.value, rounding), literal.type))


def _listed(source: DataFrame, key: MergeKey, value: SparkColumn, *, is_partition: bool) -> Expr | None:
    """List the values of a key, or return None if they are many or one cannot be compared with statistics."""
    distinct = source.select(value).distinct().limit(MOST_LISTED + 1).toArrow().column(0)
    if len(distinct) > MOST_LISTED:
        return None
    literals = [_literal(item, key.data_type) for item in distinct if item.is_valid]
    if any(item is None or not (is_partition or comparable([item.value])) for item in literals):
        return None
    return In(Column((key.target,)), tuple(item.value for item in literals if item is not None))


def _literal(value: pa.Scalar, data_type: str) -> Literal | None:
    """Turn Spark's representation of a value (days, microseconds, digits) into a literal, or None if there is none."""
    try:
        return literal_of(
            value.value if data_type in ("date", "timestamp", "timestamp_ntz") else value.as_py(), data_type
        )
    except UnicodeDecodeError:
        return None


def _runs_user_code(jvm: Jvm, expression: Any) -> bool:
    """Return whether the expression calls a function that is not Spark's own."""
    user_defined = jvm.view.java.lang.Class.forName(_USER_DEFINED)
    todo = [expression]
    while todo:
        part = todo.pop()
        if user_defined.isInstance(part):
            return True
        todo += jvm.to_list(part.children())
    return False


def _conjuncts(expression: Any) -> Iterator[Any]:
    if _class(expression) == "And":
        yield from _conjuncts(expression.left())
        yield from _conjuncts(expression.right())
    else:
        yield expression


def _class(expression: Any) -> str:
    return java_class_name(expression).rsplit(".", 1)[-1]


def _column(expression: Any) -> Any | None:
    """Return the column under a cast that preserves every value, or None if there is none."""
    if _class(expression) == "Cast":
        inner = expression.child()
        if not keeps_order(str(inner.dataType().typeName()), str(expression.dataType().typeName())):
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
