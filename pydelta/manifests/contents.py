"""Render the text of each partition's manifest from the live files. Pure; nothing loops over files.

A line is the location of one file as readers of symlink tables expect it: absolute, not URI-encoded, and with the
scheme that they use for the store. Partition directories have Hive's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from pydelta.errors import LogCorruptedError, SchemaError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.protocol.names import quoted
from pydelta.protocol.partitions import HIVE_NULL, hive_unescape, parse_partition_value, partition_dir
from pydelta.protocol.paths import plain_root, resolve_data_path
from pydelta.protocol.schema import physical_name
from pydelta.protocol.types import ArrayType, DataType, MapType, PrimitiveType, StructType
from pydelta.storage.kinds import KINDS

__all__ = [
    "DEFAULT_SCHEMES",
    "FOLDER_PATH",
    "MANIFEST_DIR",
    "MANIFEST_NAME",
    "Manifest",
    "check_publishable",
    "hive_values",
    "locations",
    "manifest_lines",
    "manifest_path",
    "manifests_of",
    "refuse_null_name",
    "refuse_vectors",
    "values_of_directory",
    "with_scheme",
]

MANIFEST_DIR: Final = "_symlink_format_manifest"
MANIFEST_NAME: Final = "manifest"
FOLDER_PATH: Final = f"{MANIFEST_DIR}/_folder"
"""An empty object that readers ignore, in the folder of a table without partitions yet."""
DEFAULT_SCHEMES: Final[Mapping[str, str]] = {
    scheme: kind.elsewhere for kind in KINDS if kind.elsewhere for scheme in kind.schemes if scheme != kind.elsewhere
}
"""Scheme in the table's location -> scheme in manifests: Spark uses ``s3a``, Trino and Presto use ``s3``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One partition's manifest.

    Args:
        directory: Hive's name of the partition, ``day=2024-01-01``, or empty for an unpartitioned table.
        values: The partition's values as Hive spells them, in the order of the partition columns, or None for null.
        text: Lines, each ended by a newline, or empty for a partition without files.
        num_files: Number of lines.
    """

    directory: str
    values: tuple[str | None, ...]
    text: bytes
    num_files: int


def manifest_path(directory: str) -> str:
    """Turn a partition directory into the manifest's path under the table's root."""
    return f"{MANIFEST_DIR}/{directory}/{MANIFEST_NAME}" if directory else f"{MANIFEST_DIR}/{MANIFEST_NAME}"


def manifest_lines(text: bytes, *, source: str) -> list[str]:
    """Split a manifest into lines as its readers do: only at line feeds and carriage returns.

    Args:
        text: Content of the manifest.
        source: Path for messages.

    Raises:
        LogCorruptedError: The manifest is not UTF-8, so its files are not known.
    """
    try:
        lines = text.decode().replace("\r", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise LogCorruptedError(
            f"{source} is not a manifest: its byte {error.start} is not UTF-8.",
            hint="Publish the manifests again, or delete this one if no reader uses it.",
        ) from error
    return [line for line in lines if line]


def manifests_of(
    snapshot: Snapshot, frame: pl.DataFrame, *, schemes: Mapping[str, str] = DEFAULT_SCHEMES
) -> dict[str, Manifest]:
    """Render the manifests of the partitions that the rows belong to, by directory.

    Args:
        snapshot: Snapshot of the files.
        frame: Rows of ``snapshot.files.core``, with all files of each partition in it.
        schemes: Scheme of a location -> scheme to write instead.

    Raises:
        UnsupportedFeatureError: A file has a deletion vector.
        SchemaError: A location contains a line break, or two partition values would share one manifest.
        LogCorruptedError: A path leads out of the table, or a partition value does not fit its column's type.
    """
    refuse_vectors(snapshot, frame)
    refuse_null_name(snapshot)
    keys = snapshot.files.spec.keys
    located = frame.select(*keys, location=locations(frame["path"], snapshot.table_uri, schemes))
    broken = located["location"].str.contains_any(["\n", "\r"])
    if bool(broken.any()):
        path = located["location"].filter(broken)[0]
        raise SchemaError(
            f"A manifest cannot name the file {path!r}: there is a line break in its name.",
            hint="Rewrite the partition: new files are named without line breaks, the partition value stays.",
            table=snapshot.table_uri,
        )
    types = [_type_of(snapshot, name) for name in snapshot.partition_columns]
    if not keys:
        return {"": _manifest((), "", located["location"])} if located.height else {}
    grouped = located.group_by(keys, maintain_order=True).agg("location")
    parts: dict[tuple[str | None, ...], list[pl.Series]] = {}
    for *texts, lines in grouped.iter_rows():  # Hive has one partition for all spellings of a value.
        parts.setdefault(hive_values(texts, types), []).append(pl.Series(lines))
    found: dict[str, Manifest] = {}
    for values, some in parts.items():
        directory = partition_dir(dict(zip(snapshot.partition_columns, values, strict=True)))
        found[directory] = _manifest(values, directory, pl.concat(some))
    return found


def refuse_null_name(snapshot: Snapshot) -> None:
    """Refuse Hive's name for null as a value, since its rows would be read as null.

    Raises:
        SchemaError: A partition column has this value. The error names the column.
    """
    spec = snapshot.files.spec
    for column, physical in zip(spec.partition_columns, spec.physical_names, strict=True):
        if bool((snapshot.files.core[PV_PREFIX + physical] == HIVE_NULL).any()):
            raise SchemaError(
                f"The partition column {column!r} has the value {HIVE_NULL!r}, which is Hive's name for NULL: in "
                "manifests and in a metastore the two would be one partition.",
                hint=f"Give these rows another value, with UPDATE, or delete them: WHERE {quoted(column)} = "
                f"'{HIVE_NULL}'. Or read the table through Trino's Delta connector.",
                table=snapshot.table_uri,
                version=snapshot.version,
            )


def _manifest(values: tuple[str | None, ...], directory: str, lines: pl.Series) -> Manifest:
    lines = lines.unique().sort()
    text = "".join(f"{line}\n" for line in lines.to_list())
    return Manifest(directory=directory, values=values, text=text.encode(), num_files=len(lines))


def locations(paths: pl.Series, table_uri: str, schemes: Mapping[str, str]) -> pl.Series:
    """Return absolute locations. Only escaped or absolute paths are handled row by row."""
    plain = with_scheme(plain_root(table_uri), schemes) + paths
    odd = paths.str.contains_any(["%", ":", ".."]) | paths.str.starts_with("/")
    if bool(odd.any()):
        resolved = [with_scheme(resolve_data_path(table_uri, path), schemes) for path in paths.filter(odd)]
        plain = plain.scatter(np.flatnonzero(odd.to_numpy()), pl.Series(resolved))
    return plain


def with_scheme(uri: str, schemes: Mapping[str, str]) -> str:
    """Replace the scheme of a location by the one that readers use."""
    scheme, separator, rest = uri.partition("://")
    return f"{schemes.get(scheme, scheme)}://{rest}" if separator else uri


def _type_of(snapshot: Snapshot, column: str) -> DataType:
    field = snapshot.schema.field(column)
    assert field is not None, f"partition column {column} is in the schema"
    return field.data_type


def hive_values(texts: Sequence[str | None], types: Sequence[DataType]) -> tuple[str | None, ...]:
    """Spell partition values as Hive does, from the log's strings. None means null.

    A time is in UTC with a space and without a zone, ``2024-05-31 12:00:00``, however the log spells it.
    """
    return tuple(_hive_value(text, kind) for text, kind in zip(texts, types, strict=True))


def _hive_value(text: str | None, data_type: DataType) -> str | None:
    if text is None or text == "":
        return None
    if not isinstance(data_type, PrimitiveType) or data_type.name == "binary":
        return text
    value = parse_partition_value(text, data_type)
    name = data_type.name
    if name in ("timestamp", "timestamp_ntz"):
        spelt = f"{value:%Y-%m-%d %H:%M:%S}".rjust(19, "0")
        return f"{spelt}.{value.microsecond:06d}".rstrip("0") if value.microsecond else spelt
    if name == "boolean":
        return "true" if value else "false"
    if name in ("float", "double"):
        return text
    return str(value)


def values_of_directory(directory: str) -> dict[str, str | None]:
    """Turn a partition directory into its values by column. None means null."""
    values: dict[str, str | None] = {}
    for part in directory.split("/") if directory else ():
        name, _, value = part.partition("=")
        values[hive_unescape(name)] = None if value == HIVE_NULL else hive_unescape(value)
    return values


def check_publishable(snapshot: Snapshot) -> None:
    """Refuse a table whose files have other column names than the table.

    Raises:
        UnsupportedFeatureError: Column mapping gave a column another name in the files.
    """
    if snapshot.column_mapping_mode == "none":
        return
    renamed = next(_renamed(snapshot.schema, ()), None)
    if renamed is not None:
        logical, physical = renamed
        raise UnsupportedFeatureError(
            f"The column {logical!r} is called {physical!r} in the files, and readers of manifests use the names in "
            "the files.",
            features=("columnMapping",),
            hint="Read it through Trino's Delta connector, or copy it into a table without delta.columnMapping.mode.",
            table=snapshot.table_uri,
            version=snapshot.version,
            condition=Condition.of("DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING"),
        )


def _renamed(data_type: DataType, path: tuple[str, ...]) -> Any:
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            here = (*path, field.name)
            if physical_name(field) != field.name:
                yield ".".join(here), physical_name(field)
            yield from _renamed(field.data_type, here)
    elif isinstance(data_type, ArrayType):
        yield from _renamed(data_type.element_type, path)
    elif isinstance(data_type, MapType):
        yield from _renamed(data_type.key_type, path)
        yield from _renamed(data_type.value_type, path)


def refuse_vectors(snapshot: Snapshot, frame: pl.DataFrame) -> None:
    """Refuse files with deletion vectors, since readers of manifests would see the deleted rows.

    Raises:
        UnsupportedFeatureError: A file has a deletion vector. The error names the file.
    """
    count = frame.height - frame["dv_id"].null_count()
    if count:
        path = frame.filter(pl.col("dv_id").is_not_null())["path"][0]
        raise UnsupportedFeatureError(
            f"{count} files have deletion vectors, {path!r} among them: readers of manifests would see deleted rows.",
            features=("deletionVectors",),
            hint="Rewrite them first, with REORG TABLE … APPLY (PURGE), and set delta.enableDeletionVectors to false.",
            table=snapshot.table_uri,
            version=snapshot.version,
            condition=Condition.of("DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS"),
        )
