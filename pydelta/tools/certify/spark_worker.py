"""Run the operations of a plan in a Spark session of this engine, using SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydelta.errors import DeltaError, first_line
from pydelta.errors.redaction import hide_text
from pydelta.log import DeltaLog
from pydelta.tools.certify.history import PlannedStep, Row, rows_written
from pydelta.tools.certify.local_worker import Failed, StepDone, failure_of, version_of

__all__ = ["SparkWorker"]

_CONF: Final = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "OFF",
    "spark.driver.memory": "1g",
}
_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"


class _NotLookedUp(Exception):
    """A statement ended, but the version that it made could not be determined."""


class SparkWorker:
    """Runs operations on a table; arguments as in ``LocalWorker``."""

    def __init__(self, uri: str, options: Mapping[str, str], process: int) -> None:
        import pydelta

        given = {
            name if name.startswith("spark.") else f"spark.hadoop.{name}": value for name, value in options.items()
        }
        self._spark: Any = pydelta.session(f"certify {process}", conf={**_CONF, **given})
        self._log = DeltaLog.for_table(uri, options=options)
        self._table = f"delta.`{uri}`"

    def run(self, step: PlannedStep) -> StepDone:
        """Run an operation."""
        self._spark.conf.set(_METADATA, step.op)
        if step.kind == "read":
            version = self._log.update().version
            return StepDone(version=version, rows=self.read(version))
        target = max(self._log.update().version - step.back, 0) if step.kind == "restore" else None
        self._spark.sql(self._statement(step, target)).collect()
        try:
            return StepDone(version=version_of(self._log, step.op), target=target)
        except DeltaError as error:
            raise _NotLookedUp(first_line(error)) from error

    def read(self, version: int) -> tuple[Row, ...]:
        """Read a version."""
        rows = self._spark.sql(f"SELECT op, n, k, rev FROM {self._table} VERSION AS OF {version}").collect()
        return tuple(sorted((row.op, row.n, row.k, row.rev) for row in rows))

    def _statement(self, step: PlannedStep, target: int | None) -> str:
        table, key, op = self._table, step.key, step.op
        rows = ", ".join(f"('{op}', {number}L, {key}L, '')" for _, number, _, _ in rows_written(step))
        return {
            "append": f"INSERT INTO {table} VALUES {rows}",
            "replace": f"INSERT INTO {table} REPLACE WHERE k = {key} VALUES {rows}",
            "delete": f"DELETE FROM {table} WHERE k = {key}",
            "update": f"UPDATE {table} SET rev = '{op}' WHERE k = {key}",
            "merge": f"MERGE INTO {table} t USING (SELECT {key}L AS k) s ON t.k = s.k "
            f"WHEN MATCHED THEN UPDATE SET rev = '{op}' "
            f"WHEN NOT MATCHED THEN INSERT (op, n, k, rev) VALUES ('{op}', 0L, s.k, '{op}')",
            "optimize": f"OPTIMIZE {table}",
            "vacuum": f"VACUUM {table}",
            "restore": f"RESTORE TABLE {table} TO VERSION AS OF {target}",
        }[step.kind]

    def failure(self, error: Exception) -> Failed:
        """Classify an error. Those of this engine state their outcome; for Spark's own it is unknown."""
        if isinstance(error, DeltaError):
            return failure_of(error)
        return Failed(known=False, trouble="store", error=hide_text(f"{type(error).__name__}: {first_line(error)}"))

    def close(self) -> None:
        """Stop the session."""
        self._spark.stop()
