"""Hive Metastore over Thrift: entries as values, partitions in batches, errors in the words of this project.

Speaks to Hive 2.3, 3.1 and 4.0. Nothing here makes the metastore list a directory or gather statistics, and nothing
deletes data.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from catalog_sync.diff import FoundPartition, FoundTable
from catalog_sync.errors import MetastoreError, MetastoreUnavailableError
from catalog_sync.transport import transport_to
from catalog_sync.twin import VERSION_KEY, HiveColumn, Twin
from pydelta.deadline import Deadline
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.manifests import values_of_directory
from pydelta.protocol.partitions import HIVE_NULL, hive_escape

__all__ = ["ENVIRONMENT", "Metastore", "MetastoreAddress"]

ENVIRONMENT: Final = "PYDELTA_METASTORE"
BATCH: Final = 1000
"""Partitions in one call: what the metastore's databases take in one statement."""
_TRIES: Final = 4
_PAUSE_SECONDS: Final = 0.5
_INPUT: Final = "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
_SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_NO_STATISTICS: Final = {"DO_NOT_UPDATE_STATS": "true", "hive.stats.autogather": "false"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetastoreAddress:
    """Where a metastore is and how to speak to it.

    Args:
        hosts: Host and port of each, tried in turn.
        tls: Speak TLS (``metastore.use.SSL`` on the other side).
        ca_file: Certificates to trust, PEM; None for the system's.
        kerberos_service: First part of the metastore's principal (``hive`` of ``hive/_HOST@REALM``), to authenticate
            with the ticket of this user; None without Kerberos. Needs the extra ``kerberos``; hosts by the names
            that their principals have.
        timeout_seconds: For each call, from connecting to the last byte of its answer.
    """

    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    ca_file: str | None = None
    kerberos_service: str | None = None
    timeout_seconds: float = 60.0

    @classmethod
    def parse(
        cls,
        uris: str | None,
        *,
        tls: bool = False,
        ca_file: str | None = None,
        kerberos_service: str | None = None,
        timeout_seconds: float = 60.0,
    ) -> MetastoreAddress:
        """Read ``thrift://host:9083[,thrift://other:9083]``; None for what ``PYDELTA_METASTORE`` says.

        Raises:
            InvalidArgumentError: No address, or one that cannot be read.
        """
        text = uris or os.environ.get(ENVIRONMENT) or ""
        hosts = []
        for uri in filter(None, (part.strip() for part in text.split(","))):
            host, colon, port = uri.removeprefix("thrift://").rstrip("/").rpartition(":")
            if not colon or not host or not port.isdigit() or "/" in host:
                raise InvalidArgumentError(
                    f"{uri!r} is no address of a metastore.", hint="Write it as thrift://host:9083."
                )
            hosts.append((host, int(port)))
        if not hosts:
            raise InvalidArgumentError(
                "The address of the metastore is not known.",
                hint=f"Give --metastore thrift://host:9083, or set {ENVIRONMENT}.",
            )
        return cls(
            hosts=tuple(hosts),
            tls=tls,
            ca_file=ca_file,
            kerberos_service=kerberos_service,
            timeout_seconds=timeout_seconds,
        )

    def __str__(self) -> str:
        return ",".join(f"thrift://{host}:{port}" for host, port in self.hosts)


class Metastore:
    """A connection to a metastore; use it as a context manager. Not for use by several threads at once.

    Every method raises ``MetastoreUnavailableError`` when no address answers after several tries, and
    ``MetastoreError`` for what the metastore refuses.

    Args:
        address: Where it is.
        deadline: Of all calls together, pauses between tries included; None without one.
        sleep: Pauses.
        clock: Seconds that only grow, for the time-out of a call.
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
        """Close the connection; the next call opens another."""
        if self._transport is not None:
            self._transport.close()
        self._transport = self._client = None

    # --- tables --------------------------------------------------------------------------------------------

    def table(self, database: str, name: str) -> Any:
        """The entry as Thrift has it, or None."""
        types = _types()
        request = types.GetTableRequest(dbName=database, tblName=name)  # Hive 4 knows get_table in this form alone
        try:
            return self._call("get_table_req", request).table
        except types.NoSuchObjectException:
            return None

    def tables(self, database: str) -> Iterator[Any]:
        """All entries of a database, in batches.

        Raises:
            MetastoreError: There is no such database.
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
        """Names of all databases, in order."""
        found: list[str] = self._call("get_all_databases")
        return sorted(found)

    def database_location(self, database: str) -> str | None:
        """Where the tables of a database are by default; None when there is no such database."""
        types = _types()
        try:
            return str(self._call("get_database", database).locationUri)
        except types.NoSuchObjectException:
            return None

    def database_exists(self, database: str) -> bool:
        """Whether there is such a database."""
        types = _types()
        try:
            self._call("get_database", database)
        except types.NoSuchObjectException:
            return False
        return True

    def create_database(self, database: str, location: str) -> None:
        """Create a database; one that is there stays as it is."""
        types = _types()
        entry = types.Database(name=database, locationUri=location, parameters={})
        try:
            self._call("create_database", entry)
        except types.AlreadyExistsException:
            return

    def create(self, entry: Any) -> None:
        """Create a table. One that appeared meanwhile is an error, since it may be somebody else's."""
        types = _types()
        try:
            self._call("create_table", entry)
        except types.AlreadyExistsException as error:
            raise MetastoreError(
                f"{entry.dbName}.{entry.tableName} was created by somebody else meanwhile.", hint="Run it again."
            ) from error

    def alter(self, entry: Any, *, cascade: bool = False) -> None:
        """Replace an entry; with ``cascade`` the columns of its partitions too."""
        parameters = dict(_NO_STATISTICS) | ({"CASCADE": "true"} if cascade else {})
        context = _types().EnvironmentContext(properties=parameters)
        self._call("alter_table_with_environment_context", entry.dbName, entry.tableName, entry, context)

    def drop(self, database: str, name: str) -> None:
        """Drop an entry; its data stays."""
        types = _types()
        try:
            self._call("drop_table", database, name, False)
        except types.NoSuchObjectException:
            return

    # --- partitions ----------------------------------------------------------------------------------------

    def partition_names(self, database: str, name: str) -> list[str]:
        """Names of all partitions, as the metastore spells them."""
        found: list[str] = self._call("get_partition_names", database, name, -1)
        return found

    def partitions(self, database: str, name: str, names: Sequence[str]) -> list[Any]:
        """Partitions by name, in batches."""
        found: list[Any] = []
        for batch in _batches(names):
            found += self._call("get_partitions_by_names", database, name, list(batch))
        return found

    def add_partitions(self, database: str, name: str, partitions: Sequence[Any]) -> None:
        """Add partitions, in batches; those that are there stay as they are."""
        types = _types()
        for batch in _batches(partitions):
            request = types.AddPartitionsRequest(
                dbName=database, tblName=name, parts=list(batch), ifNotExists=True, needResult=False
            )
            self._call("add_partitions_req", request)

    def alter_partitions(self, database: str, name: str, partitions: Sequence[Any], *, at_once: bool = False) -> None:
        """Replace partitions, in batches; ``at_once`` in one call, which is one transaction of the metastore."""
        context = _types().EnvironmentContext(properties=dict(_NO_STATISTICS))
        for batch in [partitions] if at_once and partitions else _batches(partitions):
            verb = "alter_partitions_with_environment_context"
            self._call(verb, database, name, list(batch), context, patience=1 + len(batch) // BATCH)

    def drop_partitions(self, database: str, name: str, names: Sequence[str]) -> None:
        """Drop partitions by directory, in batches; their data stays, and those that are not there are no error."""
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
                self._call("drop_partitions_req", request)
            except types.NoSuchObjectException:  # one of them is gone, and the metastore dropped none
                left = [item for item in batch if item in set(self.partition_names(database, name))]
                if left:
                    self.drop_partitions(database, name, left)

    # --- the wire ------------------------------------------------------------------------------------------

    def _call(self, verb: str, *arguments: Any, patience: int = 1) -> Any:
        """Run a call of the Thrift interface.

        A connection that broke is opened again, and the call repeated: every call here can be, without harm.

        Args:
            verb: Its name.
            arguments: As Thrift has them.
            patience: How many times the usual timeout the answer may take.
        """
        from thrift.Thrift import TApplicationException, TException
        from thrift.transport.TTransport import TTransportException

        types = _types()
        last: Exception | None = None
        tries = 0
        for attempt in range(_TRIES):
            pause = _PAUSE_SECONDS * 2 ** (attempt - 1) if attempt else 0.0
            if self.deadline.remaining() <= pause:
                break
            if attempt:
                self._sleep(pause)
            self._answer_by = Deadline(self.address.timeout_seconds * patience, clock=self._clock)
            tries += 1
            try:
                client = self._connected()
                self.calls.append(verb)
                return getattr(client, verb)(*arguments)
            except (TTransportException, OSError) as error:
                cause = getattr(error, "inner", None)
                last = cause if isinstance(cause, Exception) else error
                self.close()
                if isinstance(last, ssl.SSLCertVerificationError):
                    raise MetastoreError(
                        f"The certificate of the metastore at {self.address} is not trusted: {last.verify_message}.",
                        hint="Name the file of the certificates to trust (--ca), and the host as the certificate does.",
                    ) from error
            except (types.NoSuchObjectException, types.AlreadyExistsException):
                raise
            except types.MetaException as error:
                raise self._refused(verb, error.message or "") from error
            except TApplicationException as error:
                raise MetastoreError(
                    f"The metastore at {self.address} does not know the call {verb}: {error.message}.",
                    hint="It is older than Hive 2.3, or no Hive Metastore.",
                ) from error
            except TException as error:
                raise self._refused(verb, str(getattr(error, "message", None) or error)) from error
        why = f" ({type(last).__name__}: {last})" if last is not None else ""
        limit = "" if self.deadline.seconds is None else f" within the {self.deadline.seconds:g} s there were for it"
        raise MetastoreUnavailableError(
            f"The metastore at {self.address} does not answer{limit}{why}; times tried: {tries}.",
            hint="Check that it runs and that the address is right, then run it again: nothing is lost.",
        ) from last

    def _budget(self) -> float:
        """Seconds that the next wait on the wire may take."""
        left = min(self._answer_by.remaining(), self.deadline.remaining())
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left

    def _refused(self, verb: str, message: str) -> MetastoreError:
        first = message.strip().splitlines()[0] if message.strip() else "no reason given"
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
        refusals = _kerberos_errors() if self.address.kerberos_service is not None else ()
        for host, port in self.address.hosts:
            try:
                transport = self._transport_to(host, port)
                transport.open()
            except refusals as error:
                raise MetastoreError(
                    f"Kerberos gives no access to the metastore at {host}:{port}: {_kerberos_words(error)}.",
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


def _kerberos_errors() -> tuple[type[Exception], ...]:
    """What the packages of Kerberos raise.

    Raises:
        DeltaEnvironmentError: They are not installed.
    """
    try:
        from kerberos import KrbError
        from puresasl import SASLError
    except ImportError as error:
        raise DeltaEnvironmentError(
            "Kerberos needs packages that are not installed.",
            hint="pip install pure-sasl kerberos (the second is compiled: apt-get install gcc libkrb5-dev first).",
        ) from error
    return KrbError, SASLError


def _kerberos_words(error: Exception) -> str:
    """The reason among the nested pairs of text and number that the library raises."""
    words: list[str] = []

    def gather(item: object) -> None:
        if isinstance(item, tuple | list):
            for part in item:
                gather(part)
        elif isinstance(item, str):
            words.append(item.strip().rstrip("."))

    gather(error.args)
    return "; ".join(filter(None, words)) or type(error).__name__


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
    """An entry as a value."""
    return FoundTable(
        location=_location(entry.sd.location),
        columns=_columns(entry.sd.cols),
        partition_columns=_columns(entry.partitionKeys or ()),
        parameters=dict(entry.parameters or {}),
        table_type=entry.tableType or "",
    )


def _location(text: str | None) -> str:
    """A location in this project's spelling: the metastore writes ``file:/x`` for ``file:///x``."""
    found = (text or "").rstrip("/")
    return f"file:///{found.removeprefix('file:').lstrip('/')}" if found.startswith("file:") else found


def _columns(schemas: Iterable[Any]) -> tuple[HiveColumn, ...]:
    return tuple(HiveColumn(name=item.name, type=item.type, comment=item.comment or None) for item in schemas)


def found_partition(entry: Any, keys: Sequence[str]) -> FoundPartition:
    """A partition as a value, its directory in this project's spelling.

    Args:
        entry: As Thrift has it.
        keys: The partition columns as the table spells them; the metastore has them in lower case.
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
    """The twin's entry; what is not ours in the parameters of ``before`` stays."""
    types = _types()
    kept = {
        key: value
        for key, value in ((before.parameters or {}) if before is not None else {}).items()
        if not key.startswith("pydelta.") and key not in ("comment", "transient_lastDdlTime")
    }
    fixed = {"EXTERNAL": "TRUE", "external.table.purge": "false"} | ({"comment": twin.comment} if twin.comment else {})
    return types.Table(
        tableName=name,
        dbName=database,
        owner=before.owner if before is not None else "pydelta",
        createTime=before.createTime if before is not None else int(time.time()),
        lastAccessTime=0,
        retention=0,
        tableType="EXTERNAL_TABLE",
        parameters=kept | fixed | dict(parameters),
        partitionKeys=[_schema(column) for column in twin.partition_columns],
        sd=_storage(twin, twin.location),
    )


def partition_entry(twin: Twin, database: str, name: str, directory: str, *, location: str | None = None) -> Any:
    """A partition of the twin."""
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
    """A partition directory -> the metastore's own name of the partition: its columns are in lower case."""
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
