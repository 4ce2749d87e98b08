"""Open a table for a command, read its rows from a file, and print its result."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pydelta.api.console.command_line import storage_options
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.names import camel_case

if TYPE_CHECKING:
    import pyarrow as pa

    from pydelta.api.python.local import LocalTable
    from pydelta.engines.arrow.text_source import TextFile

__all__ = ["open_local", "print_done", "print_result", "rows_of", "set_aside"]

_ARROW_FILE = b"ARROW1"
_BATCH_ROWS = 65_536


def open_local(path: str, options: Sequence[str] | None, time_zone: str | None = None) -> LocalTable:
    """Open a table for a command.

    Args:
        path: Location of the table.
        options: Storage options as given on the command line.
        time_zone: Zone of times that name none.
    """
    from pydelta.api.python.local import open_table

    return open_table(path, options=storage_options(options), time_zone=time_zone)


def rows_of(
    file: str,
    form: str | None,
    bad_records: str | None = None,
    options: Sequence[str] | None = None,
    *,
    streamed: bool = False,
) -> pa.Table | pa.RecordBatchReader | TextFile:
    """Read the rows of a file; rows of text are read later, by the table's schema.

    Args:
        file: A local file.
        form: Its format; None for the one that its name shows.
        bad_records: Location of the table for rows of text that do not fit.
        options: Storage options as given on the command line, for that table.
        streamed: Whether rows with types come as a reader, which raises the error for a file that cannot be read.

    Raises:
        InvalidArgumentError: The format is unknown, or the file cannot be read.
    """
    import pyarrow as pa

    from pydelta.engines.arrow.text_source import TextFile

    readers: Mapping[str, Any] = {"parquet": _parquet, "arrow": _arrow, "csv": None, "ndjson": None}
    named = form or file.lower().rpartition(".")[2]
    if named not in readers:
        raise InvalidArgumentError(
            f"{file} is not a file of rows that this command reads.",
            hint=f"Give one of .{', .'.join(readers)}, or say what it is with --format.",
        )
    if named in ("csv", "ndjson"):
        return TextFile(file, named, bad_records=bad_records, options=storage_options(options))
    if bad_records is not None:
        raise InvalidArgumentError(
            "--bad-records works only with .csv and .ndjson.",
            hint="Leave it out: the values of other formats have types.",
        )
    if streamed:
        batches = _checked(file, readers[named](file))
        return pa.RecordBatchReader.from_batches(next(batches), batches)
    with closing(_checked(file, readers[named](file))) as batches:
        schema = next(batches)
        return pa.Table.from_batches(batches, schema)


def _checked(file: str, batches: Iterator[Any]) -> Generator[Any]:
    """Yield the schema of a file and then its batches; say which file cannot be read.

    Raises:
        InvalidArgumentError: It cannot.
    """
    import pyarrow as pa

    try:
        yield from batches
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError(f"The rows of {file} cannot be read: {text}", hint="Check the file.") from error


def _parquet(file: str) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with open(file, "rb") as stream:
        parquet = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        yield parquet.schema_arrow
        yield from parquet.iter_batches(_BATCH_ROWS)


def _arrow(file: str) -> Iterator[Any]:
    """Read the rows of Arrow's file format, or of its stream format."""
    import pyarrow as pa

    with open(file, "rb") as stream:
        is_file = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
        stream.seek(0)
        if not is_file:
            with pa.ipc.open_stream(stream) as reader:
                yield reader.schema
                yield from reader
            return
        with pa.ipc.open_file(stream) as parts:
            yield parts.schema
            for number in range(parts.num_record_batches):
                yield parts.get_batch(number)


def set_aside(rows: pa.Table | pa.RecordBatchReader | TextFile) -> dict[str, int]:
    """Count the rows of text that were set aside; nothing if there were none."""
    from pydelta.engines.arrow.text_source import TextFile

    return {"rows set aside": rows.set_aside} if isinstance(rows, TextFile) and rows.set_aside else {}


def print_done(as_json: bool, sentence: str, counts: Mapping[str, int]) -> None:
    """Print what a command did that makes no version.

    Args:
        as_json: Print one JSON document instead of a sentence.
        sentence: Begins the sentence, up to the counts.
        counts: Numbers by their names.
    """
    if as_json:
        print(json.dumps({camel_case(name.replace(" ", "_")): count for name, count in counts.items()}, indent=2))  # noqa: T201
    else:
        print(f"{sentence}: {', '.join(f'{count} {name}' for name, count in counts.items())}.")  # noqa: T201


def print_result(as_json: bool, done: str, version: int | None, counts: Mapping[str, int | None]) -> None:
    """Print what a command did.

    Args:
        as_json: Print one JSON document instead of a sentence.
        done: The verb of the sentence.
        version: The new version; None if there is none.
        counts: Numbers by their names; unknown ones are None.
    """
    if as_json:
        names = {camel_case(name.replace(" ", "_")): count for name, count in counts.items()}
        print(json.dumps({"version": version, **names}, indent=2))  # noqa: T201
    elif version is None:
        print("Nothing to do: no version was made.")  # noqa: T201
    else:
        known = [f"{count} {name}" for name, count in counts.items() if count is not None]
        print(f"{done} in version {version}: {', '.join(known)}.")  # noqa: T201
