"""Define every error that a user can encounter, in one tree. Each says what failed, where, and what to do next.

::

    DeltaError                          .code .sql_state .parameters .hint .retryable .exit_code .table .version
    ├ TableNotFoundError                also FileNotFoundError
    ├ TableAlreadyExistsError           also FileExistsError
    ├ VersionNotFoundError              a version or time outside of the retained log
    ├ InvalidArgumentError              also ValueError
    │ ├ ConflictingSetError             UPDATE sets a column, or parts of it, twice
    │ ├ DuplicateInsertColumnError      INSERT names a column twice
    │ ├ UnknownSettingError             a misspelt spark.pydelta.* or delta.* name
    │ └ InventoryUnusableError          a list of files that cannot be used for the table
    ├ SqlError
    │ ├ ParseError                      .line .column
    │ └ BindError                       a name that does not resolve
    ├ SchemaError
    │ ├ SchemaMismatchError             .table_schema .data_schema
    │ ├ CastOverflowError               a value too large for its column
    │ └ ConstraintViolatedError
    ├ ProtocolError
    │ ├ UnsupportedFeatureError         .features
    │ ├ LogCorruptedError               an invalid log file
    │ └ LogGapError                     .missing_versions
    ├ StorageError                      also OSError
    │ ├ ObjectNotFoundError             also FileNotFoundError
    │ ├ StoragePermissionError          also PermissionError
    │ ├ StorageFullError                disk full, quota exceeded
    │ ├ StorageReadOnlyError            read-only file system
    │ └ UnsafeStoreError                put-if-absent did not hold under a race
    ├ CommitError
    │ ├ DeltaConcurrentModificationException   .winning_version .winning_operation
    │ │ ├ ConcurrentAppendException
    │ │ ├ ConcurrentDeleteReadException
    │ │ ├ ConcurrentDeleteDeleteException
    │ │ ├ MetadataChangedException
    │ │ ├ ProtocolChangedException
    │ │ ├ ConcurrentTransactionException
    │ │ └ ConcurrentWriteException      others took the version on every attempt
    │ ├ CommitStateUnknownError         .txn_id: it is not known whether it was committed
    │ └ CommittedError                  it committed; a later step of the statement failed
    ├ StreamStoppedError                its subclasses are in pydelta.commands.stream.errors
    ├ ChangeDataNotRecordedError        a version in the requested range has no change data feed
    ├ UnsafeOperationError              e.g. removing rows from an append-only table
    │ └ CannotVacuumLiteError           the log no longer lists all files to delete
    ├ AccessDeniedError                 a user's role does not allow it
    ├ RowsDoNotAddUpError               a command's counts contradict each other: nothing was committed
    ├ DeltaEnvironmentError                 the session or machine lacks something that the engine needs
    └ CatalogSyncError                the metastore; its subclasses are in catalog_sync.errors

An error's ``code`` is its condition: that of the statement that raised it (``condition=Condition.of(…)``), or else that
of its class. ``pydelta.errors.conditions`` has the SQLSTATE of each condition.

Next step of a caller, by class:

====================================  =========  ===========================================
error                                 retryable  meaning
====================================  =========  ===========================================
DeltaConcurrentModificationException  yes        nothing was written to the log; run it again
CommitStateUnknownError               no         look for ``txn_id`` in the history first
CommittedError                        no         it is committed; look at the history before running it again
StorageError                          varies     see ``retryable``
everything else                       no         the input or the table has to change first
====================================  =========  ===========================================

Exit codes of all commands and jobs; ``exit_code`` is 1, 2 or 3:

=  ================================================================================
0  done, or nothing to do
1  the input or the table has to change first
2  ``retryable``: nothing is lost, run it again
3  the outcome is unknown: look at the history first
4  a check found a problem; this is not an error and has no class
=  ================================================================================

``pydelta`` and ``catalog_sync`` also exit with 2 for unknown flags, as command lines do; jobs exit with 1.
``pydelta certify`` has its own codes: 1 for a broken promise, 2 if there is no verdict.
"""

from pydelta.errors.tree import *  # noqa: F403 - __all__ is defined there
from pydelta.errors.tree import __all__ as __all__
