"""Define a class for each error that a user can encounter, with its condition and its exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Self

from pydelta.errors.conditions import Condition, addressed, said, sql_state

__all__ = [
    "AccessDeniedError",
    "BindError",
    "CannotVacuumLiteError",
    "CastOverflowError",
    "CatalogSyncError",
    "ChangeDataNotRecordedError",
    "CommitError",
    "CommitStateUnknownError",
    "CommittedError",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "ConflictingSetError",
    "ConstraintViolatedError",
    "DeltaConcurrentModificationException",
    "DeltaEnvironmentError",
    "DeltaError",
    "DuplicateInsertColumnError",
    "InvalidArgumentError",
    "InventoryUnusableError",
    "LogCorruptedError",
    "LogGapError",
    "MetadataChangedException",
    "ObjectNotFoundError",
    "ParseError",
    "ProtocolChangedException",
    "ProtocolError",
    "RowsDoNotAddUpError",
    "SchemaError",
    "SchemaMismatchError",
    "SqlError",
    "StorageError",
    "StorageFullError",
    "StoragePermissionError",
    "StorageReadOnlyError",
    "StreamStoppedError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "UnknownSettingError",
    "UnsafeOperationError",
    "UnsafeStoreError",
    "UnsupportedFeatureError",
    "VersionNotFoundError",
    "error_context",
    "first_line",
]


_SHOWN: Final = "pydelta.errors"


class DeltaError(Exception):
    """The base of all errors that this package raises on purpose.

    Args:
        message: What was expected and what was found, in one or two sentences.
        hint: What to do next, shown on a separate line.
        table: Location of the table, if known. ``error_context`` fills it in.
        version: Version of the table, if known.
        condition: Condition with its parameters, if it is more exact than that of the class.
    """

    code: str = "DELTA_ERROR"
    retryable: bool = False
    _condition: Condition | None = None

    def __init_subclass__(cls) -> None:
        """Show the errors of this module in tracebacks under the name by which users import them."""
        if cls.__module__ == __name__:
            cls.__module__ = _SHOWN

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        table: str | None = None,
        version: int | None = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.table = table
        self.version = version
        if condition is not None:
            self.called(condition)

    @property
    def condition(self) -> Condition:
        """The condition of this error, or else of its class."""
        return self._condition or Condition(self.code, {}, sql_state(self.code))

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters of the condition, by name."""
        return self.condition.parameters

    @property
    def sql_state(self) -> str | None:
        """The SQLSTATE, or None for a condition of Spark's without one."""
        return self.condition.sql_state

    def called(self, condition: Condition) -> Self:
        """Give the error a more exact condition, and return the error."""
        self.code, self._condition = condition.name, condition
        return self

    def getCondition(self) -> str:
        """Return ``code`` under the name of PySpark's exceptions."""
        return self.code

    def getErrorClass(self) -> str:
        """Return ``code`` under the older name of PySpark's exceptions."""
        return self.code

    def getSqlState(self) -> str | None:
        """Return ``sql_state`` under the name of PySpark's exceptions."""
        return self.sql_state

    def getMessageParameters(self) -> dict[str, str]:
        """Return ``parameters`` under the name of PySpark's exceptions."""
        return dict(self.parameters)

    @property
    def exit_code(self) -> int:
        """The exit code of a process that ends with this error: 2 if a retry can help, otherwise 1."""
        return 2 if self.retryable else 1

    def __str__(self) -> str:
        where = f" (table {self.table}" + (f", version {self.version})" if self.version is not None else ")")
        text = f"[{self.code}] {said(self.condition, self.message)}" + (where if self.table else "")
        return f"{text}\n  Next: {addressed(self.hint, self.table)}" if self.hint else text


DeltaError.__module__ = _SHOWN


class TableNotFoundError(DeltaError, FileNotFoundError):
    """There is no Delta table at the location."""

    code = "DELTA_TABLE_NOT_FOUND"

    @classmethod
    def at(cls, uri: str, *, condition: Condition | None = None) -> Self:
        """Return the error for a location without a table."""
        return cls(
            f"There is no Delta table at {uri}.",
            hint="Check the location, or create the table first.",
            table=uri,
            condition=condition,
        )

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters that were given, or else the table."""
        given = super().parameters
        return {"tableName": self.table} if not given and self.table else given


class TableAlreadyExistsError(DeltaError, FileExistsError):
    """The location already has a table or foreign files."""

    code = "DELTA_TABLE_ALREADY_EXISTS"


class VersionNotFoundError(DeltaError):
    """A version or time that is not, or is not any more, in the log."""

    code = "DELTA_VERSION_NOT_FOUND"


class InvalidArgumentError(DeltaError, ValueError):
    """An argument that is never valid."""

    code = "DELTA_INVALID_ARGUMENT"


class UnknownSettingError(InvalidArgumentError):
    """An unknown name of a setting or property, most often a misspelling."""

    code = "DELTA_UNKNOWN_CONFIGURATION"


class InventoryUnusableError(InvalidArgumentError):
    """A list of files that does not cover the table, is dated in the future, or is one of several possible ones."""

    code = "DELTA_INVENTORY_UNUSABLE"


class ConflictingSetError(InvalidArgumentError):
    """An UPDATE that sets the same column twice, or a struct and one of its fields."""

    code = "DELTA_CONFLICT_SET_COLUMN"


class DuplicateInsertColumnError(InvalidArgumentError):
    """An INSERT that names the same column twice, or a struct and one of its fields."""

    code = "DELTA_DUPLICATE_COLUMNS_ON_INSERT"


class SqlError(DeltaError):
    """A statement or expression that cannot be executed as written."""

    code = "DELTA_SQL_ERROR"


class ParseError(SqlError):
    """Text that is not valid SQL. ``line`` and ``column`` count from 1."""

    code = "DELTA_PARSE_ERROR"

    def __init__(
        self,
        message: str,
        *,
        line: int = 1,
        column: int = 1,
        hint: str | None = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(message, hint=hint, condition=condition)
        self.line = line
        self.column = column


class BindError(SqlError):
    """A name in an expression that is not a column of the table."""

    code = "DELTA_UNRESOLVED_COLUMN"


class SchemaError(DeltaError):
    """A schema that the table, the format or Parquet does not support."""

    code = "DELTA_SCHEMA_ERROR"


class SchemaMismatchError(SchemaError):
    """Data whose schema does not fit the table's."""

    code = "DELTA_SCHEMA_MISMATCH"


class CastOverflowError(SchemaError):
    """A value that is too large for the column that UPDATE or MERGE sets."""

    code = "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"


class ConstraintViolatedError(SchemaError):
    """A row that violates NOT NULL, CHECK or an invariant."""

    code = "DELTA_VIOLATE_CONSTRAINT"


class ProtocolError(DeltaError):
    """A log that this version of the engine must not or cannot read."""

    code = "DELTA_PROTOCOL_ERROR"


class UnsupportedFeatureError(ProtocolError):
    """The table needs features that this engine does not have; ``features`` names them."""

    code = "DELTA_UNSUPPORTED_FEATURES"

    def __init__(
        self,
        message: str,
        *,
        features: Sequence[str] = (),
        hint: str | None = None,
        table: str | None = None,
        version: int | None = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(message, hint=hint, table=table, version=version, condition=condition)
        self.features = tuple(features)


class LogCorruptedError(ProtocolError):
    """A log file that is truncated, is not JSON or Parquet, or contradicts the protocol."""

    code = "DELTA_LOG_CORRUPTED"


class LogGapError(ProtocolError):
    """Versions are missing from the log, so the state cannot be rebuilt."""

    code = "DELTA_VERSIONS_NOT_CONTIGUOUS"

    def __init__(
        self,
        message: str,
        *,
        missing_versions: Sequence[int] = (),
        hint: str | None = None,
        table: str | None = None,
        version: int | None = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(message, hint=hint, table=table, version=version, condition=condition)
        self.missing_versions = tuple(missing_versions)


class StorageError(DeltaError, OSError):
    """The store refused or failed; ``retryable`` says whether a retry can help."""

    code = "DELTA_STORAGE_ERROR"

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        hint: str | None = None,
        table: str | None = None,
        version: int | None = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(message, hint=hint, table=table, version=version, condition=condition)
        self.retryable = retryable

    def __str__(self) -> str:  # OSError would format the errno.
        return DeltaError.__str__(self)


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The object does not exist."""

    code = "DELTA_FILE_NOT_FOUND"


class StoragePermissionError(StorageError, PermissionError):
    """The credentials in use do not allow the request."""

    code = "DELTA_STORAGE_PERMISSION_DENIED"


class StorageFullError(StorageError):
    """The store has no space left, or a quota is used up."""

    code = "DELTA_STORAGE_FULL"


class StorageReadOnlyError(StorageError):
    """The file system is mounted read-only."""

    code = "DELTA_STORAGE_READ_ONLY"


class UnsafeStoreError(StorageError):
    """The store let two writers create the same object, so no log can be kept on it."""

    code = "DELTA_UNSAFE_STORE"


class CommitError(DeltaError):
    """A transaction that did not commit, or may not have committed."""

    code = "DELTA_COMMIT_ERROR"


class DeltaConcurrentModificationException(CommitError):
    """The base of all conflicts: another transaction won, and this one left nothing in the log.

    Args:
        winning_version: Version that the other transaction committed.
        winning_operation: Operation of the other transaction, from its ``commitInfo``.
    """

    code = "DELTA_CONCURRENT_MODIFICATION"
    retryable = True
    winner_only_rearranged = False  # True if the winner only moved rows to other files.

    def __init__(
        self,
        message: str,
        *,
        winning_version: int | None = None,
        winning_operation: str | None = None,
        hint: str | None = None,
        table: str | None = None,
        version: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, table=table, version=version)
        self.winning_version = winning_version
        self.winning_operation = winning_operation

    @property
    def parameters(self) -> Mapping[str, str]:
        """The winner's operation and version, and the table."""
        known = {"operation": self.winning_operation, "tableName": self.table, "version": self.winning_version}
        return {name: str(value) for name, value in known.items() if value is not None}


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """The winner added files to a part of the table that this transaction had read."""

    code = "DELTA_CONCURRENT_APPEND.WITHOUT_HINT"


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """The winner removed a file that this transaction had read."""

    code = "DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT"


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """The winner removed a file that this transaction removes too."""

    code = "DELTA_CONCURRENT_DELETE_DELETE.WITHOUT_HINT"


class MetadataChangedException(DeltaConcurrentModificationException):
    """The winner changed the table's metadata (schema, partitioning or properties)."""

    code = "DELTA_METADATA_CHANGED"


class ProtocolChangedException(DeltaConcurrentModificationException):
    """The winner changed the table's protocol, or both transactions create the table."""

    code = "DELTA_PROTOCOL_CHANGED"


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """Two writers use the same application id (``txnAppId`` or a stream's checkpoint)."""

    code = "DELTA_CONCURRENT_TRANSACTION"


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Others took the next version on every attempt, or both writers changed one metadata domain."""

    code = "DELTA_CONCURRENT_WRITE"


class CommitStateUnknownError(CommitError):
    """It is not known whether it committed: do not clean up or retry, but look for ``txn_id`` in the history."""

    code = "DELTA_COMMIT_STATE_UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        txn_id: str,
        hint: str | None = None,
        table: str | None = None,
        version: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, table=table, version=version)
        self.txn_id = txn_id

    @property
    def exit_code(self) -> int:
        """Always 3: the outcome is unknown, so do not simply run it again."""
        return 3


class CommittedError(CommitError):
    """The commit succeeded, but a later step of the same statement failed."""

    code = "DELTA_COMMITTED"

    @property
    def exit_code(self) -> int:
        """Always 3: it is committed, so do not run it again."""
        return 3


class StreamStoppedError(DeltaError):
    """A stream that cannot continue because of a change in its table. Nothing was skipped."""

    code = "DELTA_STREAM_STOPPED"


class ChangeDataNotRecordedError(DeltaError):
    """A version in the requested range was written while the change data feed was off."""

    code = "DELTA_MISSING_CHANGE_DATA"


class UnsafeOperationError(DeltaError):
    """An operation that the table's own rules forbid."""

    code = "DELTA_UNSAFE_OPERATION"


class CannotVacuumLiteError(UnsafeOperationError):
    """The log no longer lists all files that VACUUM LITE would have to delete."""

    code = "DELTA_CANNOT_VACUUM_LITE"


class AccessDeniedError(DeltaError):
    """A user's role does not allow a statement, a table or a column."""

    code = "DELTA_ACCESS_DENIED"


class RowsDoNotAddUpError(DeltaError):
    """The numbers of rows that a command found, hid, copied and wrote contradict each other. Nothing was committed."""

    code = "DELTA_ROWS_DO_NOT_ADD_UP"


class DeltaEnvironmentError(DeltaError):
    """The session or machine lacks something that the engine needs (pyarrow on executors, a JDK, a classic session)."""

    code = "DELTA_ENVIRONMENT"


class CatalogSyncError(DeltaError):
    """The metastore could not be read or updated."""

    code = "DELTA_CATALOG_SYNC"


@contextmanager
def error_context(*, table: str, version: int | None = None) -> Iterator[None]:
    """Name the table (and version) in any ``DeltaError`` that passes through without naming one."""
    try:
        yield
    except DeltaError as error:
        if error.table is None:
            error.table = table
            error.version = version if error.version is None else error.version
        raise


def first_line(error: object) -> str:
    """Return the first line of an error's text, without the plans or traces that may follow."""
    return str(error).strip().split("\n", 1)[0]
