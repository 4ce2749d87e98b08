"""Feed what lies in a table's folder: commits, checkpoints, hints, checksums, vectors, paths."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import polars as pl

from pydelta.api.python.local import LocalTable
from pydelta.commands.records.segments import (
    FILES_SCHEMA,
    BadSegmentError,
    IndexedColumn,
    SegmentContents,
    open_segment,
    write_segment,
)
from pydelta.commands.vacuum.command import Vacuum
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.log.columns import canonical_path, file_key, spellings
from pydelta.log.side_files import decode_checksum, decode_hint
from pydelta.log.vector_files import place_of, read_deleted_rows
from pydelta.protocol.actions import DeletionVectorDescriptor, decode_commit, encode_commit
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.paths import decode_log_path, encode_log_path, parse_log_name, resolve_data_path
from pydelta.protocol.roaring import decode_bitmap, encode_bitmap
from pydelta.protocol.types import PrimitiveType
from pydelta.protocol.vectors import deleted_rows
from pydelta.storage.interface import ObjectInfo
from pydelta.storage.memory import MemoryStore
from pydelta.storage.uris import normalize_uri, split_location
from pydelta.testing.commands import vacuum
from tests.fuzz.contract import Broken, Target
from tests.fuzz.guarded import ROOT, GuardedStore, lake_store, refuse_strays
from tests.fuzz.seeds import checkpoints, commits, others, table_objects

__all__ = ["LOG_TARGETS"]

_LONG: Final = PrimitiveType("long")
_LATE_MS: Final = 4_000_000_000_000
_COMMIT: Final = "_delta_log/{:020d}.json"
_WORDS: Final = (
    b'"add"',
    b'"remove"',
    b'"metaData"',
    b'"protocol"',
    b'"txn"',
    b'"domainMetadata"',
    b'"commitInfo"',
    b'"cdc"',
    b'"path"',
    b'"deletionVector"',
    b'"storageType":"p"',
    b"..",
    b"%2e%2e",
    b"s3a://other/x",
    b"null",
    b"1e400",
    b"\\ud800",
    b"{",
    b"}",
)


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """An error of ours ends a step, not the input: the next step is taken all the same."""
    with contextlib.suppress(DeltaError):
        yield


def _read(store: GuardedStore, named: str, *, scan: bool = True) -> set[str]:
    """Read a table as its users do; the live files, by their plain names."""
    live: set[str] = set()
    log = DeltaLog(store)
    with _ours():
        snapshot = log.update()
        live = {decode_log_path(add.path).text for add in snapshot.files.adds(snapshot.files.core)}
        _look(snapshot)
    if scan:
        with _ours():
            LocalTable(log).scan("x > 2 and p = 'a'", columns=["x"])
        with _ours():
            LocalTable(log).scan()
    refuse_strays(named)
    if store.writes or store.deletes:
        raise Broken(f"reading changed {[*store.writes, *store.deletes][0]}")
    return live


def _use(store: GuardedStore, named: str) -> None:
    """Read, change and clean a table as its users do; whatever is wrong with it, nothing outside may change."""
    before = {info.path for info in store.list_all()}
    live = _read(store, named)
    with _ours():
        DeltaLog(store).history(3)
    with _ours():
        log = DeltaLog(store)
        count = log.snapshot().files.num_files
        log.checkpoint()
        log.write_checksum(log.update())
        read = DeltaLog(store).snapshot().files.num_files
        if read != count:
            raise Broken(f"{count} files are {read} when the checkpoint that was written is read")
    with _ours():
        vacuum(DeltaLog(store), Vacuum(retention_hours=0, enforce_retention=False), now_ms=_LATE_MS)
    after = {info.path for info in store.list_all()}
    needed = {path for path in before if path.startswith("_delta_log/") or path in live}
    if lost := needed - after:
        raise Broken(f"VACUUM deleted {min(lost)}")
    with _ours():
        LocalTable(DeltaLog(store)).delete("x = 1")
    with _ours():
        DeltaLog(store).cleanup(_LATE_MS)
    for location in (*store.deletes, *store.writes):
        if "/../" in location or not location.startswith(ROOT + "/"):
            raise Broken(f"it changed {location}")
    refuse_strays(named)


def _look(snapshot: Any) -> None:
    for each in (snapshot.schema, snapshot.partition_columns, snapshot.column_mapping_mode, snapshot.timestamp_ms):
        str(each)
    _ = snapshot.properties, snapshot.clustering_columns, snapshot.set_transactions
    with _ours():
        snapshot.files.partition_frame(snapshot.files.core)
    with _ours():
        snapshot.files.stats_columns(snapshot.files.core, [(("x",), _LONG)])
    with _ours():
        snapshot.files.remove_actions(snapshot.files.tombstones())


def _store(**objects: bytes) -> GuardedStore:
    store = lake_store()
    for path, data in objects.items():
        store.put(path, data)
    store.writes.clear()
    return store


def _commit(data: bytes) -> None:
    """A commit by itself, and as version 1 of a good table."""
    decoded = decode_commit(data, source="the commit")
    finite = "inf" not in repr(decoded)  # JSON can spell a number that it cannot write again
    if finite and decode_commit(encode_commit(decoded), source="the commit again") != decoded:
        raise Broken("what was read is not what comes back when it is written")
    _read(_with_commit(data), _named(data))


def _table(data: bytes) -> None:
    """A commit as version 1 of a good table that is then used, changed and cleaned."""
    _use(_with_commit(data), _named(data))


def _with_commit(data: bytes) -> GuardedStore:
    good = table_objects()
    kept = {path: value for path, value in good.items() if not path.startswith("_delta_log/")}
    return _store(**kept, **{_COMMIT.format(0): good[_COMMIT.format(0)], _COMMIT.format(1): data})


def _named(data: bytes) -> str:
    """The text of a commit, escaped and not."""
    named = data.decode("utf-8", "replace").replace("\\/", "/")
    with contextlib.suppress(ValueError, RecursionError):
        named += "".join(
            json.dumps(json.loads(line), ensure_ascii=False) for line in named.splitlines() if line.strip()
        )
    return named


def _checkpoint(data: bytes) -> None:
    """A checkpoint that stands for the commits before it; and one that they can replace."""
    good = table_objects()
    name = "_delta_log/00000000000000000002.checkpoint.parquet"
    rest = {path: value for path, value in good.items() if path not in (name, "_delta_log/_last_checkpoint")}
    alone = {path: value for path, value in rest.items() if path not in (_COMMIT.format(0), _COMMIT.format(1))}
    named = _texts(data)
    _read(_store(**alone, **{name: data}), named, scan=False)
    store = _store(**rest, **{name: data})
    with _ours():
        snapshot = DeltaLog(store).update()
        _ = snapshot.files.adds(snapshot.files.core)
    refuse_strays(named)


def _data(data: bytes) -> None:
    """A data file of a good table, and the same with a condition."""
    good = table_objects()
    (path,) = (path for path in good if path.startswith("p=a/"))
    store = _store(**{**good, path: data})
    for where in (None, "x > 2"):
        with _ours():
            LocalTable(DeltaLog(store)).scan(where)
    with _ours():
        LocalTable(DeltaLog(store)).delete("x = 1")
    refuse_strays("")


def _data_files() -> list[bytes]:
    return [data for path, data in table_objects().items() if path.startswith("p=")]


def _texts(data: bytes) -> str:
    """What a checkpoint says, so that it can be told which locations it names."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if pq.read_metadata(io.BytesIO(data)).num_rows > 1_000:
            return ""
        return str(pq.read_table(io.BytesIO(data)).to_pylist())[: 1 << 20]
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError):
        return data.decode("utf-8", "replace")


def _hint(data: bytes) -> None:
    """``_last_checkpoint`` and ``N.crc`` are hints: whatever they say, the table is what it is."""
    decode_checksum(data)
    hint = decode_hint(data)
    if hint is not None and not 0 <= hint.version < 10**18:
        raise Broken(f"the hint is at version {hint.version}")
    good = table_objects()
    wanted = 2
    for name in ("_delta_log/_last_checkpoint", "_delta_log/00000000000000000002.crc"):
        snapshot = DeltaLog(_store(**{**good, name: data})).update()
        if snapshot.version != wanted or snapshot.files.num_files != 2:
            raise Broken(f"{name} makes the table version {snapshot.version} of {snapshot.files.num_files} files")


def _bitmap(data: bytes) -> None:
    """A bitmap by itself, and what is read of it comes back."""
    rows = decode_bitmap(data)
    if len(rows) > 1 and not bool((np.diff(rows.astype(np.int64)) > 0).all()):
        raise Broken("positions are not ascending")
    if len(rows) < 100_000 and not np.array_equal(decode_bitmap(encode_bitmap(rows)), rows):
        raise Broken("what was read is not what comes back")


def _descriptor(data: bytes) -> None:
    """A descriptor as JSON, and behind the first line break the bytes of its file."""
    import msgspec

    head, _, stored = data.partition(b"\n")
    try:
        vector = msgspec.convert(msgspec.json.decode(head), DeletionVectorDescriptor, strict=False)
    except MALFORMED_JSON:
        return
    store = _store(**{_VECTOR_FILE: stored})
    with _ours():
        deleted_rows(vector, None if vector.storage_type == "i" else stored)
    with _ours():
        read_deleted_rows([vector], store=store, root=ROOT, options=None)
    refuse_strays(vector.path_or_inline_dv)


def _path(data: bytes) -> None:
    """A path as the log spells it, and a location as users write it."""
    text = data.decode("utf-8", "replace")
    parse_log_name(text)
    with _ours():
        normalize_uri(text)
        split_location(text)
    if decode_log_path(encode_log_path(text)).text != text:
        raise Broken("a path does not come back")
    for root in (ROOT, "file:///tmp/a%20b", "memory://m/t", "hdfs://nn:8020/t"):
        canonical = canonical_path(text, root)
        _ = file_key(text, None, root)
        if canonical not in spellings(text, root):
            raise Broken("the canonical path is not a spelling")
        with _ours():
            resolve_data_path(root, text)
    store = _store(**{"inside.parquet": b"x"})
    log = DeltaLog(store)
    with _ours():
        log.file_exists(text)
    with _ours():
        holder, path = place_of(text, store=store, root=ROOT)
        if holder is store and ".." not in path.split("/"):
            holder.head(path)
    refuse_strays(text)


_VECTOR_FILE: Final = "deletion_vector_12345678-1234-5678-1234-567812345678.bin"


def _descriptors() -> list[bytes]:
    good = table_objects()
    found = []
    for path in (_COMMIT.format(1), _COMMIT.format(2)):
        for line in good[path].splitlines():
            vector = json.loads(line).get("add", {}).get("deletionVector")
            if vector:
                found.append(json.dumps(vector).encode() + b"\n" + good[_VECTOR_FILE])
    return found


def _hints() -> list[bytes]:
    good = table_objects()
    own = [good["_delta_log/_last_checkpoint"], good["_delta_log/00000000000000000002.crc"]]
    return [*own, *others("_last_checkpoint")[:40], *others("*.crc")[:40]]


def _bitmaps() -> list[bytes]:
    rows: list[Any] = [[], [0], [1, 5, 9], range(70_000), range(0, 200_000, 2), [0, 1 << 33], range(5000, 12_000)]
    return [encode_bitmap(np.array(list(each), dtype=np.uint64)) for each in rows]


def _paths() -> list[bytes]:
    return [
        b"p=a/part-0.parquet",
        b"p=a%20b/x.parquet",
        b"s3a://lake/t/p=a/x.parquet",
        b"s3a://lake/t2/x",
        b"s3://lake/t/../u/x",
        b"../t2/x.parquet",
        b"p=%2e%2e/%2e%2e/x",
        b"/lake/t/x",
        b"file:///etc/passwd",
        b"a//b/./c",
        b"hdfs://nn:8020/t/x",
        b"00000000000000000010.checkpoint.0000000001.0000000002.parquet",
        b"inside.parquet",
        b"s3a://lake/t/inside.parquet",
    ]


def _target(name: str, run: Callable[[bytes], None], seeds: Callable[[], list[bytes]], kind: str) -> Target:
    memory_mb = 4096 if name in ("bitmap", "vector") else 768  # the most rows that a vector may hide, twice
    return Target(name=name, run=run, seeds=seeds, kind=kind, words=_WORDS, memory_mb=memory_mb)


_SEGMENT: Final = "_pydelta/records/one.records"
_TAIL_BYTES: Final = 28


def _segments() -> list[bytes]:
    store = MemoryStore("memory://fuzz/segment")
    key = (IndexedColumn(name="id", kind="integer"), IndexedColumn(name="s", kind="string"))
    found = []
    for count in (0, 1, 9000):
        files = pl.DataFrame({"path": ["a", "b%20c"], "size": [1, 2]}, schema=FILES_SCHEMA)
        contents = SegmentContents(key=key, hash_name="h", table_id="t", files=files)
        entries = (np.arange(count, dtype=np.uint64) << np.uint64(48), np.arange(count, dtype=np.uint32) % 2)
        write_segment(store, _SEGMENT, contents, [entries])
        found.append(store.read(_SEGMENT))
    return found


def _segment(data: bytes) -> None:
    """A segment as it is, and with digests that fit: it is refused, or it names covered files."""
    store = MemoryStore("memory://fuzz/segment")
    for whole in (data, _sealed(data)):
        info = ObjectInfo(path=_SEGMENT, size=len(whole), modification_time_ms=0)
        with contextlib.suppress(BadSegmentError, DeltaError):
            store.put(_SEGMENT, whole)
            segment = open_segment(store, info, hash_name=None)
            found = segment.find(np.array([0, 1 << 48, (1 << 64) - 1], np.uint64))
            if len(found) != segment.files.height:
                raise Broken("a lookup answers for other files than it covers")
            hashes, numbers = segment.between(0, None)
            if len(hashes) != len(numbers) or len(hashes) > len(whole):
                raise Broken("entries come from nowhere")


def _sealed(data: bytes) -> bytes:
    """Return bytes with digests of their own footer and head, if there is a footer."""
    length = int.from_bytes(data[-_TAIL_BYTES : 4 - _TAIL_BYTES], "little")
    body, text = data[: -_TAIL_BYTES - length], data[-_TAIL_BYTES - length : -_TAIL_BYTES]
    try:
        footer = json.loads(text)
        head = body[8 + 12 * int(footer["entries"]) :]
        footer |= {"headDigest": blake2b(head, digest_size=16).hexdigest()}
        footer |= {"size": len(body) + len(json.dumps(footer)) + _TAIL_BYTES}
        text = json.dumps(footer).encode()
    except (*MALFORMED_JSON, KeyError, TypeError, ValueError, OverflowError):
        pass
    magic = data[-8:]
    return body + text + len(text).to_bytes(4, "little") + blake2b(text, digest_size=16).digest() + magic


LOG_TARGETS: Final = (
    _target("commit", _commit, commits, "json"),
    _target("table", _table, commits, "json"),
    _target("checkpoint", _checkpoint, checkpoints, "checkpoint"),
    _target("data", _data, _data_files, "checkpoint"),
    _target("hint", _hint, _hints, "json"),
    _target("bitmap", _bitmap, _bitmaps, "bytes"),
    _target("vector", _descriptor, _descriptors, "json"),
    _target("path", _path, _paths, "text"),
    _target("segment", _segment, _segments, "bytes"),
)
