"""Write a checkpoint of a snapshot, read it back, compare it, and only then update ``_last_checkpoint``.

::

    classic:  N.checkpoint.parquet            state rows, adds, removes
    v2:       N.checkpoint.<uuid>.parquet     state rows, sidecar rows --> _sidecars/<uuid>.parquet  adds, removes
                                                                           some reused from the previous checkpoint
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.errors import InvalidArgumentError, LogCorruptedError, ObjectNotFoundError, StorageError
from pydelta.log.checkpoint.read import Checkpoint, read_checkpoint, sidecar_name
from pydelta.log.checkpoint.rows import STATE_TYPES, FileRows
from pydelta.log.checkpoint.sidecars import KeptSidecars, is_newest_but_for, kept_sidecars, settled_base
from pydelta.log.replay import State, apply_actions
from pydelta.log.segment import CheckpointFiles, Listing, read_listing
from pydelta.log.side_files import HINT_PATH, CheckpointHint, V2File, encode_hint, read_hint
from pydelta.log.snapshot import Snapshot
from pydelta.protocol.actions import action_to_dict
from pydelta.protocol.features import supports
from pydelta.protocol.paths import (
    LOG_DIR,
    SIDECAR_DIR,
    LogFileKind,
    checkpoint_file,
    parse_log_name,
    v2_checkpoint_file,
)
from pydelta.settings.values import parse_interval_ms
from pydelta.storage.interface import Store
from pydelta.storage.readers import read_all

__all__ = ["CheckpointResult", "write_checkpoint"]

SIDECAR_ACTIONS: Final = 50_000
_DAY_MS: Final = 86_400_000
_NEVER_MS: Final = (1 << 63) - 1
_TRUNCATES_TO: Final = "delta.dropFeatureTruncateHistory.retentionDuration"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResult:
    """The checkpoint that was written.

    Args:
        version: Version of the snapshot.
        name: Path of the checkpoint's main file.
        num_actions: Rows in all files.
        num_adds: Live files.
        num_removes: Tombstones kept.
        size_bytes: Bytes of all files.
        sidecars: Paths of the sidecar files.
        named_again: The number of sidecars, at the front, reused from an earlier checkpoint.
    """

    version: int
    name: str
    num_actions: int
    num_adds: int
    num_removes: int
    size_bytes: int
    sidecars: tuple[str, ...] = ()
    named_again: int = 0


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Counts rows and files while they are written."""

    adds: int = 0
    removes: int = 0
    main: str | None = None
    """The main file, set just before it may exist."""
    sidecars: list[str] = field(default_factory=list)


def write_checkpoint(
    store: Store,
    snapshot: Snapshot,
    *,
    now_ms: int | None = None,
    whole: bool = False,
    tombstones: bool = True,
) -> CheckpointResult:
    """Write the checkpoint of a snapshot. Beyond the core columns, memory use is independent of the number of files.

    Args:
        store: Bound to the table's root.
        snapshot: A snapshot of version 0 or later.
        now_ms: Current time for the expiry of tombstones, epoch milliseconds; None reads the clock.
        whole: Whether to write all sidecars instead of reusing unchanged ones.
        tombstones: Whether to write the tombstones that have not expired. Without them the versions before are given
            up. An existing checkpoint stays unchanged.

    Raises:
        LogCorruptedError: What was read back differs from the snapshot. The written files are deleted again.
        StorageError: The store failed, and ``_last_checkpoint`` is unchanged. A checkpoint that may exist is not
            deleted: it is complete, and another process may already have cleaned up the log behind it.

    Protocol: "Checkpoints", "Last Checkpoint File".
    """
    now = int(time.time() * 1000) if now_ms is None else now_ms
    existing = _existing(store, snapshot, now)
    if existing is not None:
        _point_at(store, existing)
        return existing
    snapshot.files.settle()  # Reading falls back to an older base here if this one is damaged.
    expired_ms = now - snapshot.properties.deleted_file_retention_ms if tombstones else _NEVER_MS
    rows = FileRows(snapshot=snapshot, expired_before_ms=expired_ms)
    kept = _kept(store, snapshot, rows, now) if _is_v2(snapshot) and not whole else None
    doubtful = None
    if kept is not None:
        try:
            result = _write_checked(store, snapshot, replace(rows, without=kept.parts), now, kept)
        except LogCorruptedError as error:
            _logger.warning("A whole checkpoint is written: %s", error.message, extra={"table": snapshot.table_uri})
        else:
            if is_newest_but_for(_listing(store, read_hint(store)), result.name, kept.named_by):
                _point_at(store, result)
                return result
            doubtful = result.name  # A clean-up may be deleting sidecars that it names.
    result = _write_checked(store, snapshot, rows, now, None)
    _point_at(store, result)
    if doubtful is not None:
        with suppress(StorageError):  # Its new sidecars are left to the clean-up, because a reader may be using them.
            store.delete_many([doubtful])
    return result


def _kept(store: Store, snapshot: Snapshot, rows: FileRows, now_ms: int) -> KeptSidecars | None:
    """Return the sidecars to reuse; None if there are none or if it is not certain that they stay."""
    base, _ = snapshot.files.layers()
    if base is None or not base.sidecars:
        return None
    hint = read_hint(store)
    files = settled_base(
        _listing(store, hint),
        hint,
        version=snapshot.version,
        now_ms=now_ms,
        retention_ms=_shortest_retention_ms(snapshot),
    )
    if files is None:
        return None
    try:
        named_by = base if files.name == base.name else read_checkpoint(store, files, unopened=None)
    except (LogCorruptedError, ObjectNotFoundError):
        return None
    schema = pa.schema(list(rows.types().items()))
    return kept_sidecars(snapshot, schema, expired_before_ms=rows.expired_before_ms, named_by=named_by)


def _shortest_retention_ms(snapshot: Snapshot) -> int:
    """Return the minimum retention of checkpoints under any clean-up. DROP FEATURE with truncation keeps a day."""
    text = snapshot.metadata.configuration.get(_TRUNCATES_TO) if snapshot.metadata is not None else None
    try:
        truncated_ms = _DAY_MS if text is None else parse_interval_ms(text, name=_TRUNCATES_TO)
    except InvalidArgumentError:
        return 0
    return min(snapshot.properties.log_retention_ms, truncated_ms, _DAY_MS)


def _listing(store: Store, hint: CheckpointHint | None) -> Listing:
    """List the log from the hinted checkpoint on, or all of it without a hint."""
    start = "" if hint is None else f"{hint.version:020d}"
    return read_listing(store.list_from(start, prefix=LOG_DIR))


def _write_checked(
    store: Store, snapshot: Snapshot, rows: FileRows, now: int, kept: KeptSidecars | None
) -> CheckpointResult:
    """Write the files of a checkpoint and read them back. Delete them if they are wrong."""
    tally = _Tally()
    try:
        if _is_v2(snapshot):
            result = _write_v2(store, snapshot, rows, tally, now, kept)
        else:
            result = _write_classic(store, snapshot, rows, tally, now)
        _verify(store, snapshot, result.name, now_ms=now, num_removes=result.num_removes, kept=kept)
    except BaseException as error:
        if tally.main is None or isinstance(error, LogCorruptedError):
            _discard(store, tally)
        raise
    return result


def _discard(store: Store, tally: _Tally) -> None:
    """Delete an incomplete checkpoint, its sidecars last. An error here must not hide the original one."""
    with suppress(StorageError):
        if tally.main is not None and store.delete_many([tally.main]).failed:
            return
        if tally.sidecars:
            store.delete_many(tally.sidecars)


def _is_v2(snapshot: Snapshot) -> bool:
    protocol = snapshot.protocol
    policy = snapshot.properties.checkpoint_policy
    return policy == "v2" and protocol is not None and supports(protocol, "v2Checkpoint")


def _unexpired(snapshot: Snapshot, state: State, now_ms: int) -> State:
    """Return the state without expired transaction identifiers."""
    retention_ms = snapshot.properties.set_transaction_retention_ms
    if retention_ms is None:
        return state
    kept = {
        app_id: txn
        for app_id, txn in state.set_transactions.items()
        if txn.last_updated is None or txn.last_updated > now_ms - retention_ms
    }
    return replace(state, set_transactions=kept)


def _state_rows(state: State) -> list[tuple[str, dict[str, Any]]]:
    actions = [state.protocol, state.metadata, *state.set_transactions.values(), *state.domain_metadata.values()]
    return [pair for action in actions if action is not None for pair in action_to_dict(action).items()]


def _state_table(rows: Sequence[tuple[str, Mapping[str, Any]]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{kind: _for_arrow(body)} for kind, body in rows], schema=schema)


def _for_arrow(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert maps to lists of pairs, as Arrow expects."""
    result: dict[str, Any] = {}
    for name, value in body.items():
        if name in ("configuration", "options", "tags") and isinstance(value, dict):
            result[name] = list(value.items())
        elif isinstance(value, dict):
            result[name] = _for_arrow(value)
        else:
            result[name] = value
    return result


def _file_tables(rows: FileRows, schema: pa.Schema, tally: _Tally) -> Iterator[pa.Table]:
    """Yield tables of the full schema, each with only adds or only removes."""
    for kind, arrays in (("add", rows.adds()), ("remove", rows.removes())):
        for array in arrays:
            columns = [
                array if name == kind else pa.nulls(len(array), schema.field(name).type) for name in schema.names
            ]
            if kind == "add":
                tally.adds += len(array)
            else:
                tally.removes += len(array)
            yield pa.Table.from_arrays(columns, schema=schema)


class _ParquetOut:
    """A Parquet file written through a store's writer. It appears complete at ``close`` or not at all."""

    def __init__(self, store: Store, path: str, schema: pa.Schema) -> None:
        self._stream: BinaryIO = store.open_writer(path)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="snappy")

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
        self._stream.close()

    def abort(self) -> None:
        self._writer.is_open = False  # Otherwise it writes a footer when it is garbage-collected.
        abort = getattr(self._stream, "abort", None)
        if abort is not None:
            abort()


def _write_file(store: Store, path: str, schema: pa.Schema, tables: Iterator[pa.Table], tally: _Tally) -> None:
    out = _ParquetOut(store, path, schema)
    try:
        for table in tables:
            out.write(table)
        tally.main = path
        out.close()
    except BaseException:
        out.abort()
        raise


def _write_classic(store: Store, snapshot: Snapshot, rows: FileRows, tally: _Tally, now_ms: int) -> CheckpointResult:
    state = _state_rows(_unexpired(snapshot, snapshot.state, now_ms))
    types = {kind: STATE_TYPES[kind] for kind in ("txn", "metaData", "protocol", "domainMetadata")}
    schema = pa.schema(list((rows.types() | types).items()))
    path = f"{LOG_DIR}/{checkpoint_file(snapshot.version)}"

    def tables() -> Iterator[pa.Table]:
        yield _state_table(state, schema)
        yield from _file_tables(rows, schema, tally)

    _write_file(store, path, schema, tables(), tally)
    return CheckpointResult(
        version=snapshot.version,
        name=path,
        num_actions=len(state) + tally.adds + tally.removes,
        num_adds=tally.adds,
        num_removes=tally.removes,
        size_bytes=_size(store, path),
    )


def _write_v2(
    store: Store, snapshot: Snapshot, rows: FileRows, tally: _Tally, now_ms: int, kept: KeptSidecars | None
) -> CheckpointResult:
    schema = pa.schema(list(rows.types().items()))
    named = kept.sidecars if kept is not None else ()
    sidecars: list[Mapping[str, Any]] = [action_to_dict(sidecar)[sidecar.kind] for sidecar in named]
    tables = _file_tables(rows, schema, tally)
    following = next(tables, None if named else pa.Table.from_pylist([], schema=schema))
    while following is not None:
        name = f"{uuid.uuid4()}.parquet"
        path = f"{SIDECAR_DIR}/{name}"
        tally.sidecars.append(path)
        out = _ParquetOut(store, path, schema)
        written = 0
        try:
            while following is not None and written < SIDECAR_ACTIONS:
                out.write(following)
                written += following.num_rows
                following = next(tables, None)
            out.close()
        except BaseException:
            out.abort()
            raise
        sidecars.append({"path": name, "sizeInBytes": _size(store, path), "modificationTime": now_ms})
    state: list[tuple[str, Mapping[str, Any]]] = [("checkpointMetadata", {"version": snapshot.version})]
    state += _state_rows(_unexpired(snapshot, snapshot.state, now_ms))
    state += [("sidecar", body) for body in sidecars]
    # The reference engine expects the file columns in the main file too, although their rows are in the sidecars.
    main = pa.schema(list((STATE_TYPES | rows.types()).items()))
    path = f"{LOG_DIR}/{v2_checkpoint_file(snapshot.version, str(uuid.uuid4()), 'parquet')}"
    _write_file(store, path, main, iter([_state_table(state, main)]), tally)
    adds, removes = (kept.num_adds, kept.num_removes) if kept is not None else (0, 0)
    adds, removes = adds + tally.adds, removes + tally.removes
    return CheckpointResult(
        version=snapshot.version,
        name=path,
        num_actions=len(state) + adds + removes,
        num_adds=adds,
        num_removes=removes,
        size_bytes=_size(store, path) + sum(body["sizeInBytes"] for body in sidecars),
        sidecars=(*(f"{SIDECAR_DIR}/{sidecar_name(sidecar)}" for sidecar in named), *tally.sidecars),
        named_again=len(named),
    )


def _size(store: Store, path: str) -> int:
    info = store.head(path)
    if info is None:
        raise LogCorruptedError(
            f"{path} disappeared right after it was written.",
            hint="Another process cleans up this log, or the store loses writes: check it before trusting it.",
        )
    return info.size


def _existing(store: Store, snapshot: Snapshot, now_ms: int) -> CheckpointResult | None:
    """Return the existing classic checkpoint of the version if it is correct. It is never overwritten.

    A replacement could fail verification, and the commits before it may be gone.
    """
    path = f"{LOG_DIR}/{checkpoint_file(snapshot.version)}"
    info = store.head(path)
    if info is None or _is_v2(snapshot):
        return None
    try:
        found = _verify(store, snapshot, path, now_ms=now_ms)
    except LogCorruptedError as error:
        _logger.warning("%s is rewritten: %s", path, error.message, extra={"table": snapshot.table_uri})
        return None
    num_removes = found.tombstones().height
    return CheckpointResult(
        version=snapshot.version,
        name=path,
        num_actions=len(found.state) + snapshot.num_files + num_removes,
        num_adds=snapshot.num_files,
        num_removes=num_removes,
        size_bytes=info.size,
    )


def _verify(
    store: Store,
    snapshot: Snapshot,
    name: str,
    *,
    now_ms: int,
    num_removes: int | None = None,
    kept: KeptSidecars | None = None,
) -> Checkpoint:
    """Read a checkpoint from the store and compare state, number and bytes of files, and tombstones.

    Reused sidecars were verified with the checkpoint that they were written for. Here only their existence and size are
    checked.

    Raises:
        LogCorruptedError: It cannot be read or differs from the snapshot. The error gives the difference.
    """
    info = store.head(name)
    files: Sequence[CheckpointFiles] = read_listing([info]).checkpoints if info is not None else ()
    if not files:
        raise _differs(snapshot, name, "number of files of it", 1, 0)
    found = read_checkpoint(store, files[0], unopened=frozenset() if kept is None else kept.names)
    if kept is not None:
        _require_there(store, kept, snapshot, name)
    state = _unexpired(snapshot, apply_actions(State(), found.state), now_ms)
    expected = _unexpired(snapshot, snapshot.state, now_ms)
    for part in ("protocol", "metadata", "set_transactions", "domain_metadata"):
        if getattr(state, part) != getattr(expected, part):
            raise _differs(snapshot, name, part, getattr(expected, part), getattr(state, part))
    adds, size, removes = (0, 0, 0) if kept is None else (kept.num_adds, kept.size_bytes, kept.num_removes)
    for frame in found.core_batches(()):
        adds, size = adds + frame.height, size + int(frame["size"].sum())
    for what, meant, read in (
        ("number of live files", snapshot.num_files, adds),
        ("bytes of live files", snapshot.size_bytes, size),
        ("number of tombstones", num_removes, removes + found.tombstones().height),
    ):
        if meant is not None and meant != read:
            raise _differs(snapshot, name, what, meant, read)
    return found


def _require_there(store: Store, kept: KeptSidecars, snapshot: Snapshot, name: str) -> None:
    """Check that the reused sidecars exist with the right size."""
    found = read_all(store.head, [f"{SIDECAR_DIR}/{sidecar_name(sidecar)}" for sidecar in kept.sidecars])
    for sidecar, info in zip(kept.sidecars, found, strict=True):
        if info is None or info.size != sidecar.size_in_bytes:
            size = None if info is None else info.size
            raise _differs(snapshot, name, f"bytes of {sidecar_name(sidecar)}", sidecar.size_in_bytes, size)


def _differs(snapshot: Snapshot, name: str, what: str, meant: object, read: object) -> LogCorruptedError:
    return LogCorruptedError(
        f"The checkpoint {name} does not read back correctly: {what} should be {meant}, found {read}.",
        hint="It is not used and the table is unchanged. Check the store, and report this with the log's files.",
        version=snapshot.version,
    )


def _point_at(store: Store, result: CheckpointResult) -> None:
    """Write ``_last_checkpoint`` unless it already names a newer checkpoint. A failure only costs readers a listing."""
    known = read_hint(store)
    if known is not None and known.version > result.version and _exists(store, known.version):
        return
    hint = CheckpointHint(
        version=result.version,
        size=result.num_actions,
        size_in_bytes=result.size_bytes,
        num_of_add_files=result.num_adds,
        v2=_v2_file(store, result.name),
    )
    store.put(HINT_PATH, encode_hint(hint))


def _v2_file(store: Store, path: str) -> V2File | None:
    name = path.rpartition("/")[2]
    parsed = parse_log_name(name)
    if parsed is None or parsed.kind is not LogFileKind.CHECKPOINT_V2:
        return None
    info = store.head(path)
    if info is None:  # Another process cleaned up behind a newer checkpoint.
        return None
    return V2File(name=name, size_in_bytes=info.size, modification_time_ms=info.modification_time_ms)


def _exists(store: Store, version: int) -> bool:
    try:
        listed = store.list_from(f"{version:020d}", prefix=LOG_DIR)
        return any(checkpoint.version == version for checkpoint in read_listing(listed).checkpoints)
    except StorageError:
        return False
