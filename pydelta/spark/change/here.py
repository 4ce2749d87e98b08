"""Choose between this process and Spark for the row work of a command, and remember which did it and why.

::

    files within spark.pydelta.local.maxBytes, and an expression that ``exact`` knows --> pydelta.arrow
    anything else, and whatever goes wrong here -------------------------------------> a Spark job, as always

What fails here is done again by Spark, which then says what it always says. Nothing that was written here is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import polars as pl
import pyarrow as pa

from pydelta.arrow.changes import Change, Place, check_condition, delete_rows, find_rows, rewrite
from pydelta.arrow.expressions import NotHere
from pydelta.arrow.layout import TableShape
from pydelta.arrow.tasks.old_files import NeedsSpark
from pydelta.arrow.tasks.write_files import WriteTask
from pydelta.arrow.updates import update_rows
from pydelta.commands.engine import RewriteOutput
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.errors import DeltaError, RowsDoNotAddUpError
from pydelta.log import Snapshot
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.settings import Settings
from pydelta.spark.change.assignments import BoundAssignments
from pydelta.spark.change.exact import exact
from pydelta.spark.jvm import Jvm
from pydelta.spark.scan.filters import Tree
from pydelta.spark.write.writer import make_write_task
from pydelta.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Here"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_SCAN, _REWRITE = "scannedBy", "rewrittenBy"
_FILE_COST_BYTES: Final = 64 * 1024
"""What opening a file counts as, so that many tiny ones are not read one after the other by one process."""

_AS_USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "spark.sql.parquet.datetimeRebaseModeInRead": ("corrected", "exception"),
    "spark.sql.parquet.int96RebaseModeInRead": ("corrected", "exception"),
    "spark.sql.parquet.binaryAsString": ("false",),
    "spark.sql.files.ignoreMissingFiles": ("false",),
    "spark.sql.files.ignoreCorruptFiles": ("false",),
    "spark.sql.caseSensitive": ("false",),
    "spark.sql.optimizer.inSetConversionThreshold": ("10",),
}
"""Settings that change what Spark reads in a file or how it compares, and their values that this process follows."""


class Here:
    """The part of one command that is tried in this process.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._conf: Mapping[str, str] | None = None
        self._settings: Settings | None = None
        self.ways: dict[str, str] = {}

    def foresee(self, snapshot: Snapshot, files: pl.DataFrame, condition: Tree) -> str:
        """Tell how the rows of a condition would be looked for in files, without looking: as ``ways`` has it."""
        limit = self._own_settings().local_max_bytes
        if not limit:
            return "spark: spark.pydelta.local.maxBytes is 0"
        try:
            self._refuse(files, limit)
            check_condition(snapshot, exact(condition, snapshot.schema))
        except NotHere as reason:
            return f"spark: {reason}"
        return "arrow"

    def find(self, snapshot: Snapshot, files: pl.DataFrame, condition: Tree) -> Mapping[int, RowSet] | None:
        """Find the rows of a condition; None where that is Spark's to do. See ``Engine.match_rows``."""
        return self._tried(
            _SCAN, files, lambda: find_rows(snapshot, files, exact(condition, snapshot.schema), self._place(snapshot))
        )

    def write_without(
        self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]
    ) -> RewriteOutput | None:
        """Write files without the rows given; None where that is Spark's to do. See ``Engine.write_without``."""
        return self._rewritten(snapshot, files, rows, lambda _: delete_rows)

    def write_updated(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet] | None,
        assignments: BoundAssignments,
        *,
        copy_others: bool,
    ) -> RewriteOutput | None:
        """Write rows with new values; None where that is Spark's to do. See ``UpdatingEngine.write_updated``."""

        def change(task: WriteTask) -> Change:
            values = {}
            for item in assignments.items:
                if len(item.path) > 1 or item.expression is None:
                    raise NotHere("a field in a struct that is set")
                values[item.path[0]] = exact(Tree.of(item.expression.expression), snapshot.schema)
            return update_rows(snapshot, task, values, copy_others=copy_others)

        return self._rewritten(snapshot, files, rows, change)

    def _rewritten(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet] | None,
        change: Callable[[WriteTask], Change],
    ) -> RewriteOutput | None:
        def work() -> RewriteOutput:
            task = make_write_task(
                self._spark,
                TableShape.of(snapshot),
                WriteOptions(mode=WriteMode.APPEND),
                self._own_settings(),
                change_data=snapshot.properties.enable_change_data_feed,
                row_tracking=bool(materialized_columns(snapshot.properties)),
            )
            place = Place(store=open_store(snapshot.table_uri, task.store_options), options=task.store_options)
            return rewrite(snapshot, files, rows, change(task), task=task, place=place)

        return self._tried(_REWRITE, files, work)

    def _tried(self, step: str, files: pl.DataFrame, work: Callable[[], _T]) -> _T | None:
        """Do a step here if it fits; what goes wrong is left to Spark."""
        limit = self._own_settings().local_max_bytes
        if not limit:
            return None
        try:
            self._refuse(files, limit)
            done = work()
        except RowsDoNotAddUpError:
            raise
        except NotHere as reason:
            why = str(reason)
        except NeedsSpark as reason:
            why = "a file that Arrow may read otherwise"
            _log.info("left to Spark: %s", reason)
        except (DeltaError, OSError, pa.ArrowException) as error:
            why = "a file that could not be read or written here"
            _log.info("left to Spark: %s", type(error).__name__)
            _log.debug("what went wrong here", exc_info=error)
        else:
            self.ways[step] = "arrow"
            return done
        self.ways[step] = f"spark: {why}"
        return None

    def _refuse(self, files: pl.DataFrame, limit: int) -> None:
        size = int(files["size"].sum() or 0)
        if size + files.height * _FILE_COST_BYTES > limit:
            raise NotHere(f"{files.height} files of {size} bytes, more than spark.pydelta.local.maxBytes")
        conf = self._session_conf()
        for name, values in _AS_USUAL.items():
            if conf.get(name, values[0]).strip().lower() not in values:
                raise NotHere(f"the session's {name}")

    def _session_conf(self) -> Mapping[str, str]:
        if self._conf is None:
            self._conf = Jvm.of(self._spark).session_conf()
        return self._conf

    def _own_settings(self) -> Settings:
        if self._settings is None:
            self._settings = Settings.resolve(self._session_conf())
        return self._settings

    def _place(self, snapshot: Snapshot) -> Place:
        options = Jvm.of(self._spark).store_options()
        return Place(store=open_store(snapshot.table_uri, options), options=options)
