"""Run the operations of a plan with Trino, using SQL. Each runs as a separate user, so that its commit names it."""

from __future__ import annotations

from collections.abc import Mapping

from pydelta.errors import first_line
from pydelta.errors.redaction import hide_text
from pydelta.log import DeltaLog
from pydelta.tools.certify.history import PlannedStep, Row, rows_written
from pydelta.tools.certify.local_worker import Failed, StepDone, version_of
from pydelta.tools.certify.trino import TrinoError, TrinoTable, user_of

__all__ = ["TrinoWorker"]


class TrinoWorker:
    """Runs operations on a table.

    Args:
        table: The table in Trino.
        uri: Location of the table.
        options: Options of its store, used to look up versions.
    """

    def __init__(self, table: TrinoTable, uri: str, options: Mapping[str, str]) -> None:
        self._table = table
        self._log = DeltaLog.for_table(uri, options=options)

    def run(self, step: PlannedStep) -> StepDone:
        """Run an operation."""
        if step.kind == "read":
            version = self._log.update().version
            return StepDone(version=version, rows=self.read(version))
        self._table.rows(self._statement(step), user=user_of(self._table, step.op))
        return StepDone(version=version_of(self._log, step.op))

    def read(self, version: int) -> tuple[Row, ...]:
        """Read a version."""
        return self._table.read(version)

    def _statement(self, step: PlannedStep) -> str:
        table, key, op = self._table.quoted, step.key, step.op
        rows = ", ".join(f"('{op}', {number}, {key}, '')" for _, number, _, _ in rows_written(step))
        return {
            "append": f"INSERT INTO {table} (op, n, k, rev) VALUES {rows}",
            "delete": f"DELETE FROM {table} WHERE k = {key}",
            "update": f"UPDATE {table} SET rev = '{op}' WHERE k = {key}",
            "merge": f"MERGE INTO {table} t USING (VALUES BIGINT '{key}') s(k) ON t.k = s.k "
            f"WHEN MATCHED THEN UPDATE SET rev = '{op}' "
            f"WHEN NOT MATCHED THEN INSERT (op, n, k, rev) VALUES ('{op}', 0, s.k, '{op}')",
            "optimize": f"ALTER TABLE {table} EXECUTE optimize",
        }[step.kind]

    def failure(self, error: Exception) -> Failed:
        """Classify an error. Only a conflict has a known outcome."""
        reason = hide_text(f"{type(error).__name__}: {first_line(error)}")
        if isinstance(error, TrinoError) and error.name == "TRANSACTION_CONFLICT":
            return Failed(known=True, trouble="conflict", error=reason)
        return Failed(known=False, trouble="store", error=reason)

    def close(self) -> None:
        """Do nothing, because there is nothing to stop."""
