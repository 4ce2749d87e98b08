"""Let Spark's Parquet reader count the rows of a file without an object per row.

::

    a stage's generated code --first row of a file--> the file's reader counts by RowNumbers
                             --every row------------> Spark's _metadata.row_index, with the same values as before

Spark's reader fills its column of row numbers from an iterator of boxed numbers, which takes as long as reading two
columns. ``RowNumbers`` counts in a loop. It replaces a private object of the reader, so it is used only for speed: each
number is the one that Spark gives. Where there is no generated code, or a field is missing, Spark counts.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column

from pydelta.engines.spark.compiled import new_instance, source_of
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import settings_of

__all__ = ["counted"]

_log = logging.getLogger(__name__)

_EXPRESSION: Final = "PydeltaRowNumber"
_COUNTER: Final = "RowNumbers"


def counted(jvm: Jvm, row: Column, file: Column) -> Column:
    """Return a row's number in its file so that it is counted quickly in generated code.

    Args:
        jvm: The session's bindings.
        row: Spark's ``_metadata.row_index``.
        file: A binary column of the scan that has one value per file.
    """
    if not settings_of(jvm.spark).count_rows:
        return row
    try:
        found: Any = new_instance(
            jvm.gateway, _EXPRESSION, jvm.expression(row), jvm.expression(file), _as_inner_class(_COUNTER)
        )
    except Py4JJavaError as error:
        _log.warning("Spark counts row numbers, because %s does not compile: %s", _COUNTER, error.java_exception)
        return row
    return Column(jvm.column_of(found))


@functools.cache
def _as_inner_class(name: str) -> str:
    """Return the source of a class as one within another."""
    public = f"public final class {name}"
    _, found, rest = source_of(name).partition(public)
    assert found, f"{name} begins otherwise"
    return f"private static final class {name}{rest}"
