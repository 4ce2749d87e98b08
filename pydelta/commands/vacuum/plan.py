"""Decide which listed files VACUUM may delete. Pure, and columnar: nothing loops over files.

Paths are plain: relative to the table, with ``/``, not URI-encoded, as stores spell them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import polars as pl

from pydelta.commands.vacuum.result import DOOMED_SCHEMA
from pydelta.errors import LogCorruptedError, SchemaError
from pydelta.log import Snapshot
from pydelta.manifests import values_of_directory
from pydelta.predicate import Column, Compare, Expr, In, Literal, partition_mask, split_conjuncts
from pydelta.protocol.partitions import (
    hive_escape,
    parse_partition_value,
    partition_dir,
    serialize_partition_value,
    typed_frame,
)
from pydelta.protocol.types import StructType

__all__ = [
    "LISTED_SCHEMA",
    "Names",
    "checksums_of",
    "directories_above",
    "doomed_files",
    "file_of",
    "folders_of",
    "in_partitions",
    "names_of",
    "nested_tables",
    "outside",
    "split_checksums",
]

LISTED_SCHEMA: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "size": pl.Int64(),
    "modification_time": pl.Int64(),
}
CHANGE_DIR: Final = "_change_data"
_CHECKSUM: Final = r"(^|/)\.([^/]+)\.crc$"
_ICEBERG: Final = "delta.universalFormat.enabledFormats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a table's directories are called.

    Args:
        columns: Partition columns as directories spell them, logical and physical names.
        hidden: First directories that belong to somebody else, beyond those that begin with ``_`` or ``.``.
    """

    columns: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def is_hidden(self, path: pl.Expr) -> pl.Expr:
        """Tell whether a path lies in a directory, or has a name, that begins with ``_`` or ``.``.

        ``_change_data`` is none of them, and no partition directory is whose column's name begins so.
        """
        shown = path.str.strip_prefix(CHANGE_DIR + "/")
        odd = [_literally(name) for name in self.columns if name.startswith(("_", "."))]
        if odd:
            shown = shown.str.replace_all(f"(^|/)(?:{'|'.join(odd)})=", "${1}x=")
        hidden = shown.str.contains(r"(^|/)[._]")
        for name in self.hidden:
            hidden = hidden | path.str.starts_with(name + "/")
        return hidden

    def enters(self, directory: str) -> bool:
        """Tell whether a walk goes into a directory: it may hold files of the table, or is another table's log."""
        name = directory.rpartition("/")[2]
        if directory == CHANGE_DIR or name.startswith(tuple(f"{column}=" for column in self.columns)):
            return True
        if name == "_delta_log" and directory != name:
            return True  # of another table, whose files are none of ours
        return not name.startswith(("_", ".")) and directory not in self.hidden


def _literally(text: str) -> str:
    """Text as a pattern that matches it alone."""
    return "".join(char if char.isalnum() and char.isascii() else f"\\x{{{ord(char):X}}}" for char in text)


def names_of(snapshot: Snapshot) -> Names:
    """Find what a table's directories are called."""
    spec = snapshot.files.spec
    columns = dict.fromkeys(hive_escape(name) for name in (*spec.partition_columns, *spec.physical_names))
    configuration = snapshot.metadata.configuration if snapshot.metadata else {}
    iceberg = "iceberg" in configuration.get(_ICEBERG, "").lower()
    return Names(columns=tuple(columns), hidden=("metadata",) if iceberg else ())


_NAME: Final = r"/[^/]*$"
_NO_PARTITION: Final = r"(?s)(?:^|/)[^/=]+(?:/.*)?$"


def partition_of(path: pl.Expr) -> pl.Expr:
    """The partition directory that a path lies in, ``a=1/b=2``; empty without one."""
    holder = pl.when(path.str.contains("/", literal=True)).then(path.str.replace(_NAME, "")).otherwise(pl.lit(""))
    return holder.str.replace(rf"^{CHANGE_DIR}(?:/|$)", "").str.replace(_NO_PARTITION, "")


def file_of(path: pl.Expr) -> pl.Expr:
    """Return the file that a checksum (``.name.crc``) is of; any other path as it is."""
    return path.str.replace(_CHECKSUM, "${1}${2}")


class KeptFiles(Protocol):
    """Paths that must stay."""

    def may_hold(self, paths: pl.Series) -> pl.Series:
        """Whether each may be one of them; False only for what is none."""


def doomed_files(listed: pl.DataFrame, needed: KeptFiles, *, cutoff_ms: int, names: Names) -> pl.DataFrame:
    """Find the files to delete: older than the cut-off, needed by nothing, and of the table.

    A checksum that Hadoop wrote beside a file (``.name.crc``) goes with its file.

    Args:
        listed: Columns as ``LISTED_SCHEMA``; others are passed over.
        needed: Paths that must stay.
        cutoff_ms: Epoch milliseconds; files of that very time stay.
        names: Of the table.

    Returns:
        Columns as ``DOOMED_SCHEMA``, in the order of the listing.
    """
    old = listed.filter(pl.col("modification_time") < cutoff_ms).with_columns(target=file_of(pl.col("path")))
    shown = old.filter(~names.is_hidden(pl.col("target")))
    found = shown.filter(~needed.may_hold(shown["target"]))
    return found.with_columns(partition=partition_of(pl.col("path"))).select(list(DOOMED_SCHEMA))


def split_checksums(doomed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split files from the checksums that Hadoop wrote next to some."""
    checksum = pl.col("path").str.contains(_CHECKSUM)
    return doomed.filter(~checksum), doomed.filter(checksum)


def checksums_of(files: pl.DataFrame) -> pl.DataFrame:
    """Tell where Hadoop would keep the checksums of files, whether it does or not; no sizes."""
    path = pl.col("path").str.replace(r"([^/]*)$", ".${1}.crc")
    return files.with_columns(path=path, size=pl.lit(None, dtype=pl.Int64))


def nested_tables(paths: pl.Series) -> set[str]:
    """Find directories that are Delta tables of their own: those that hold a ``_delta_log``, other than the root."""
    likely = paths.filter(paths.str.contains("/_delta_log", literal=True))
    found = likely.str.extract(r"(?s)^(.+?)/_delta_log(?:/|$)").drop_nulls().unique()
    return {path for path in found if not path.startswith("_delta_log")}


def outside(frame: pl.DataFrame, directories: Iterable[str]) -> pl.DataFrame:
    """Return the rows whose path is in none of the (few) directories."""
    inside = pl.lit(value=False)
    for directory in directories:
        inside = inside | pl.col("path").str.starts_with(directory + "/")
    return frame.filter(~inside)


def directories_above(paths: pl.Series) -> set[str]:
    """Find the directories that hold the paths, and those above them; the root is left out."""
    holders = paths.filter(paths.str.contains("/", literal=True)).str.replace(_NAME, "").unique()
    found: set[str] = set()
    for holder in holders:
        while holder and holder not in found:
            found.add(holder)
            holder = holder.rpartition("/")[0]
    return found


def folders_of(condition: Expr, snapshot: Snapshot) -> list[str] | None:
    """Find the first directories of all partitions for which a condition can be true; None when it does not tell.

    Only equality with constants on the first partition column tells, where a value has one spelling.

    Args:
        condition: Over partition columns, by logical name.
        snapshot: Of the table.
    """
    spec = snapshot.files.spec
    field = spec.partition_schema().fields[0]
    if str(field.data_type) not in _ONE_SPELLING:
        return None
    for part in split_conjuncts(condition):
        values = _equal_to(part, field.name)
        if values is not None:
            break
    else:
        return None
    folders = []
    for name in dict.fromkeys((field.name, spec.physical_names[0])):
        for value in values:
            try:
                text = serialize_partition_value(value, field.data_type)
            except (SchemaError, ValueError, TypeError, AttributeError):
                return None
            folders.append(partition_dir({name: text}))
    return [*folders, *(f"{CHANGE_DIR}/{folder}" for folder in folders)] if len(folders) <= _FOLDERS else None


_ONE_SPELLING: Final = ("string", "date")
_FOLDERS: Final = 16


def _equal_to(expr: Expr, name: str) -> list[Any] | None:
    """The constants of which a column must be one for the condition to be true; None when it says no such thing."""
    column: Expr
    if isinstance(expr, In):
        column, values = expr.child, list(expr.values)
    elif isinstance(expr, Compare) and expr.op == "=":
        column, constant = (expr.left, expr.right) if isinstance(expr.left, Column) else (expr.right, expr.left)
        values = [constant.value] if isinstance(constant, Literal) else [None]
    else:
        return None
    fits = isinstance(column, Column) and len(column.path) == 1 and column.path[0].lower() == name.lower()
    return values if fits and None not in values else None


def in_partitions(frame: pl.DataFrame, snapshot: Snapshot, condition: Expr) -> pl.DataFrame:
    """Return the rows in directories of the partitions for which a condition is true; each directory is parsed once.

    A file that lies in no such directory, or in one whose name says no value of the column's type, is left out.

    Args:
        frame: With the column ``partition``.
        snapshot: Of the table.
        condition: Over partition columns, by logical name.
    """
    spec = snapshot.files.spec
    schema = spec.partition_schema()
    known: dict[str, dict[str, str | None]] = {}
    for directory in frame["partition"].unique():
        values = _values_of(values_of_directory(directory), spec.partition_columns, spec.physical_names)
        if values is not None and _are_typed(values, schema):
            known[directory] = values
    texts = pl.DataFrame(
        {name: [values[name] for values in known.values()] for name in schema.names},
        schema=dict.fromkeys(schema.names, pl.String()),
    )
    chosen = pl.Series(list(known), dtype=pl.String).filter(
        partition_mask(condition, typed_frame(texts, schema)).fill_null(value=False)
    )
    return frame.filter(pl.col("partition").is_in(chosen.implode()))


def _values_of(
    found: Mapping[str, str | None], logical: Sequence[str], physical: Sequence[str]
) -> dict[str, str | None] | None:
    """A directory's values by logical name; None when it does not say all of them."""
    values: dict[str, str | None] = {}
    for name, other in zip(logical, physical, strict=True):
        if name not in found and other not in found:
            return None
        values[name] = found[name] if name in found else found[other]
    return values


def _are_typed(values: Mapping[str, str | None], schema: StructType) -> bool:
    try:
        for field in schema.fields:
            parse_partition_value(values[field.name], field.data_type)
    except LogCorruptedError:
        return False
    return True
