"""Resolve columns of DataFrames that ``DeltaTable.toDF`` returned, in conditions and values: ``df["id"] > 3``.

Such a Column holds the id of a column in that DataFrame. Later scans of the table have other ids, so the column is
replaced by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.refresh import transform
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["OwnColumns", "ambiguous"]

_REMEMBERED: Final = 20_000
_ATTRIBUTE: Final = re.compile(r"(.*)#(\d+)L?(?:-T\d+ms)?", re.DOTALL)
"""Spark's text for a column of a plan: name, id, a mark for longs and one for watermarks."""


@dataclass(slots=True)
class OwnColumns:
    """The columns of the last DataFrames that a table returned, by their ids.

    Args:
        spark: The session.
    """

    spark: SparkSession
    _names: dict[int, str] = field(default_factory=dict)

    def gave(self, frame: DataFrame) -> DataFrame:
        """Remember the columns of a DataFrame of the table, and return it."""
        self._names |= _ids(frame)
        while len(self._names) > _REMEMBERED:
            del self._names[next(iter(self._names))]
        return frame

    def by_name(
        self, value: Any, *, alias: str | None = None, source: DataFrame | None = None, of_source: bool = False
    ) -> Any:
        """Return a Column in which names replace columns of the DataFrames, or any other value unchanged.

        If the source was made from such a DataFrame, the alias decides whether a column is the table's or the source's.

        Args:
            value: The user's argument: a Column, text or None.
            alias: Qualifier for the names.
            source: The rows of a merge, whose own columns stay.
            of_source: Whether the column can only be the source's, as in an insert.

        Raises:
            InvalidArgumentError: A column may be the table's or the source's.
        """
        if not self._names or not isinstance(value, Column):
            return value
        jvm, names = Jvm.of(self.spark), self._names
        others = _ids(source) if source is not None else {}

        def replaced(node: Any, _: str) -> Any:
            key = int(node.exprId().id())
            if key not in names:
                return None
            if key in others:
                qualifier = str(node.qualifier().mkString("\0"))
                sources = bool(qualifier) and qualifier == _qualifier(source, key)
                if of_source or (sources and qualifier != alias):
                    return None
                if sources or not qualifier or qualifier != alias:
                    raise ambiguous(names[key])
            parts = (names[key],) if alias is None else (alias, names[key])
            return jvm.expression(F.col(quoted(*parts)))

        return ClassicColumn(jvm.column_of(transform(jvm, jvm.expression(value), replaced, ("AttributeReference",))))

    def values_by_name(self, values: Mapping[str, Any], *, alias: str | None = None) -> dict[str, Any]:
        """Apply ``by_name`` to the values of assignments."""
        return {key: self.by_name(value, alias=alias) for key, value in values.items()}


def ambiguous(name: str) -> InvalidArgumentError:
    """Return the error for a column that may be the table's, or the source's if the source was made from the table."""
    return InvalidArgumentError(
        f"The column {name!r} is ambiguous: it is the table's and the source's, which was made of the table's toDF().",
        hint="Give each an alias, and qualify the columns: F.col('t.id') == F.col('s.id').",
        condition=Condition.of(
            "AMBIGUOUS_REFERENCE", name=quoted(name), referenceNames=f"[{quoted(name)}, {quoted(name)}]"
        ),
    )


def _qualifier(frame: Any, key: int) -> str:
    """Return the qualifier of a column in a DataFrame, by the column's id."""
    output = frame._jdf.queryExecution().analyzed().output()
    columns = (output.apply(position) for position in range(output.size()))
    return next(str(item.qualifier().mkString("\0")) for item in columns if int(item.exprId().id()) == key)


def _ids(frame: DataFrame) -> dict[int, str]:
    shown = str(frame._jdf.queryExecution().analyzed().output().mkString("\0")).split("\0")
    found = (_ATTRIBUTE.fullmatch(column) for column in shown)
    return {int(match[2]): match[1] for match in found if match is not None}
