"""Choose between this process and Spark for the row work of a command, and record the choice and its reason.

::

    files within spark.pydelta.local.changesMaxBytes, and an expression that ``exact`` knows --> pydelta.engines.arrow
    anything else, and any failure in this process ----------------------------------> a Spark job

If a step fails in this process, Spark does it again and reports its usual errors. Files written here are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import polars as pl
import pyarrow as pa

from pydelta.commands.engine import RewriteOutput
from pydelta.commands.optimize.plan import Layout
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.engines.arrow.changes import Change, FilePlace, check_condition, delete_rows, find_rows, rewrite
from pydelta.engines.arrow.columns import files_of_partitions
from pydelta.engines.arrow.expressions import Exact, NotHere
from pydelta.engines.arrow.layout import TableShape
from pydelta.engines.arrow.rearrange import RowOrder, check_plan, compact, lay_out
from pydelta.engines.arrow.tasks.old_files import NeedsSpark
from pydelta.engines.arrow.tasks.write_files import WriteTask
from pydelta.engines.arrow.threads import row_group_limit
from pydelta.engines.arrow.updates import update_rows
from pydelta.engines.spark.logs import SessionSettings
from pydelta.engines.spark.maintenance.optimize import rearranging_task
from pydelta.engines.spark.write.writer import make_write_task
from pydelta.errors import DeltaError, RowsDoNotAddUpError
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddFile
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.protocol.types import StructType
from pydelta.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["REWRITTEN", "SCANNED", "ArrowFirst", "Limit", "written_by"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
SCANNED: Final = "scannedBy"
REWRITTEN: Final = "rewrittenBy"
"""Steps of a change, as the history names them."""

_FILE_COST_BYTES: Final = 64 * 1024
"""Cost of opening a file. It keeps one process from reading many tiny files one after the other."""

_AS_USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "spark.sql.parquet.datetimeRebaseModeInRead": ("corrected", "exception"),
    "spark.sql.parquet.int96RebaseModeInRead": ("corrected", "exception"),
    "spark.sql.parquet.binaryAsString": ("false",),
    "spark.sql.files.ignoreMissingFiles": ("false",),
    "spark.sql.files.ignoreCorruptFiles": ("false",),
    "spark.sql.caseSensitive": ("false",),
    "spark.sql.optimizer.inSetConversionThreshold": ("10",),
}
"""Settings that change how Spark reads a file or compares values, and the values that this process follows."""


class Meaning(Protocol):
    """A condition whose meaning this process can compute."""

    def exact(self, schema: StructType) -> Exact:
        """See ``Tree.exact``."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of bytes of files that this process may read or rewrite, and its setting. 0 means none."""

    setting: str
    most_bytes: int


class ArrowFirst:
    """Tries the steps of one command in this process.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._held: SessionSettings | None = None
        self.ways: dict[str, str] = {}

    def foresee(self, snapshot: Snapshot, files: pl.DataFrame, condition: Meaning) -> str:
        """Predict how the rows of a condition would be found, in the form of ``ways``. No file is read."""
        limit = self.limit()
        if not limit.most_bytes:
            return f"spark: {limit.setting} is 0"
        try:
            self._refuse(files, limit)
            check_condition(snapshot, condition.exact(snapshot.schema))
        except NotHere as reason:
            return f"spark: {reason}"
        return "arrow"

    def foresee_rearranged(self, snapshot: Snapshot, plan: pl.DataFrame, layout: Layout | None) -> str:
        """Predict how files would be compacted or laid out, as far as this is known before reading one."""
        limit = self._rearranging_limit()
        if not limit.most_bytes:
            return f"spark: {self._off()} is 0"
        try:
            self._refuse(plan, limit)
            check_plan(snapshot, snapshot.files.adds(plan), plan, layout, rearranging_task(self._spark, snapshot))
        except NotHere as reason:
            return f"spark: {reason}"
        return "arrow"

    def in_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: Meaning) -> pl.DataFrame | None:
        """Find the files of a condition over partition columns, or return None if Spark has to."""
        if not self.limit().most_bytes:
            return None

        def work() -> pl.DataFrame:
            self.refuse_session()
            return files_of_partitions(snapshot, files, condition.exact(snapshot.schema))

        return _attempt(work)[0]

    def find(self, snapshot: Snapshot, files: pl.DataFrame, condition: Meaning) -> Mapping[int, RowSet] | None:
        """Find the rows of a condition, or return None if Spark has to. See ``Engine.match_rows``."""
        return self.tried(
            SCANNED, files, lambda: find_rows(snapshot, files, condition.exact(snapshot.schema), self._place(snapshot))
        )

    def write_without(
        self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]
    ) -> RewriteOutput | None:
        """Write files without the given rows, or return None if Spark has to. See ``Engine.write_without``."""
        return self._rewritten(snapshot, files, rows, lambda _: delete_rows)

    def write_updated(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet] | None,
        values: Callable[[StructType], Mapping[str, Exact]],
        *,
        copy_others: bool,
    ) -> RewriteOutput | None:
        """Write rows with new values, or return None if Spark has to. See ``Engine.write_updated``."""

        def change(task: WriteTask) -> Change:
            return update_rows(snapshot, task, values(snapshot.schema), copy_others=copy_others)

        return self._rewritten(snapshot, files, rows, change)

    def compact(self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame) -> RewriteOutput | None:
        """Write one file per bin, or return None if Spark has to. See ``Engine.compact``."""

        def work() -> RewriteOutput:
            task = rearranging_task(self._spark, snapshot)
            return compact(snapshot, files, plan, task=task, place=written_by(task))

        return self.tried(REWRITTEN, plan, work, limit=self._rearranging_limit())

    def lay_out(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, layout: Layout, target_bytes: int
    ) -> RewriteOutput | None:
        """Write rows in an order, or return None if Spark has to. See ``Engine.lay_out``."""

        def work() -> RewriteOutput:
            task = rearranging_task(self._spark, snapshot)
            return lay_out(snapshot, files, plan, RowOrder(layout, target_bytes), task=task, place=written_by(task))

        return self.tried(REWRITTEN, plan, work, limit=self._rearranging_limit())

    def _rearranging_limit(self) -> Limit:
        settings = self._session().settings
        most = settings.local_optimize_max_bytes if settings.local_max_bytes else 0
        return Limit("spark.pydelta.local.optimizeMaxBytes", most)

    def _off(self) -> str:
        """Return the setting that keeps this process from rearranging files."""
        limit = self.merge_limit()
        return self._rearranging_limit().setting if limit.most_bytes else limit.setting

    def _rewritten(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet] | None,
        change: Callable[[WriteTask], Change],
    ) -> RewriteOutput | None:
        def work() -> RewriteOutput:
            task = self.write_task(snapshot)
            return rewrite(snapshot, files, rows, change(task), task=task, place=written_by(task))

        return self.tried(REWRITTEN, files, work)

    def write_task(self, snapshot: Snapshot) -> WriteTask:
        """Decide how a change writes files of a table."""
        return make_write_task(
            self._spark,
            TableShape.of(snapshot),
            WriteOptions(mode=WriteMode.APPEND),
            self._session(),
            change_data=snapshot.properties.enable_change_data_feed,
            row_tracking=bool(materialized_columns(snapshot.properties)),
        )

    def tried(self, step: str, files: pl.DataFrame, work: Callable[[], _T], *, limit: Limit | None = None) -> _T | None:
        """Do a step in this process if it fits, and leave it to Spark if it fails.

        Args:
            step: ``SCANNED`` or ``REWRITTEN``.
            files: The files that the step reads.
            work: The step.
            limit: Limit of the step, or None for the limit of changes.

        Returns:
            The step's result, or None if Spark has to do it. ``ways`` then has the reason.
        """
        limit = limit or self.limit()
        if not limit.most_bytes:
            return None

        def within_limit() -> _T:
            self._refuse(files, limit)
            return work()

        done, why = _attempt(within_limit)
        self.ways[step] = f"spark: {why}" if why else "arrow"
        return done

    def limit(self) -> Limit:
        """Return the limit of files that DELETE, UPDATE and MERGE read and write in this process, a few at a time."""
        settings = self._session().settings
        name = "maxBytes" if settings.local_changes_max_bytes is None else "changesMaxBytes"
        return Limit(f"spark.pydelta.local.{name}", settings.changes_limit)

    def merge_limit(self) -> Limit:
        """Return the limit of a MERGE's source, which this process holds."""
        return Limit("spark.pydelta.local.maxBytes", self._session().settings.local_max_bytes)

    def _refuse(self, files: pl.DataFrame, limit: Limit) -> None:
        size = int(files["size"].sum() or 0)
        if size + files.height * _FILE_COST_BYTES > limit.most_bytes:
            raise NotHere(f"{files.height} files of {size} bytes, more than {limit.setting}")
        self.refuse_session()

    def refuse_session(self) -> None:
        """Check that this process follows the session's settings.

        Raises:
            NotHere: It does not follow one of them. The reason names it.
        """
        conf = self._session().conf
        for name, values in _AS_USUAL.items():
            if conf.get(name, values[0]).strip().lower() not in values:
                raise NotHere(f"the session's {name}")

    def _session(self) -> SessionSettings:
        if self._held is None:
            self._held = SessionSettings.of(self._spark)
        return self._held

    def _place(self, snapshot: Snapshot) -> FilePlace:
        options = self._session().options
        return FilePlace(store=open_store(snapshot.table_uri, options), options=options, most_bytes=row_group_limit())


def _attempt(work: Callable[[], _T]) -> tuple[_T | None, str]:
    """Run a step. Returns its result, or None and the reason to leave it to Spark."""
    try:
        return work(), ""
    except RowsDoNotAddUpError:
        raise
    except NotHere as reason:
        return None, str(reason)
    except NeedsSpark as reason:
        _log.info("left to Spark: %s", reason)
        return None, "a file that Arrow may read otherwise"
    except (DeltaError, OSError, pa.ArrowException) as error:
        _log.info("left to Spark: %s", type(error).__name__)
        _log.debug("what went wrong here", exc_info=error)
        return None, "a file that could not be read or written here"


def written_by(task: WriteTask) -> FilePlace:
    """Return the place of a task's files."""
    store = open_store(task.table_uri, task.store_options)
    return FilePlace(store=store, options=task.store_options, most_bytes=row_group_limit())
