"""Decide which listed files VACUUM may delete. Pure and columnar, without loops over files.

Paths are plain: relative to the table, with ``/``, not URI-encoded, as stores spell them. Sets of many paths take eight
bytes per path (``PathIndex``), enough to exclude with certainty that another path is in the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from pydelta.errors import LogCorruptedError, SchemaError
from pydelta.log import Snapshot
from pydelta.log.columns import canonical_path
from pydelta.manifests import values_of_directory
from pydelta.predicate import Column, Compare, Expr, In, Literal, partition_mask, split_conjuncts
from pydelta.protocol.partitions import (
    hive_escape,
    parse_partition_value,
    partition_dir,
    serialize_partition_value,
    typed_frame,
)
from pydelta.protocol.paths import are_absolute, decoded_paths, plain_root
from pydelta.protocol.types import StructType
from pydelta.storage.pages import UNFINISHED_PATH

__all__ = [
    "DOOMED_SCHEMA",
    "LISTED_SCHEMA",
    "Names",
    "PathIndex",
    "PathSample",
    "checksums_of",
    "compact",
    "directories_above",
    "doomed_files",
    "file_of",
    "folders_of",
    "in_partitions",
    "names_of",
    "nested_tables",
    "outside",
    "own_paths",
    "split_checksums",
]

LISTED_SCHEMA: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "size": pl.Int64(),
    "modification_time": pl.Int64(),
}
DOOMED_SCHEMA: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "size": pl.Int64(),
    "modification_time": pl.Int64(),
    "partition": pl.String(),
}
_Hashes: TypeAlias = npt.NDArray[np.uint64]
_EVERYTHING: Final = (1 << 64) - 1
CHANGE_DIR: Final = "_change_data"
_CHECKSUM: Final = r"(^|/)\.([^/]+)\.crc$"
_ICEBERG: Final = "delta.universalFormat.enabledFormats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The directory names of a table.

    Args:
        columns: Partition columns as directories spell them, logical and physical names.
        hidden: First directories that belong to other software, beyond those that begin with ``_`` or ``.``.
    """

    columns: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def is_hidden(self, path: pl.Expr) -> pl.Expr:
        """Return whether a path lies in a directory, or has a name, that begins with ``_`` or ``.``.

        ``_change_data`` does not count, nor do directories of partition columns whose name begins so, nor unfinished
        files, which a killed writer left.
        """
        shown = path.str.strip_prefix(CHANGE_DIR + "/").str.replace(UNFINISHED_PATH, "${1}")
        odd = [_literally(name) for name in self.columns if name.startswith(("_", "."))]
        if odd:
            shown = shown.str.replace_all(f"(^|/)(?:{'|'.join(odd)})=", "${1}x=")
        hidden = shown.str.contains(r"(^|/)[._]")
        for name in self.hidden:
            hidden = hidden | path.str.starts_with(name + "/")
        return hidden

    def enters(self, directory: str) -> bool:
        """Return whether a walk goes into a directory: it may hold files of the table, or is another table's log."""
        name = directory.rpartition("/")[2]
        if directory == CHANGE_DIR or name.startswith(tuple(f"{column}=" for column in self.columns)):
            return True
        if name == "_delta_log" and directory != name:
            return True  # It belongs to another table, whose files are not ours.
        return not name.startswith(("_", ".")) and directory not in self.hidden


def _literally(text: str) -> str:
    """Return a pattern that matches only the text."""
    return "".join(char if char.isalnum() and char.isascii() else f"\\x{{{ord(char):X}}}" for char in text)


def names_of(snapshot: Snapshot) -> Names:
    """Find the directory names of a table."""
    spec = snapshot.files.spec
    columns = dict.fromkeys(hive_escape(name) for name in (*spec.partition_columns, *spec.physical_names))
    configuration = snapshot.metadata.configuration if snapshot.metadata else {}
    iceberg = "iceberg" in configuration.get(_ICEBERG, "").lower()
    return Names(columns=tuple(columns), hidden=("metadata",) if iceberg else ())


_NAME: Final = r"/[^/]*$"
_NO_PARTITION: Final = r"(?s)(?:^|/)[^/=]+(?:/.*)?$"


def partition_of(path: pl.Expr) -> pl.Expr:
    """Return the partition directory of a path, ``a=1/b=2``, or empty without one."""
    holder = pl.when(path.str.contains("/", literal=True)).then(path.str.replace(_NAME, "")).otherwise(pl.lit(""))
    return holder.str.replace(rf"^{CHANGE_DIR}(?:/|$)", "").str.replace(_NO_PARTITION, "")


def file_of(path: pl.Expr) -> pl.Expr:
    """Return the file of a checksum (``.name.crc``), and any other path unchanged."""
    return path.str.replace(_CHECKSUM, "${1}${2}")


class KeptFiles(Protocol):
    """A set of paths that must stay."""

    def may_hold(self, paths: pl.Series) -> pl.Series:
        """Return for each path whether it may be in the set. False is certain."""


def doomed_files(listed: pl.DataFrame, needed: KeptFiles, *, cutoff_ms: int, names: Names) -> pl.DataFrame:
    """Find the files to delete: older than the cut-off, needed by nothing, and part of the table.

    A checksum that Hadoop wrote next to a file (``.name.crc``) is deleted with its file.

    Args:
        listed: Columns of ``LISTED_SCHEMA``. Others are ignored.
        needed: Paths that must stay.
        cutoff_ms: Cut-off in epoch milliseconds. Files of exactly that time stay.
        names: Directory names of the table.

    Returns:
        Columns of ``DOOMED_SCHEMA``, in the order of the listing.
    """
    old = listed.filter(pl.col("modification_time") < cutoff_ms).with_columns(target=file_of(pl.col("path")))
    shown = old.filter(~names.is_hidden(pl.col("target")))
    found = shown.filter(~needed.may_hold(shown["target"]))
    return found.with_columns(partition=partition_of(pl.col("path"))).select(list(DOOMED_SCHEMA))


def split_checksums(doomed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Separate files from the checksums that Hadoop wrote next to some."""
    checksum = pl.col("path").str.contains(_CHECKSUM)
    return doomed.filter(~checksum), doomed.filter(checksum)


def checksums_of(files: pl.DataFrame) -> pl.DataFrame:
    """Return the possible checksum files of files, whether they exist or not, without sizes."""
    path = pl.col("path").str.replace(r"([^/]*)$", ".${1}.crc")
    return files.with_columns(path=path, size=pl.lit(None, dtype=pl.Int64))


def nested_tables(paths: pl.Series) -> set[str]:
    """Find directories below the root that are separate Delta tables: those that hold a ``_delta_log``."""
    likely = paths.filter(paths.str.contains("/_delta_log", literal=True))
    found = likely.str.extract(r"(?s)^(.+?)/_delta_log(?:/|$)").drop_nulls().unique()
    return {path for path in found if not path.startswith("_delta_log")}


def outside(frame: pl.DataFrame, directories: Iterable[str]) -> pl.DataFrame:
    """Return the rows whose path is outside of all of the (few) directories."""
    inside = pl.lit(value=False)
    for directory in directories:
        inside = inside | pl.col("path").str.starts_with(directory + "/")
    return frame.filter(~inside)


def directories_above(paths: pl.Series) -> set[str]:
    """Find the directories that hold the paths, and those above them, without the root."""
    holders = paths.filter(paths.str.contains("/", literal=True)).str.replace(_NAME, "").unique()
    found: set[str] = set()
    for holder in holders:
        while holder and holder not in found:
            found.add(holder)
            holder = holder.rpartition("/")[0]
    return found


def folders_of(condition: Expr, snapshot: Snapshot) -> list[str] | None:
    """Find the first directories of the partitions that a condition can match, or None if it does not limit them.

    Only equality with constants on the first partition column limits them, for types whose values have one spelling.

    Args:
        condition: A condition over partition columns, by logical name.
        snapshot: Snapshot of the table.
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
    """Return the constants that a column must equal for the condition to be true, or None if there is no such list."""
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
    """Return the rows in directories of the partitions for which a condition is true, parsing each directory once.

    A file outside such directories, or in one whose name is not a value of the column's type, is left out.

    Args:
        frame: Rows with the column ``partition``.
        snapshot: Snapshot of the table.
        condition: A condition over partition columns, by logical name.
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
    """Return a directory's values by logical name, or None if some are missing."""
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


# --- sets of many paths ------------------------------------------------------------------------------------------


def own_paths(log_paths: pl.Series, root: str) -> pl.Series:
    """Turn the log's paths into the paths that a listing of the table has, null for a file elsewhere.

    Unlike ``PlainPaths``, it returns only the path that a writer must mean, so that a file can be deleted by it.
    """
    absolute = are_absolute(log_paths)
    plain = decoded_paths(log_paths)
    if not bool(absolute.any()):
        return plain
    base = plain_root(root)
    full = pl.Series([canonical_path(path, root) for path in log_paths.filter(absolute)], dtype=pl.String)
    inside = full.set(~full.str.starts_with(base), None).str.strip_prefix(base)
    return plain.clone().scatter(absolute.arg_true(), inside)


def _hashes(paths: pl.Series) -> _Hashes:
    found: npt.NDArray[Any] = _folded(paths).hash(seed=0).to_numpy()
    return found


def _folded(paths: pl.Series) -> pl.Series:
    """Return one spelling for all paths that any file system may take for the same.

    The disks of macOS and Windows, and some mounts of Linux, ignore case, and some also ignore how accents are encoded.
    There the files of the partitions ``a`` and ``A`` are in one folder, which a listing shows as it was first spelt.
    """
    if bool((paths.str.len_bytes() == paths.str.len_chars()).all()):
        return paths.str.to_lowercase()
    return paths.str.normalize("NFD").str.to_uppercase().str.to_lowercase()


def compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Copy rows, because a filtered text column keeps the memory of the rows that it was filtered from."""
    return pl.DataFrame(
        [
            pl.Series(s.name, s.to_arrow(compat_level=pl.CompatLevel.oldest())) if s.dtype == pl.String else s
            for s in frame
        ]
    )


class PathIndex:
    """A set of paths, stored as 64-bit hashes. Two paths may share a hash, so a path may seem to be in the set.

    A path in the set is always found, in any spelling that some file system takes for the same. If the set holds the
    paths that must stay, a collision only keeps one file too many.

    Args:
        paths: Any paths.

    Example:
        >>> PathIndex(pl.Series(["a", "b"])).may_hold(pl.Series(["B", "c"])).to_list()
        [True, False]
    """

    __slots__ = ("_added", "_sorted")

    def __init__(self, paths: pl.Series | None = None) -> None:
        self._sorted: _Hashes = np.empty(0, dtype=np.uint64)
        self._added: list[_Hashes] = []
        if paths is not None:
            self.add(paths)

    def add(self, paths: pl.Series) -> None:
        """Add paths, ignoring those already in the set."""
        if len(paths):
            self._added.append(_hashes(paths).copy())

    def __bool__(self) -> bool:
        return bool(self._added) or len(self._sorted) > 0

    def may_hold(self, paths: pl.Series) -> pl.Series:
        """Return for each path whether it may be in the index. False is certain."""
        if self._added:
            self._sorted = np.concatenate([self._sorted, *self._added])
            self._sorted.sort()
            self._added = []
        if not len(self._sorted):
            return pl.repeat(value=False, n=len(paths), eager=True)
        wanted = _hashes(paths)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return pl.Series(self._sorted[at] == wanted)


class PathSample:
    """A sample of many paths, evenly chosen: those with the lowest hashes.

    Args:
        size: Maximum number of paths.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        """Number of paths that were added, including duplicates."""
        self._size = size
        self._below: int = _EVERYTHING
        self._kept = pl.DataFrame(schema={"path": pl.String, "hash": pl.UInt64})

    def add(self, paths: pl.Series) -> None:
        """Add paths."""
        self.count += len(paths)
        frame = pl.DataFrame({"path": paths.cast(pl.String), "hash": paths.hash(seed=0)})
        kept = pl.concat([self._kept, frame.filter(pl.col("hash") <= pl.lit(self._below, dtype=pl.UInt64))])
        if kept.height > 2 * self._size:
            kept = kept.unique("hash").bottom_k(self._size, by="hash")
            self._below = int(kept["hash"].max())  # type: ignore[arg-type]
        self._kept = compact(kept)

    @property
    def paths(self) -> pl.Series:
        """The chosen paths, each once, in no particular order."""
        return self._kept.unique("hash").bottom_k(self._size, by="hash")["path"]
