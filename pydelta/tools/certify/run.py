"""Run a plan over a store and collect its history: check the place, create a table, run processes, read the log."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydelta.api.python.local import LocalTable
from pydelta.commands.create import Create, CreateMode, TableDefinition
from pydelta.commands.run import Context, run
from pydelta.errors import DeltaEnvironmentError, DeltaError, InvalidArgumentError, first_line
from pydelta.errors.redaction import hide_text
from pydelta.log import DeltaLog
from pydelta.protocol.paths import LOG_DIR, parse_log_name
from pydelta.protocol.types import PrimitiveType, StructField, StructType
from pydelta.storage import Store, normalize_uri, open_store
from pydelta.storage.probe import probe_put_if_absent
from pydelta.storage.uris import HERE, scheme_of
from pydelta.tools.certify.children import Crew, read_in_process
from pydelta.tools.certify.collect import LogWatcher, collect
from pydelta.tools.certify.delta_rs import read_with_delta_rs
from pydelta.tools.certify.history import SETUP, CertifyPlan, EngineRead, Event, History, acknowledged
from pydelta.tools.certify.local_worker import tuples_of
from pydelta.tools.certify.proxy import Proxy, endpoint_of, with_endpoint
from pydelta.tools.certify.trino import TrinoReader, TrinoTable
from pydelta.tools.certify.worker import WorkerOrder

__all__ = ["Ran", "Request", "check_place", "run_plan"]

_RACERS: Final = 64
_SAMPLES: Final = 4
"""Versions that other engines read in addition to the newest one."""
_RETENTION: Final = "delta.deletedFileRetentionDuration"
_SCHEMA: Final = StructType(
    tuple(
        StructField(name, PrimitiveType(kind))
        for name, kind in (("op", "string"), ("n", "long"), ("k", "long"), ("rev", "string"))
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A location to certify.

    Args:
        uri: An empty location.
        options: Options of its store. They may hold secrets.
        minutes: Time after which no operation begins.
        keep: Whether to keep the table.
        readers: Engines that read the table afterwards.
        trino: The Trino that reads and writes, if any.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    minutes: float = 1.0
    keep: bool = False
    readers: Sequence[str] = ()
    trino: TrinoReader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run: its history, the location of its table, and its faults."""

    history: History
    table: str
    faults: Counter[str]
    notes: tuple[str, ...] = ()


def check_place(uri: str, options: Mapping[str, str]) -> None:
    """Check that a location is empty.

    Raises:
        InvalidArgumentError: It is not empty; the message names one object.
        StorageError: The store does not answer.
    """
    found = next(iter(open_store(uri, options).list_all()), None)
    if found is not None:
        raise InvalidArgumentError(
            f"{uri} holds {found.path}, and pydelta certify needs an empty location.",
            hint="Name an empty or a new folder, in the same bucket or file system: it serves the trial just as well.",
        )


def run_plan(plan: CertifyPlan, request: Request) -> Ran:
    """Run a plan in a new folder below the location.

    Raises:
        DeltaError: The plan has invalid table properties.
        DeltaEnvironmentError: A process did not start.
        StorageError: The store does not answer.
    """
    root = f"{normalize_uri(request.uri)}/certify-{plan.seed}-{uuid.uuid4().hex[:8]}"
    with _folder(request, root):
        race = _race(open_store(root, request.options))
        if race:
            return Ran(history=History(race=race), table=root, faults=Counter())
        return _Run(plan, request, f"{root}/table").run()


@contextmanager
def _folder(request: Request, root: str) -> Iterator[None]:
    """Delete what a run made, and nothing else."""
    local = Path(HERE.path(root.removeprefix("file://"))) if scheme_of(root) == "file" else None
    made = local is not None and not local.parent.exists()
    try:
        yield
    finally:
        if not request.keep:
            if local is not None:
                shutil.rmtree(local, ignore_errors=True)
                if made:
                    with suppress(OSError):
                        local.parent.rmdir()
            else:
                store = open_store(root, request.options)
                store.delete_many([info.path for info in store.list_all()])


def _race(store: Store) -> str:
    result = probe_put_if_absent(store, writers=_RACERS)
    if result.safe:
        return ""
    stayed = "stayed" if result.kept and result.latecomer_refused else "did not stay"
    return (
        f"Of {_RACERS} writers that raced to create one object {result.created} were told that they succeeded, and "
        f"the first "
        f"one's bytes {stayed}. Nothing else was tried."
    )


class _Run:
    """A run on its own table."""

    def __init__(self, plan: CertifyPlan, request: Request, table: str) -> None:
        self._plan, self._request, self._table = plan, request, table
        self._options = dict(request.options)
        self._notes: list[str] = []

    def run(self) -> Ran:
        """Create the table, run the processes, and collect the history."""
        store = open_store(self._table, self._options)
        level = self._create(store)
        watcher = LogWatcher(store, self._options)
        watcher.start()
        try:
            events, faults = self._work()
        finally:
            watcher.stop()
        newest = max((event.version or 0 for event in acknowledged(events)), default=0)
        found = collect(store, watcher, newest)
        head = max((commit.version for commit in found.commits), default=0)
        history = History(
            level=level,
            events=events,
            commits=found.commits,
            lost=found.lost,
            unreadable=found.unreadable,
            reads=tuple(self._reads(store, head)),
            retention_seconds=self._plan.retention_seconds,
        )
        return Ran(history=history, table=self._table, faults=faults, notes=tuple(self._notes))

    def _create(self, store: Store) -> str:
        properties = {_RETENTION: f"interval {self._plan.retention_seconds} seconds", **self._plan.properties}
        log = DeltaLog(store, options=self._options)
        log.settings = replace(log.settings, user_metadata=SETUP)
        definition = TableDefinition(schema=_SCHEMA, properties=properties)
        run(Create(definition=definition, mode=CreateMode.CREATE), Context(log))
        metadata = log.update().metadata
        assert metadata is not None, "the table was made"
        return metadata.configuration.get("delta.isolationLevel", "Serializable")

    def _work(self) -> tuple[tuple[Event, ...], Counter[str]]:
        if not any(process.engine == "trino" for process in self._plan.processes):
            return self._crew(None)
        assert self._request.trino is not None, "the command asks for its address"
        table = self._request.trino.register(self._table)
        try:
            done = self._crew(table)
            table.settle()
            return done
        finally:
            table.forget()

    def _crew(self, trino: TrinoTable | None) -> tuple[tuple[Event, ...], Counter[str]]:
        endpoint = endpoint_of(self._table, self._options) if self._plan.proxy_faults else None
        if endpoint is None:
            crew = Crew(self._plan, self._table, self._options, trino)
            crew.run(self._request.minutes * 60)
            return crew.events, crew.faults
        with Proxy(endpoint, self._plan.seed) as proxy:
            crew = Crew(self._plan, self._table, with_endpoint(self._options, proxy.address), trino)
            crew.run(self._request.minutes * 60)
            return crew.events, crew.faults + proxy.faults

    # -- what engines read afterwards -------------------------------------------------------------------------------

    def _reads(self, store: Store, head: int) -> Iterator[EngineRead]:
        versions = sorted({head, *(head * place // _SAMPLES for place in range(1, _SAMPLES))})
        for version in sorted({head, *_checkpoints(store)[-_SAMPLES:]}):
            yield _own_read(store, self._options, version, how="checkpoint")
        for version in versions:
            yield _own_read(store, self._options, version, how="")
        for engine in self._request.readers:
            for version in versions if engine == "delta-rs" else [head]:
                yield self._read(engine, version)

    def _read(self, engine: str, version: int) -> EngineRead:
        try:
            if engine == "delta-rs":
                rows = read_with_delta_rs(self._table, self._options, version)
                return EngineRead(engine=engine, version=version, rows=rows)
            if engine == "trino" and self._request.trino is not None:
                return EngineRead(engine=engine, version=version, rows=self._request.trino.read(self._table))
        except DeltaEnvironmentError:
            raise
        except Exception as error:  # noqa: BLE001 - an engine that cannot read is a finding
            reason = hide_text(f"{type(error).__name__}: {first_line(error)}")
            return EngineRead(engine=engine, version=version, error=reason)
        order = WorkerOrder(uri=self._table, options=self._options, process=0, engine=engine, read_version=version)
        found, reason = read_in_process(order)
        return EngineRead(engine=engine, version=version, rows=found, error=reason)


def _own_read(store: Store, options: Mapping[str, str], version: int, *, how: str) -> EngineRead:
    """Read a version with this engine through a fresh log, and so through a checkpoint if there is one."""
    try:
        rows = tuples_of(LocalTable(DeltaLog(store, options=options)).scan(version=version))
        return EngineRead(engine="pydelta", version=version, rows=rows, how=how)
    except DeltaError as error:
        return EngineRead(engine="pydelta", version=version, error=first_line(error), how=how)


def _checkpoints(store: Store) -> list[int]:
    """List the versions that have a checkpoint, ascending."""
    names = [parse_log_name(info.path.rpartition("/")[2]) for info in store.list_from("", prefix=LOG_DIR)]
    return sorted({name.version for name in names if name is not None and "checkpoint" in name.kind.value})
