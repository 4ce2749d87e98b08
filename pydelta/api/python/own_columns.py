"""Let conditions and values name columns by the DataFrames that ``DeltaTable.toDF`` gave out: ``df["id"] > 3``.

Such a Column holds the id that a column has in that frame, which no later scan of the table has: it is replaced by the
column's name.
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
from pydelta.engines.spark.scan.refresh import transform_expression
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["OwnColumns", "ambiguous"]

_REMEMBERED: Final = 20_000
_ATTRIBUTE: Final = re.compile(r"(.*)#(\d+)L?(?:-T\d+ms)?", re.DOTALL)
"""How Spark shows a column of a plan: its name, its id, marks of a long and of a watermark."""


@dataclass(slots=True)
class OwnColumns:
    """The columns of the newest frames that a table gave out, by their ids.

    Args:
        spark: The session.
    """

    spark: SparkSession
    _names: dict[int, str] = field(default_factory=dict)

    def gave(self, frame: DataFrame) -> DataFrame:
        """Remember the columns of a frame of the table; return it."""
        self._names |= _ids(frame)
        while len(self._names) > _REMEMBERED:
            del self._names[next(iter(self._names))]
        return frame

    def by_name(
        self, value: Any, *, alias: str | None = None, source: DataFrame | None = None, of_source: bool = False
    ) -> Any:
        """Return a Column with names in the place of the frames' columns; anything else as it is.

        A column that is the table's and the source's, which was made of such a frame, goes by its frame's alias.

        Args:
            value: What the user gave: a Column, text or None.
            alias: What qualifies the names.
            source: The rows of a merge, whose own columns stay.
            of_source: Whether only the source can be meant, as where a row is inserted.

        Raises:
            InvalidArgumentError: A column may be the table's and the source's.
        """
        if not self._names or not isinstance(value, Column):
            return value
        jvm, names = Jvm.of(self.spark), self._names
        others = _ids(source) if source is not None else {}

        def replaced(node: Any, kind: str) -> Any:
            key = int(node.exprId().id()) if kind == "AttributeReference" else None
            if key is None or key not in names:
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

        return ClassicColumn(jvm.column_of(transform_expression(jvm.expression(value), replaced)))

    def values_by_name(self, values: Mapping[str, Any], *, alias: str | None = None) -> dict[str, Any]:
        """Do what ``by_name`` does, for what columns are set to."""
        return {key: self.by_name(value, alias=alias) for key, value in values.items()}


def ambiguous(name: str) -> InvalidArgumentError:
    """Return the error of a column that may be the table's, or that of a source that was made of the table's frame."""
    return InvalidArgumentError(
        f"The column {name!r} is ambiguous: it is the table's and the source's, which was made of the table's toDF().",
        hint="Give both an alias, and name columns by it: F.col('t.id') == F.col('s.id').",
        condition=Condition.of(
            "AMBIGUOUS_REFERENCE", name=quoted(name), referenceNames=f"[{quoted(name)}, {quoted(name)}]"
        ),
    )


def _qualifier(frame: Any, key: int) -> str:
    """The qualifier that a column of a frame has, by the column's id."""
    output = frame._jdf.queryExecution().analyzed().output()
    columns = (output.apply(position) for position in range(output.size()))
    return next(str(item.qualifier().mkString("\0")) for item in columns if int(item.exprId().id()) == key)


def _ids(frame: DataFrame) -> dict[int, str]:
    shown = str(frame._jdf.queryExecution().analyzed().output().mkString("\0")).split("\0")
    found = (_ATTRIBUTE.fullmatch(column) for column in shown)
    return {int(match[2]): match[1] for match in found if match is not None}
