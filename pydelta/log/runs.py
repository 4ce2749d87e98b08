"""Store many file actions of a commit as columns, to write, read and compare them without an object per file.

::

    a commit's actions = objects (protocol, metadata, files with tags, vectors, row ids …)
                       + runs    (plain files: AddRun, RemoveRun), objects are built only when accessed
    joined --> ActionList --encode_actions--> N.json --decode_actions--> ActionList

A few actions stay a tuple of objects, as elsewhere. A run is a sequence of actions like any other.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, overload

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from pydelta.errors import LogCorruptedError
from pydelta.log.columns import PV_PREFIX, adds_to_frame
from pydelta.protocol.actions import Action, AddFile, CommitInfo, RemoveFile, decode_commit, encode_commit

__all__ = [
    "RUN_LENGTH",
    "ActionList",
    "AddRun",
    "RemoveRun",
    "changing",
    "decode_actions",
    "encode_actions",
    "gathered",
    "is_operation",
    "joined",
    "key_columns",
    "loose_adds",
    "num_bytes",
    "objects_of",
    "of_kind",
    "other_than",
    "read_removes",
    "removes_of",
    "runs_of",
]

RUN_LENGTH: Final = 10_000
"""Minimum number of plain files for which columns are worthwhile."""
_LARGE_BYTES: Final = 4 * 1024 * 1024
_CHUNK: Final = 20_000
_BLOCK_BYTES: Final = 16 * 1024 * 1024
_ADD, _REMOVE = b'{"add":{', b'{"remove":{'
_AFTER: Final = {
    _ADD: re.compile(rb'\n(?!\{"add":\{|$)'),
    _REMOVE: re.compile(rb'\n(?!\{"remove":\{|$)'),
}
_AFTER_OTHERS: Final = re.compile(rb'\n(?=\{"add":\{|\{"remove":\{)')
_UNPLAIN: Final = (
    b'"tags"',
    b'"deletionVector"',
    b'"baseRowId"',
    b'"defaultRowCommitVersion"',
    b'"clusteringProvider"',
)
_ESCAPED: Final = r'["\\\x00-\x1f]'

A = TypeVar("A", bound=Action)


class _Run(Sequence[A], Generic[A]):
    """Plain file actions of one kind with equal ``dataChange``.

    Args:
        frame: ``path``, ``size``, the kind's time, ``pv:<physical name>`` (null for the empty string) and ``stats``.
        names: Physical names of the partition columns, in the frame's order.
        data_change: ``dataChange`` of all of them.
    """

    __slots__ = ("data_change", "frame", "names")
    time: str

    def __init__(self, frame: pl.DataFrame, names: Sequence[str], *, data_change: bool) -> None:
        columns = ["path", "size", self.time, *(PV_PREFIX + name for name in names), "stats"]
        self.frame = frame.select(columns)
        self.names = tuple(names)
        self.data_change = data_change

    def __len__(self) -> int:
        return self.frame.height

    def __bool__(self) -> bool:
        return self.frame.height > 0

    @overload
    def __getitem__(self, index: int) -> A: ...
    @overload
    def __getitem__(self, index: slice) -> list[A]: ...
    def __getitem__(self, index: int | slice) -> A | list[A]:
        if isinstance(index, slice):
            return list(self._objects(self.frame[index]))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return next(self._objects(self.frame[index % len(self)]))

    def __iter__(self) -> Iterator[A]:
        for slice_ in self.frame.iter_slices(_CHUNK):
            yield from self._objects(slice_)

    def _objects(self, frame: pl.DataFrame) -> Iterator[A]:
        raise NotImplementedError

    def _values(self, row: tuple[Any, ...]) -> dict[str, str | None]:
        return dict(zip(self.names, row[3:-1], strict=True))

    def lines(self) -> Iterator[pl.Series]:
        """Yield the lines of a commit in batches."""
        for slice_ in self.frame.iter_slices(_CHUNK):
            yield slice_.select(pl.concat_str(self._line(slice_), ignore_nulls=True).alias("line"))["line"]

    def _line(self, frame: pl.DataFrame) -> list[pl.Expr | pl.Series]:
        raise NotImplementedError

    def _partition_values(self, frame: pl.DataFrame) -> list[pl.Expr | pl.Series]:
        parts: list[pl.Expr | pl.Series] = [pl.lit(',"partitionValues":{')]
        for number, name in enumerate(self.names):
            parts.append(pl.lit(("," if number else "") + json.dumps(name, ensure_ascii=False) + ":"))
            parts.append(_quoted(frame[PV_PREFIX + name]).fill_null("null"))
        return [*parts, pl.lit("}")]

    def _stats(self, frame: pl.DataFrame) -> pl.Series:
        return ',"stats":' + _quoted(frame["stats"])


class AddRun(_Run[AddFile]):
    """Plain ``add`` actions as columns, with time ``modification_time``. See ``_Run``."""

    __slots__ = ()
    time = "modification_time"

    def _objects(self, frame: pl.DataFrame) -> Iterator[AddFile]:
        for row in frame.iter_rows():
            yield AddFile(
                path=row[0],
                partition_values=self._values(row),
                size=row[1],
                modification_time=row[2],
                data_change=self.data_change,
                stats=row[-1],
            )

    def _line(self, frame: pl.DataFrame) -> list[pl.Expr | pl.Series]:
        changes = "true" if self.data_change else "false"
        return [
            pl.lit('{"add":{"path":'), _quoted(frame["path"]), *self._partition_values(frame),
            pl.lit(',"size":'), pl.col("size").cast(pl.String),
            pl.lit(',"modificationTime":'), pl.col(self.time).cast(pl.String),
            pl.lit(f',"dataChange":{changes}'), self._stats(frame), pl.lit("}}\n"),
        ]  # fmt: skip

    def removed(self, *, deletion_timestamp: int, data_change: bool = True) -> RemoveRun:
        """Return the removes of these files, with extended metadata. The time is in epoch milliseconds."""
        frame = self.frame.with_columns(deletion_timestamp=pl.lit(deletion_timestamp, dtype=pl.Int64))
        return RemoveRun(frame, self.names, data_change=data_change)

    def changing(self, data_change: bool) -> AddRun:
        """Return the same files with another ``dataChange``."""
        return AddRun(self.frame, self.names, data_change=data_change)


class RemoveRun(_Run[RemoveFile]):
    """Plain ``remove`` actions with extended metadata as columns, with time ``deletion_timestamp``. See ``_Run``."""

    __slots__ = ()
    time = "deletion_timestamp"

    def _objects(self, frame: pl.DataFrame) -> Iterator[RemoveFile]:
        for row in frame.iter_rows():
            yield RemoveFile(
                path=row[0],
                data_change=self.data_change,
                deletion_timestamp=row[2],
                extended_file_metadata=True,
                partition_values=self._values(row),
                size=row[1],
                stats=row[-1],
            )

    def _line(self, frame: pl.DataFrame) -> list[pl.Expr | pl.Series]:
        return [pl.lit('{"remove":'), *self._body(frame), self._stats(frame), pl.lit("}}\n")]

    def _body(self, frame: pl.DataFrame) -> list[pl.Expr | pl.Series]:
        changes = "true" if self.data_change else "false"
        return [
            pl.lit('{"path":'), _quoted(frame["path"]), pl.lit(f',"dataChange":{changes},"deletionTimestamp":'),
            pl.col(self.time).cast(pl.String), pl.lit(',"extendedFileMetadata":true'),
            *self._partition_values(frame), pl.lit(',"size":'), pl.col("size").cast(pl.String),
        ]  # fmt: skip

    def bodies(self) -> pl.Series:
        """Return the JSON of each action without statistics, as the file table stores it."""
        parts = [
            slice_.select(pl.concat_str([*self._body(slice_), pl.lit("}")]).alias("rest"))["rest"]
            for slice_ in self.frame.iter_slices(_CHUNK)
        ]
        return pl.concat(parts) if parts else pl.Series("rest", [], dtype=pl.String)


_Part: TypeAlias = tuple[Action, ...] | AddRun | RemoveRun


class ActionList(Sequence[Action]):
    """A sequence of actions, some of them in runs. Built by ``joined``.

    Args:
        parts: Objects and runs, none of them empty.
    """

    __slots__ = ("_length", "parts")

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.parts = tuple(parts)
        self._length = sum(map(len, self.parts))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Action: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Action]: ...
    def __getitem__(self, index: int | slice) -> Action | Sequence[Action]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._length))]
        at = index + self._length if index < 0 else index
        for part in self.parts:
            if 0 <= at < len(part):
                return part[at]
            at -= len(part)
        raise IndexError(index)

    def __iter__(self) -> Iterator[Action]:
        for part in self.parts:
            yield from part


def joined(*sources: Iterable[A]) -> Sequence[A]:
    """Concatenate actions, keeping runs. Returns a tuple if there are none."""
    parts: list[_Part] = []
    loose: list[Action] = []
    for source in sources:
        for part in source.parts if isinstance(source, ActionList) else (source,):
            if not isinstance(part, (AddRun, RemoveRun)):
                loose.extend(part)
            elif part:
                if loose:
                    parts.append(tuple(loose))
                    loose = []
                parts.append(part)
    if loose or not parts:
        parts.append(tuple(loose))
    if len(parts) == 1:
        return cast("Sequence[A]", parts[0])
    return cast("Sequence[A]", ActionList(parts))


def _parts(actions: Iterable[Action]) -> Sequence[Any]:
    return actions.parts if isinstance(actions, ActionList) else (actions,)


def runs_of(actions: Iterable[Action]) -> list[AddRun | RemoveRun]:
    """Return the runs among actions."""
    return [part for part in _parts(actions) if isinstance(part, (AddRun, RemoveRun))]


def objects_of(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions outside runs."""
    for part in _parts(actions):
        if not isinstance(part, (AddRun, RemoveRun)):
            yield from part


def is_operation(actions: Iterable[Action], name: str) -> bool:
    """Return whether a commit's provenance names an operation."""
    return any(isinstance(action, CommitInfo) and action.operation == name for action in objects_of(actions))


def loose_adds(adds: Iterable[AddFile]) -> Iterator[AddFile]:
    """Yield the adds outside runs. Files in runs have no deletion vector, tags or row ids."""
    return cast("Iterator[AddFile]", objects_of(adds))


def of_kind(actions: Iterable[Action], kind: type[A]) -> Sequence[A]:
    """Return the actions of one kind, keeping runs."""
    run = {AddFile: AddRun, RemoveFile: RemoveRun}.get(cast("Any", kind))
    chosen = [
        part if isinstance(part, (AddRun, RemoveRun)) else [action for action in part if isinstance(action, kind)]
        for part in _parts(actions)
        if not isinstance(part, (AddRun, RemoveRun)) or (run is not None and isinstance(part, run))
    ]
    return joined(*cast("Any", chosen))


def other_than(actions: Iterable[Action], kind: type[Action], *first: Action) -> Sequence[Action]:
    """Return ``first`` and then the actions not of a kind, keeping runs. No run may have that kind."""
    kept = [
        part if isinstance(part, (AddRun, RemoveRun)) else [action for action in part if not isinstance(action, kind)]
        for part in _parts(actions)
    ]
    return joined(first, *cast("Any", kept))


def changing(adds: Iterable[AddFile], data_change: bool) -> Sequence[AddFile]:
    """Return the same files with the given ``dataChange``."""
    return joined(
        *(
            part.changing(data_change) if isinstance(part, AddRun)
            else [add.replace(data_change=data_change) for add in part]
            for part in _parts(adds)
        )
    )  # fmt: skip


def removes_of(adds: Iterable[AddFile], *, deletion_timestamp: int, data_change: bool = True) -> Sequence[RemoveFile]:
    """Return the removes of files, with extended metadata. The time is in epoch milliseconds."""
    how: dict[str, Any] = {"deletion_timestamp": deletion_timestamp, "data_change": data_change}
    return joined(
        *(part.removed(**how) if isinstance(part, AddRun) else [add.remove(**how) for add in part]
          for part in _parts(adds))
    )  # fmt: skip


def num_bytes(files: Iterable[AddFile] | Iterable[RemoveFile]) -> int:
    """Sum the sizes of files. A remove without a size counts as 0."""
    total = 0
    for part in _parts(files):
        total += int(part.frame["size"].sum()) if isinstance(part, _Run) else sum(file.size or 0 for file in part)
    return total


def key_columns(files: Iterable[AddFile] | Iterable[RemoveFile]) -> pl.DataFrame:
    """Return ``path`` and ``dv_id`` of files, as spelled in the log, in order."""
    frames = []
    for part in _parts(files):
        if isinstance(part, _Run):
            frames.append(part.frame.select("path", dv_id=pl.lit(None, dtype=pl.String)))
        else:
            keys = [file.key for file in part]
            columns = {"path": [key.path for key in keys], "dv_id": [key.dv_id for key in keys]}
            frames.append(pl.DataFrame(columns, schema={"path": pl.String(), "dv_id": pl.String()}))
    return pl.concat(frames)


def gathered(actions: Sequence[Action]) -> Sequence[Action]:
    """Move many individually built plain adds into runs."""
    if len(actions) < RUN_LENGTH or not any(isinstance(action, AddFile) for action in objects_of(actions)):
        return actions
    others: list[Action] = []
    plain: dict[tuple[bool, tuple[str, ...]], list[AddFile]] = {}
    for action in objects_of(actions):
        if isinstance(action, AddFile) and _is_plain(action):
            plain.setdefault((action.data_change, tuple(sorted(action.partition_values))), []).append(action)
        else:
            others.append(action)
    runs: list[Any] = list(runs_of(actions))
    for (changes, names), adds in plain.items():
        if len(adds) < RUN_LENGTH:
            others += adds
            continue
        frame = adds_to_frame(adds, names, 0)
        runs.append(AddRun(frame, names, data_change=changes))
    return joined(others, *runs)


def _is_plain(add: AddFile) -> bool:
    return (
        add.deletion_vector is None and add.tags is None and add.base_row_id is None
        and add.default_row_commit_version is None and add.clustering_provider is None
    )  # fmt: skip


def read_removes(rests: pl.Series) -> list[RemoveRun] | None:
    """Parse the output of ``RemoveRun.bodies``. Returns None if any text has another form."""
    lines = '{"remove":' + rests + "}"
    return _read_removes(lines.str.join("\n").item().encode()) if len(rests) else []


def encode_actions(actions: Iterable[Action]) -> bytes:
    """Encode actions as the bytes of a commit, like ``encode_commit``. Runs are never expanded into objects."""
    if not runs_of(actions):
        return encode_commit(actions)
    out = io.BytesIO()
    for part in _parts(actions):
        if isinstance(part, _Run):
            for lines in part.lines():
                out.write(lines.str.join("").item().encode())
        else:
            out.write(encode_commit(part))
    return out.getvalue()


def _quoted(texts: pl.Series) -> pl.Series:
    """Encode strings as JSON. Null stays null."""
    odd = texts.str.contains(_ESCAPED).fill_null(False)
    if not bool(odd.any()):
        return '"' + texts + '"'
    escaped = texts.str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True)
    quoted = '"' + escaped + '"'
    steering = texts.str.contains(r"[\x00-\x1f]").fill_null(False)
    if bool(steering.any()):
        by_hand = [json.dumps(text, ensure_ascii=False) for text in texts.filter(steering)]
        quoted = quoted.scatter(steering.arg_true(), pl.Series(by_hand, dtype=pl.String))
    return quoted


def decode_actions(data: bytes, *, source: str) -> Sequence[Action]:
    """Return the actions of one commit file, like ``decode_commit``, with many plain files as runs.

    If any line has an unusual form, the whole file is decoded line by line, so the result is always the same.

    Args:
        data: Newline-delimited JSON.
        source: File name, for messages.

    Raises:
        LogCorruptedError: A line is not a JSON object or lacks a required field. The error names line and file.
    """
    if len(data) >= _LARGE_BYTES:
        found = _decode_large(data, source)
        if found is not None:
            return found
    return decode_commit(data, source=source)


def _decode_large(data: bytes, source: str) -> Sequence[Action] | None:
    if not _is_plain_text(data):
        return None
    unplain = [word for word in _UNPLAIN if word in data]
    others: list[bytes] = []
    runs: list[AddRun | RemoveRun] = []
    for kind, start, end in _stretches(data):
        block = data[start:end]
        if kind is not None and unplain:
            lines = block.split(b"\n")
            odd = [any(word in line for word in unplain) for line in lines]
            others += [line for line, is_odd in zip(lines, odd, strict=True) if is_odd]
            block = b"\n".join(line for line, is_odd in zip(lines, odd, strict=True) if line and not is_odd)
        if kind is None:
            others.append(block)
        elif block:
            found = _read_adds(block) if kind == _ADD else _read_removes(block)
            if found is None:
                return None
            runs += found
    if sum(map(len, runs)) < RUN_LENGTH:
        return None
    try:
        objects = decode_commit(b"\n".join(others), source=source) if others else ()
    except LogCorruptedError:
        return None  # Line numbers in the error must count the whole file, so it is decoded again.
    return joined(objects, *cast("Any", runs))


def _stretches(data: bytes) -> Iterator[tuple[bytes | None, int, int]]:
    """Yield stretches of lines of one kind: their first bytes (None for other lines), start and end."""
    at = 0
    while at < len(data):
        kind = next((first for first in (_ADD, _REMOVE) if data.startswith(first, at)), None)
        found = (_AFTER_OTHERS if kind is None else _AFTER[kind]).search(data, at)
        end = len(data) if found is None else found.start() + 1
        yield kind, at, end
        at = end


def _is_plain_text(data: bytes) -> bool:
    """Return whether it is UTF-8 without escaped surrogates, which only the line decoder handles."""
    if b"\\u" in data and b"\\ud" in data.lower():
        return False
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _read_adds(lines: bytes) -> list[AddRun] | None:
    fields = [("path", pa.string()), ("size", pa.int64()), ("modificationTime", pa.int64()), ("dataChange", pa.bool_())]
    return _read(lines, "add", fields, AddRun)


def _read_removes(lines: bytes) -> list[RemoveRun] | None:
    fields = [
        ("path", pa.string()), ("size", pa.int64()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
    ]  # fmt: skip
    return _read(lines, "remove", fields, RemoveRun)


R = TypeVar("R", AddRun, RemoveRun)


def _read(lines: bytes, kind: str, fields: list[tuple[str, Any]], make: Callable[..., R]) -> list[R] | None:
    """Parse lines of one kind natively. Returns None if one lacks fields, has other fields, or other types."""
    try:
        names = list(msgspec.json.decode(lines.partition(b"\n")[0])[kind]["partitionValues"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return None
    values = pa.struct([(name, pa.string()) for name in names])
    body = pa.struct([*fields, ("partitionValues", values), ("stats", pa.string())])
    try:
        table = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([(kind, body)]), unexpected_field_behavior="error"
            ),
        )
    except pa.ArrowException:
        return None
    structs = table[kind].combine_chunks()
    if isinstance(structs, pa.ChunkedArray):
        structs = structs.chunk(0)
    num_lines = lines.count(b"\n") + (not lines.endswith(b"\n"))
    if len(structs) != num_lines or structs.null_count:
        return None
    columns = {field.name: structs.field(field.name) for field in body}
    if any(columns[name].null_count for name, _ in fields) or columns["partitionValues"].null_count:
        return None
    if "extendedFileMetadata" in columns and not pc.all(columns["extendedFileMetadata"]).as_py():
        return None
    time = "modificationTime" if kind == "add" else "deletionTimestamp"
    frame = pl.DataFrame(
        {
            "path": pl.Series(columns["path"]),
            "size": pl.Series(columns["size"]),
            ("modification_time" if kind == "add" else "deletion_timestamp"): pl.Series(columns[time]),
            **{PV_PREFIX + name: _values(columns["partitionValues"].field(name)) for name in names},
            "stats": pl.Series(columns["stats"], dtype=pl.String),
            "change": pl.Series(columns["dataChange"]),
        }
    )
    runs = []
    for changes in (True, False):
        part = frame.filter(pl.col("change") == changes)
        if part.height:
            runs.append(make(part, names, data_change=changes))
    return runs


def _values(array: Any) -> pl.Series:
    series = pl.Series(array, dtype=pl.String)
    return series.set(series == "", None) if bool((series == "").any()) else series
