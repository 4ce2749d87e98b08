"""Talk to the Hive Metastore over Thrift, with entries as values, partitions in batches and this package's errors.

Supports Hive 2.3, 3.1 and 4.0. Nothing here makes the metastore list a directory or gather statistics, and nothing
deletes data.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

from catalog_sync.diff import FoundPartition, FoundTable
from catalog_sync.errors import MetastoreError, MetastoreUnavailableError, TooLongToWaitError
from catalog_sync.thrift.address import ENVIRONMENT, MetastoreAddress
from catalog_sync.thrift.sasl import KerberosRefusal
from catalog_sync.thrift.transport import transport_to
from catalog_sync.thrift.unanswered import has_entry, has_partitions
from catalog_sync.twin import NOT_READABLE_KEY, VERSION_KEY, WITHDRAWN_KEY, HiveColumn, Twin
from pydelta.errors import DeltaEnvironmentError, first_line
from pydelta.manifests import values_of_directory
from pydelta.protocol.partitions import HIVE_NULL, hive_escape
from pydelta.settings.clock import Deadline
from pydelta.storage.backoff import Backoff

__all__ = ["ENVIRONMENT", "Metastore", "MetastoreAddress"]

BATCH: Final = 1000
"""Partitions per call: the number that the metastore's databases take in one statement."""
_TRIES: Final = 4
_BACKOFF: Final = Backoff(first_ms=500, jitter=0)
_INPUT: Final = "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
_SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_NO_STATISTICS: Final = {"DO_NOT_UPDATE_STATS": "true", "hive.stats.autogather": "false"}

T = TypeVar("T")


class Metastore:
    """A connection to a metastore, used as a context manager. Not safe to use from several threads at once.

    Every method raises ``MetastoreUnavailableError`` if no address answers after several tries, and ``MetastoreError``
    if the metastore refuses.

    Args:
        address: Address of the metastore.
        deadline: Deadline of all calls together, including pauses between tries, or None without one.
        sleep: Sleeps for a number of seconds.
        clock: Monotonic clock in seconds, for the timeout of a call.
    """

    def __init__(
        self,
        address: MetastoreAddress,
        *,
        deadline: Deadline | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self.deadline = deadline or Deadline(None)
        self.calls: list[str] = []
        self.unsettled = False
        """Whether a change was sent and its reply was lost. It may still take effect, even after later changes."""
        self.lacks_locks = False
        """Whether the metastore has refused a lock, see ``table_lock``."""
        self._sleep = sleep
        self._clock = clock
        self._answer_by = Deadline(None)
        self._transport: Any = None
        self._client: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        if self._transport is not None:
            self._transport.close()
        self._transport = self._client = None

    # --- tables --------------------------------------------------------------------------------------------

    def table(self, database: str, name: str) -> Any:
        """Return the Thrift entry, or None."""
        types = _types()
        request = types.GetTableRequest(dbName=database, tblName=name)  # Hive 4 has get_table only in this form.
        try:
            return self._call("get_table_req", request).table
        except types.NoSuchObjectException:
            return None

    def tables(self, database: str) -> Iterator[Any]:
        """Yield all entries of a database, read in batches.

        Raises:
            MetastoreError: The database does not exist.
        """
        types = _types()
        try:
            names = self._call("get_all_tables", database)
        except types.NoSuchObjectException:
            names = []
        if not names and not self.database_exists(database):
            raise MetastoreError(f"The metastore has no database {database!r}.", hint="Check the name.")
        for batch in _batches(sorted(names)):
            request = types.GetTablesRequest(dbName=database, tblNames=list(batch))
            yield from self._call("get_table_objects_by_name_req", request).tables

    def databases(self) -> list[str]:
        """Return the sorted names of all databases."""
        found: list[str] = self._call("get_all_databases")
        return sorted(found)

    def database_location(self, database: str) -> str | None:
        """Return the default location of a database's tables, or None if the database does not exist."""
        types = _types()
        try:
            return str(self._call("get_database", database).locationUri)
        except types.NoSuchObjectException:
            return None

    def database_exists(self, database: str) -> bool:
        """Return whether a database exists."""
        types = _types()
        try:
            self._call("get_database", database)
        except types.NoSuchObjectException:
            return False
        return True

    def create_database(self, database: str, location: str) -> None:
        """Create a database, unless it exists."""
        types = _types()
        entry = types.Database(name=database, locationUri=location, parameters={})
        try:
            self._call("create_database", entry)
        except types.AlreadyExistsException:
            return

    def create(self, entry: Any) -> None:
        """Create a table. One that already exists is an error, since another program may own it."""
        types = _types()
        try:
            self._call("create_table", entry, landed=lambda: self._has(entry))
        except types.AlreadyExistsException as error:
            raise MetastoreError(
                f"{entry.dbName}.{entry.tableName} was created by another program.", hint="Run it again."
            ) from error

    def alter(
        self, entry: Any, *, cascade: bool = False, partitions: int = 0, expected: tuple[str, str] | None = None
    ) -> None:
        """Replace an entry.

        Args:
            entry: New entry.
            cascade: Give its partitions the same columns.
            partitions: Number of its partitions. With more partitions, the call waits longer for the answer.
            expected: A parameter and the value that it must still have, or None for a change in any case. Hive 2.3.10
                and 4.0 check it within the change, 3.1 ignores it.

        Raises:
            TooLongToWaitError: Nothing was sent, since the caller may not wait that long.
        """
        if cascade and partitions > BATCH and self.deadline.seconds is not None:
            raise TooLongToWaitError(
                f"The columns of {entry.dbName}.{entry.tableName} change in {partitions:,} partitions, which takes the "
                f"metastore longer than the {self.deadline.seconds:g} s available.",
                hint="Run catalog_sync sync, which waits for as long as it takes.",
            )
        parameters = dict(_NO_STATISTICS) | ({"CASCADE": "true"} if cascade else {})
        if expected is not None:
            parameters |= {"expected_parameter_key": expected[0], "expected_parameter_value": expected[1]}
        context = _types().EnvironmentContext(properties=parameters)
        verb = "alter_table_with_environment_context"
        self._call(
            verb, entry.dbName, entry.tableName, entry, context, size=partitions, landed=lambda: self._has(entry)
        )

    def _has(self, entry: Any) -> bool:
        return has_entry(self.table(entry.dbName, entry.tableName), entry)

    def drop(self, database: str, name: str) -> None:
        """Drop an entry but not its data."""
        types = _types()
        try:
            self._call("drop_table", database, name, False, landed=lambda: self.table(database, name) is None)
        except types.NoSuchObjectException:
            return

    # --- locks ---------------------------------------------------------------------------------------------

    def lock_table(self, database: str, name: str, *, user: str, host: str) -> tuple[int, str]:
        """Ask for the exclusive lock of a table, once. Returns its number and its state, such as ``WAITING``."""
        types = _types()
        part = types.LockComponent(
            type=types.LockType.EXCLUSIVE, level=types.LockLevel.TABLE, dbname=database, tablename=name
        )
        found = self._call("lock", types.LockRequest(component=[part], user=user, hostname=host), tries=1)
        return int(found.lockid), str(types.LockState._VALUES_TO_NAMES[found.state])

    def lock_state(self, number: int) -> str:
        """Return the state of a lock."""
        types = _types()
        found = self._call("check_lock", types.CheckLockRequest(lockid=number))
        return str(types.LockState._VALUES_TO_NAMES[found.state])

    def unlock_table(self, number: int) -> None:
        """Release a lock."""
        self._call("unlock", _types().UnlockRequest(lockid=number))

    # --- partitions ----------------------------------------------------------------------------------------

    def partition_names(self, database: str, name: str) -> list[str]:
        """Return the names of all partitions, as the metastore spells them."""
        found: list[str] = self._call("get_partition_names", database, name, -1)
        return found

    def partitions(self, database: str, name: str, names: Sequence[str]) -> list[Any]:
        """Return partitions by name, in batches."""
        found: list[Any] = []
        for batch in _batches(names):
            found += self._call("get_partitions_by_names", database, name, list(batch))
        return found

    def add_partitions(self, database: str, name: str, partitions: Sequence[Any]) -> None:
        """Add partitions in batches. Existing ones stay unchanged."""
        types = _types()
        for batch in _batches(partitions):
            request = types.AddPartitionsRequest(
                dbName=database, tblName=name, parts=list(batch), ifNotExists=True, needResult=False
            )
            self._call(
                "add_partitions_req",
                request,
                size=len(batch),
                landed=lambda batch=batch: self._has_partitions(database, name, batch, as_told=False),  # type: ignore[misc]
            )

    def alter_partitions(self, database: str, name: str, partitions: Sequence[Any], *, at_once: bool = False) -> None:
        """Replace partitions in batches, or with ``at_once`` in one call, which is one transaction of the metastore."""
        context = _types().EnvironmentContext(properties=dict(_NO_STATISTICS))
        for batch in [partitions] if at_once and partitions else _batches(partitions):
            self._call(
                "alter_partitions_with_environment_context",
                database,
                name,
                list(batch),
                context,
                size=len(batch),
                landed=lambda batch=batch: self._has_partitions(database, name, batch, as_told=True),  # type: ignore[misc]
            )

    def _has_partitions(self, database: str, name: str, told: Sequence[Any], *, as_told: bool) -> bool:
        entry = self.table(database, name)
        keys = [key.name for key in entry.partitionKeys] if entry is not None else []
        names = ["/".join(map(_named, keys, part.values)) for part in told]
        return has_partitions(self.partitions(database, name, names), told, as_told=as_told)

    def drop_partitions(self, database: str, name: str, names: Sequence[str]) -> None:
        """Drop partitions by directory, in batches. Their data stays, and missing partitions are not an error."""
        types = _types()
        for batch in _batches([hive_name(directory) for directory in names]):
            request = types.DropPartitionsRequest(
                dbName=database,
                tblName=name,
                parts=types.RequestPartsSpec(names=list(batch)),
                deleteData=False,
                ifExists=True,
                needResult=False,
            )
            try:
                self._call(
                    "drop_partitions_req",
                    request,
                    size=len(batch),
                    landed=lambda batch=batch: not self.partitions(database, name, batch),  # type: ignore[misc]
                )
            except types.NoSuchObjectException:  # One was missing, and the metastore dropped none.
                left = [item for item in batch if item in set(self.partition_names(database, name))]
                if left:
                    self.drop_partitions(database, name, left)

    # --- connection and calls ------------------------------------------------------------------------------

    def _call(
        self, verb: str, *arguments: Any, size: int = 0, landed: Callable[[], bool] | None = None, tries: int = _TRIES
    ) -> Any:
        """Run a call of the Thrift interface.

        A broken connection is opened again, and the call repeated. After an unanswered change, the metastore is first
        asked whether the change took effect. A change that timed out is never sent again, since it may still be
        running.

        Args:
            verb: Name of the call.
            arguments: Thrift arguments.
            size: Number of partitions in the call. The answer may take one more timeout for each batch of them.
            landed: Whether the change took effect, or None for a call that changes nothing.
            tries: Maximum number of tries.
        """
        from thrift.Thrift import TApplicationException, TException
        from thrift.transport.TTransport import TTransportException

        types = _types()
        last: Exception | None = None
        tried = 0
        for attempt in range(tries):
            pause = _BACKOFF.seconds(attempt)
            if self.deadline.remaining() <= pause:
                break
            if attempt:
                self._sleep(pause)
            patience = self.address.timeout_seconds * (1 + size / BATCH)
            tried += 1
            sent = False
            try:
                self._answer_by = Deadline(self.address.timeout_seconds, clock=self._clock)
                client = self._connected()
                self._answer_by = Deadline(patience, clock=self._clock)
                self.calls.append(verb)
                sent = True
                return getattr(client, verb)(*arguments)
            except (TTransportException, OSError) as error:
                cause = getattr(error, "inner", None)
                last = cause if isinstance(cause, Exception) else error
                self.close()
                if isinstance(last, ssl.SSLCertVerificationError):
                    raise MetastoreError(
                        f"The certificate of the metastore at {self.address} is not trusted: {last.verify_message}.",
                        hint="Name the file of certificates to trust (--ca), and use the certificate's host name.",
                    ) from error
                if sent and landed is not None:
                    before, self.unsettled = self.unsettled, True
                    if self._settled(verb, landed, patience, late=_is_late(error, last)):
                        self.unsettled = before
                        return None
            except (types.NoSuchObjectException, types.AlreadyExistsException):
                raise
            except types.MetaException as error:
                raise self._refused(verb, error.message or "") from error
            except TApplicationException as error:
                raise MetastoreError(
                    f"The metastore at {self.address} does not know the call {verb}: {error.message}.",
                    hint="It is older than Hive 2.3, or not a Hive Metastore.",
                ) from error
            except TException as error:
                raise self._refused(verb, str(getattr(error, "message", None) or error)) from error
        why = f" ({type(last).__name__}: {last})" if last is not None else ""
        limit = "" if self.deadline.seconds is None else f" within the {self.deadline.seconds:g} s available"
        raise MetastoreUnavailableError(
            f"The metastore at {self.address} does not answer{limit}{why}; times tried: {tried}.",
            hint="Check that it runs and that the address is right, then run it again: nothing is lost.",
        ) from last

    def _settled(self, verb: str, landed: Callable[[], bool], waited: float, *, late: bool) -> bool:
        """Return whether an unanswered change took effect. If False, it may be sent again.

        Raises:
            MetastoreUnavailableError: It timed out and has not taken effect: it may still be running.
        """
        for attempt in range(_TRIES if late else 1):
            if attempt:
                self._sleep(_BACKOFF.seconds(attempt))
            if landed():
                return True
        if late:
            raise MetastoreUnavailableError(
                f"The metastore at {self.address} has not answered {verb} within {waited:.0f} s, and the change is "
                f"not there yet: it may still be in progress.",
                hint="Check its load, and run this again later: changes that have taken effect are not repeated.",
            )
        return False

    def _budget(self) -> float:
        """Return how many seconds the next wait on the connection may take."""
        left = min(self._answer_by.remaining(), self.deadline.remaining())
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left

    def _refused(self, verb: str, message: str) -> MetastoreError:
        first = first_line(message) or "no reason given"
        hint = "The metastore's own log says more."
        if "Master Kerberos principal" in message:
            hint = (
                "The metastore sees no yarn-site.xml, which names the renewer: put core-site.xml, hdfs-site.xml and "
                "yarn-site.xml into its HADOOP_CONF_DIR and restart it. Where Presto says so, hive.config.resources "
                "in its catalog file has to name the three."
            )
        return MetastoreError(f"The metastore refused {verb}: {first}", hint=hint)

    def _connected(self) -> Any:
        if self._client is not None:
            return self._client
        from pymetastore.hive_metastore import ThriftHiveMetastore
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport.TTransport import TTransportException

        last: Exception | None = None
        for host, port in self.address.hosts:
            try:
                transport = self._transport_to(host, port)
                transport.open()
            except KerberosRefusal as error:
                raise MetastoreError(
                    f"Kerberos refused access to the metastore at {host}:{port}: {error}.",
                    hint="Check with klist that there is a ticket (kinit, or KRB5_CLIENT_KTNAME for a keytab), that "
                    f"{self.address.kerberos_service}/{host} is a principal of the realm, and that the clocks agree.",
                ) from error
            except (TTransportException, OSError) as error:
                last = error
                continue
            self._transport = transport
            self._client = ThriftHiveMetastore.Client(TBinaryProtocol(transport))
            return self._client
        assert last is not None
        raise last

    def _transport_to(self, host: str, port: int) -> Any:
        address = self.address
        return transport_to(
            host,
            port,
            budget=self._budget,
            tls=address.tls,
            ca_file=address.ca_file,
            kerberos_service=address.kerberos_service,
        )


def _is_late(error: Exception, cause: Exception | None) -> bool:
    """Return whether the call timed out, rather than the connection broke."""
    from thrift.transport.TTransport import TTransportException

    timed_out = isinstance(error, TTransportException) and error.type == TTransportException.TIMED_OUT
    return timed_out or isinstance(error, TimeoutError) or isinstance(cause, TimeoutError)


def _named(key: str, value: str) -> str:
    return f"{key}={value if value == HIVE_NULL else hive_escape(value)}"


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def _types() -> Any:
    try:
        from pymetastore.hive_metastore import ttypes
    except ImportError as error:
        raise DeltaEnvironmentError(
            "The metastore's client is not installed.", hint="Install the extra: pip install '.[sync]'"
        ) from error
    return ttypes


# --- values <-> Thrift -------------------------------------------------------------------------------------


def found_table(entry: Any) -> FoundTable:
    """Convert a Thrift entry to a value."""
    return FoundTable(
        location=_location(entry.sd.location),
        columns=_columns(entry.sd.cols),
        partition_columns=_columns(entry.partitionKeys or ()),
        parameters=dict(entry.parameters or {}),
    )


def is_symlink(entry: Any) -> bool:
    """Return whether readers of an entry take its files from manifests."""
    return entry.sd is not None and entry.sd.inputFormat == _INPUT


def _location(text: str | None) -> str:
    """Return a location in this project's spelling: the metastore writes ``file:/x`` for ``file:///x``."""
    found = (text or "").rstrip("/")
    return f"file:///{found.removeprefix('file:').lstrip('/')}" if found.startswith("file:") else found


def _columns(schemas: Iterable[Any]) -> tuple[HiveColumn, ...]:
    return tuple(HiveColumn(name=item.name, type=item.type, comment=item.comment or None) for item in schemas)


def found_partition(entry: Any, keys: Sequence[str]) -> FoundPartition:
    """Convert a Thrift partition to a value, with the directory in this project's spelling.

    Args:
        entry: Thrift partition.
        keys: The partition columns as the table spells them. The metastore has them in lower case.
    """
    values = zip(keys, entry.values, strict=True)
    directory = "/".join(
        f"{hive_escape(key)}={value if value == HIVE_NULL else hive_escape(value)}" for key, value in values
    )
    return FoundPartition(
        directory=directory,
        location=_location(entry.sd.location),
        ours=VERSION_KEY in (entry.parameters or {}),
    )


def table_entry(twin: Twin, database: str, name: str, *, parameters: Mapping[str, str], before: Any = None) -> Any:
    """Build the twin's entry. Parameters of ``before`` that this package does not own are kept."""
    kept = kept_parameters(before)
    if before is not None and WITHDRAWN_KEY in (before.parameters or {}) and WITHDRAWN_KEY not in parameters:
        kept.pop(NOT_READABLE_KEY, None)
    comment = {"comment": twin.comment} if twin.comment else {}
    return external_table(
        database,
        name,
        parameters=kept | comment | dict(parameters),
        partition_keys=[_schema(column) for column in twin.partition_columns],
        storage=_storage(twin, twin.location),
        before=before,
    )


def kept_parameters(before: Any, *owned: str) -> dict[str, str]:
    """Return the parameters of an entry that this package does not own; those named are owned too."""
    ours = {"comment", "transient_lastDdlTime", *owned}
    found = (before.parameters or {}) if before is not None else {}
    return {key: value for key, value in found.items() if not key.startswith("pydelta.") and key not in ours}


def external_table(
    database: str,
    name: str,
    *,
    parameters: Mapping[str, str],
    storage: Any,
    partition_keys: Sequence[Any] = (),
    before: Any = None,
) -> Any:
    """Build the entry of an external table whose files stay when it is dropped. It keeps the owner of ``before``."""
    return _types().Table(
        tableName=name,
        dbName=database,
        owner=before.owner if before is not None else "pydelta",
        createTime=before.createTime if before is not None else int(time.time()),
        lastAccessTime=0,
        retention=0,
        tableType="EXTERNAL_TABLE",
        parameters={**parameters, "EXTERNAL": "TRUE", "external.table.purge": "false"},
        partitionKeys=list(partition_keys),
        sd=storage,
    )


def partition_entry(twin: Twin, database: str, name: str, directory: str, *, location: str | None = None) -> Any:
    """Build a partition of the twin."""
    types = _types()
    values = {key.lower(): value for key, value in values_of_directory(directory).items()}
    now = int(time.time())
    return types.Partition(
        dbName=database,
        tableName=name,
        values=[HIVE_NULL if (value := values[column.name]) is None else value for column in twin.partition_columns],
        createTime=now,
        lastAccessTime=0,
        sd=_storage(twin, location or twin.partition_location(directory)),
        parameters={VERSION_KEY: str(twin.version)} | _NO_STATISTICS,
    )


def hive_name(directory: str) -> str:
    """Return the metastore's name of a partition directory, which has the columns in lower case."""
    parts = (part.partition("=") for part in directory.split("/"))
    return "/".join(f"{key.lower()}={value}" for key, _, value in parts)


def _schema(column: HiveColumn) -> Any:
    return _types().FieldSchema(name=column.name, type=column.type, comment=column.comment)


def _storage(twin: Twin, location: str) -> Any:
    types = _types()
    return types.StorageDescriptor(
        cols=[_schema(column) for column in twin.columns],
        location=location,
        inputFormat=_INPUT,
        outputFormat=_OUTPUT,
        compressed=False,
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(serializationLib=_SERDE, parameters={"serialization.format": "1"}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
