"""Keep rows of a command out of memory: in a temporary file that no other process sees and that ends with this one.

::

    batches --up to a limit--> a list in memory
            --beyond it------> SpillFile: each part as a stream of Arrow, read again by its place

The file is in the folder of temporary files (``TMPDIR``). Where the system allows it, it has no name.
"""

from __future__ import annotations

import ctypes
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pydelta.engines.arrow.tasks.arrow import require_valid
from pydelta.errors import StorageError, first_line

__all__ = ["BLOCK_ROWS", "GivenRows", "Part", "SpillFile", "empty_rows", "return_memory"]

BLOCK_ROWS: Final = 131_072
"""Rows of a block: few enough to be held several times."""


@dataclass(frozen=True, slots=True)
class Part:
    """A place in a file: the first byte, and the number of bytes."""

    start: int
    length: int


class SpillFile:
    """Tables in a temporary file. Threads may share it.

    Raises:
        StorageError: The file cannot be made.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end = 0
        try:
            self._file = tempfile.TemporaryFile(prefix="pydelta-")  # noqa: SIM115 - close() closes it
        except OSError as error:
            raise self._failed(error) from error

    def add(self, rows: pa.Table) -> Part:
        """Write rows, and return their place.

        Raises:
            StorageError: The disk is full, or the file cannot be written.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        data = sink.getvalue()
        with self._lock:
            part = Part(self._end, data.size)
            try:
                self._file.seek(part.start)
                self._file.write(data)
                self._file.flush()
            except OSError as error:
                raise self._failed(error) from error
            self._end += part.length
        return part

    def read(self, part: Part) -> pa.Table:
        """Read rows at a place.

        Raises:
            StorageError: The file cannot be read.
        """
        with self._lock:
            try:
                self._file.seek(part.start)
                data = self._file.read(part.length)
            except OSError as error:
                raise self._failed(error) from error
        return pa.ipc.open_stream(data).read_all()

    def close(self) -> None:
        """Delete the file."""
        with suppress(OSError):  # After an error, closing writes the rest again.
            self._file.close()

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"Rows that do not fit into memory cannot be kept in a temporary file in {tempfile.gettempdir()}: "
            f"{error.strerror or first_line(error)}.",
            hint="Nothing was changed. Free space there, or name another folder with TMPDIR.",
        )


class GivenRows:
    """The rows that a caller gave, in blocks that can be read several times.

    Args:
        batches: The rows. They are read once, here.
        schema: Their columns.
        most_bytes: Bytes that are held in memory. All rows are spilled if they are more.

    Raises:
        InvalidArgumentError: A batch is damaged, or Arrow cannot write a type to a stream.
        StorageError: The temporary file cannot be written.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, most_bytes: int) -> None:
        self.schema = schema
        self.num_rows = self.nbytes = self._pending = 0
        self._held: list[pa.Table] = []
        self._parts: list[Part] = []
        self._file: SpillFile | None = None
        try:
            for batch in batches:
                require_valid(batch, "valid Arrow data")
                self._add(pa.Table.from_batches([batch], schema), most_bytes)
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, reader: pa.RecordBatchReader, *, most_bytes: int) -> GivenRows:
        """Read all rows of a reader. Raises as the class, and what the reader raises."""
        return cls(reader, reader.schema, most_bytes=most_bytes)

    @classmethod
    def of_table(cls, rows: pa.Table) -> GivenRows:
        """Return the rows of a table that the caller holds, which are not copied."""
        made = cls((), rows.schema, most_bytes=0)
        made._held, made.num_rows, made.nbytes = [rows], rows.num_rows, rows.nbytes
        return made

    def _add(self, rows: pa.Table, most_bytes: int) -> None:
        self._held.append(rows)
        self._pending += rows.num_rows
        self.num_rows += rows.num_rows
        self.nbytes += rows.nbytes
        if self._file is None and self.nbytes > most_bytes:
            self._file = SpillFile()
        if self._file is not None and self._pending >= BLOCK_ROWS:
            self._spill(self._file)

    def _spill(self, file: SpillFile) -> None:
        rows = pa.concat_tables(self._held)
        whole = rows.num_rows - rows.num_rows % BLOCK_ROWS
        for start in range(0, whole, BLOCK_ROWS):
            self._parts.append(file.add(rows.slice(start, BLOCK_ROWS).combine_chunks()))
        self._held, self._pending = [rows.slice(whole).combine_chunks()], rows.num_rows - whole

    def select(self, names: Sequence[str]) -> None:
        """Leave out all columns but some."""
        self.schema = pa.schema([self.schema.field(name) for name in names])

    def table(self) -> pa.Table:
        """Return all rows."""
        return pa.concat_tables([empty_rows(self.schema), *self.blocks()])

    def blocks(self) -> Iterator[pa.Table]:
        """Yield the rows in order, at most ``BLOCK_ROWS`` at a time. Spilled blocks but the last have that many."""
        for part in self._parts:
            assert self._file is not None, "parts are in the file"
            yield self._file.read(part).select(self.schema.names)
        for rows in self._held:
            for start in range(0, rows.num_rows, BLOCK_ROWS):
                yield rows.slice(start, BLOCK_ROWS).select(self.schema.names)

    def close(self) -> None:
        """Release the rows."""
        self._held, self._parts = [], []
        if self._file is not None:
            self._file.close()


def empty_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows. ``Schema.empty_table`` refuses dictionaries of times and run-end encoded columns."""
    return pa.Table.from_batches([], schema)


def return_memory() -> None:
    """Return memory that is free to the system. Arrow and glibc would keep it for later."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):  # Other libraries of C have no such function.
        ctypes.CDLL(None).malloc_trim(0)
