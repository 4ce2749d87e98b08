"""Read text files on executors, CSV and JSON lines, by a schema. A row that does not fit comes with its reason."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final, cast

import pyarrow as pa

from pydelta.engines.arrow.tasks.csv_rows import CsvRows, CsvShape
from pydelta.engines.arrow.tasks.json_rows import JsonRows
from pydelta.engines.arrow.tasks.text_values import BadRow, TextRules, arrow_type
from pydelta.errors import DeltaError, SchemaMismatchError
from pydelta.protocol.types import StructField, StructType, parse_schema
from pydelta.storage.interface import NearStore, Store
from pydelta.storage.registry import open_store

__all__ = ["ABOUT", "TextFiles"]

ABOUT: Final = ("__source", "__line", "__column", "__reason", "__value", "__whole_file")
"""Columns about a row that does not fit, null for one that does. ``__whole_file``: its file cannot be read at all."""
_ABOUT_TYPES: Final = (pa.string(), pa.int64(), pa.string(), pa.string(), pa.binary(), pa.bool_())
_CHUNK: Final = 8 * 1024 * 1024
_UNREADABLE: Final = (OSError, EOFError, zlib.error)
"""What reading a file raises; the last two for a compressed file that is cut off or damaged."""


class _Ranges(io.RawIOBase):
    """An object of a store as a stream."""

    def __init__(self, store: Store, name: str) -> None:
        super().__init__()
        self._store, self._name, self._place = store, name, 0

    def readable(self) -> bool:
        """See ``io.RawIOBase``."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See ``io.RawIOBase``."""
        data = self._store.read_range(self._name, self._place, len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def _open(path: str, options: Mapping[str, str]) -> IO[bytes]:
    """Open a file by Hadoop's name for it, decompressing it if needed."""
    folder, _, name = path.rpartition("/")
    if path.startswith("file:"):  # Hadoop's names are not encoded.
        stream: IO[bytes] = open("/" + path.removeprefix("file:").lstrip("/"), "rb")  # noqa: SIM115
    else:
        store = open_store(folder, options)
        if isinstance(store, NearStore):
            stream = open(store.local_path(name), "rb")  # noqa: SIM115
        else:
            stream = io.BufferedReader(_Ranges(store, name), _CHUNK)
    if name.endswith(".gz"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    return bz2.BZ2File(stream) if name.endswith(".bz2") else stream


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFiles:
    """Reads files in a task, when called with batches of their paths.

    Args:
        form: ``csv`` or ``json``.
        schema: The columns, as JSON, or None to return each file's header, or number of columns, instead of rows.
        shape: Form of CSV files.
        rules: Rules for strings whose meaning the format leaves open.
        options: Storage options.
        kept: Columns, in addition to the path, that each row of a file gets, with their types.
    """

    form: str
    schema: str | None
    shape: CsvShape
    rules: TextRules
    options: Mapping[str, str] = field(repr=False)
    kept: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files that the batches name."""
        fields = () if self.schema is None else parse_schema(self.schema).fields
        for batch in batches:
            for number, path in enumerate(batch.column("path").to_pylist()):
                kept = [batch.column(name)[number] for name in self.kept.names]
                try:
                    with _open(path, self.options) as stream:
                        yield from (
                            self._names(stream, path) if self.schema is None else self._rows(stream, path, fields, kept)
                        )
                except DeltaError as error:
                    bad = BadRow(line=1, column=None, reason=error.message, value=b"")
                    yield self._batch(path, _no_rows(fields), [bad], kept, whole_file=True)
                except _UNREADABLE as error:
                    bad = BadRow(line=1, column=None, reason=f"{path} cannot be read: {error}", value=b"")
                    yield self._batch(path, _no_rows(fields), [bad], kept, whole_file=True)

    def _names(self, stream: IO[bytes], path: str) -> Iterator[pa.RecordBatch]:
        found: list[str] = []

        def take(names: Sequence[str]) -> list[StructField]:
            found.extend(names)
            return []

        reader = CsvRows(stream, path, take, shape=self.shape._replace(header=True))
        assert not reader.fields, "only the header was asked for"
        names = found if self.shape.header else [f"_c{place}" for place in range(len(found))]
        yield pa.RecordBatch.from_pydict({"path": [path], "names": [names]})

    def _rows(
        self, stream: IO[bytes], path: str, fields: Sequence[StructField], kept: Sequence[pa.Scalar]
    ) -> Iterator[pa.RecordBatch]:
        if self.form == "json":
            reader: CsvRows | JsonRows = JsonRows(stream, path, fields, rules=self.rules)
        else:
            find = _by_name(path, fields) if self.shape.header else lambda _: fields
            reader = CsvRows(stream, path, find, shape=self.shape, rules=self.rules)
        for block in reader.blocks() if reader.fields else ():
            rows = {name: block.rows.column(name) for name in block.rows.schema.names}
            columns = [rows[item.name] for item in fields]
            yield self._batch(path, columns, block.bad, kept)

    def _batch(
        self,
        path: str,
        columns: Sequence[Any],
        bad: Sequence[BadRow],
        kept: Sequence[pa.Scalar],
        *,
        whole_file: bool = False,
    ) -> pa.RecordBatch:
        """Build a batch of the rows that fit, then the others."""
        good = len(columns[0]) if columns else 0
        total = good + len(bad)
        data = [pa.concat_arrays([column, pa.nulls(len(bad), column.type)]) for column in columns]
        data += [pa.repeat(value, total) for value in kept]
        about = [(path, row.line, row.column, row.reason, row.value, whole_file) for row in bad]
        for place, kind in enumerate(_ABOUT_TYPES):
            data.append(pa.array([None] * good + [row[place] for row in about], kind))
        names = [f"c{place}" for place in range(len(columns))]
        return pa.RecordBatch.from_arrays(data, names=[*names, *self.kept.names, *ABOUT])


def _no_rows(fields: Sequence[StructField]) -> list[Any]:
    return [pa.array([], arrow_type(item.data_type)) for item in fields]


def _by_name(path: str, fields: Sequence[StructField]) -> Callable[[Sequence[str]], list[StructField]]:
    """Find the columns of a schema by a header that has exactly these, in any order and case."""
    schema = StructType(tuple(fields))

    def find(names: Sequence[str]) -> list[StructField]:
        found = {item.name: item for name in names if (item := schema.field(name)) is not None}
        if not len(found) == len(names) == len(fields):
            raise SchemaMismatchError(
                f"{path}, line 1: the header is {', '.join(names)}, but the columns are {', '.join(schema.names)}.",
                hint="Give --schema with the columns of the header, or load files with another header separately.",
            )
        return list(found.values())

    return find
