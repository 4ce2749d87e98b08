"""Define every error that a user can meet, in one tree; each says what, where and what to do next.

::

    DeltaError                          .code .sql_state .parameters .hint .retryable .exit_code .table .version
    ├ TableNotFoundError                also FileNotFoundError
    ├ TableAlreadyExistsError           also FileExistsError
    ├ VersionNotFoundError              a version or time outside the retained log
    ├ InvalidArgumentError              also ValueError
    │ ├ ConflictingSetError             UPDATE sets a column, or parts of it, twice
    │ ├ DuplicateInsertColumnError      INSERT names a column twice
    │ ├ UnknownSettingError             a misspelt spark.pydelta.* or delta.* name
    │ └ InventoryUnusableError          a list of files that tells nothing of the table
    ├ SqlError
    │ ├ ParseError                      .line .column
    │ └ BindError                       a name that does not resolve
    ├ SchemaError
    │ ├ SchemaMismatchError             .table_schema .data_schema
    │ ├ CastOverflowError               a value too large for its column
    │ └ ConstraintViolatedError
    ├ ProtocolError
    │ ├ UnsupportedFeatureError         .features
    │ ├ LogCorruptedError               a log file that cannot be right
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
    │ │ └ ConcurrentWriteException      the version was taken again and again: retries exhausted
    │ ├ CommitStateUnknownError         .txn_id: neither landed nor failed can be shown
    │ └ CommittedError                  it landed; what was to follow in the same statement failed
    ├ StreamStoppedError                its kinds are in pydelta.commands.stream.errors
    ├ ChangeDataNotRecordedError        a version of the range asked for has no change data feed
    ├ UnsafeOperationError              e.g. removing rows from an append-only table
    │ └ CannotVacuumLiteError           the log no longer tells what to delete
    ├ RowsDoNotAddUpError               a command's own counts contradict each other: nothing was committed
    ├ DeltaEnvironmentError                 a session or machine that lacks what the engine needs
    └ CatalogSyncError                the metastore; its kinds are in catalog_sync.errors

What an error is called, ``code``, is its condition: that of the place that raised it (``condition=Condition.of(…)``),
or else that of its class. ``pydelta.errors.conditions`` has the SQLSTATE of each.

What a caller may do, by class:

====================================  =========  ===========================================
error                                 retryable  meaning
====================================  =========  ===========================================
DeltaConcurrentModificationException  yes        nothing was written to the log; run it again
CommitStateUnknownError               no         look for ``txn_id`` in the history first
CommittedError                        no         it is done; look at the history before running it again
StorageError                          varies     ``retryable`` says
everything else                       no         the input or the table has to change first
====================================  =========  ===========================================

Exit codes, of every command and job; ``exit_code`` is 1, 2 or 3:

=  ================================================================================
0  done, also when there was nothing to do
1  the input or the table has to change first
2  ``retryable``: nothing is lost, run it again
3  the outcome is unknown: look at the history first
4  a check found something wrong; no error, so no class has it
=  ================================================================================

``pydelta`` and ``catalog_sync`` say 2 for flags that they do not know, too, as command lines do; jobs say 1.
``pydelta certify`` has codes of its own: 1 a promise was broken, 2 nothing can be said.
"""

from pydelta.errors.tree import *  # noqa: F403 - all of its __all__, which stands there alone
from pydelta.errors.tree import __all__ as __all__
