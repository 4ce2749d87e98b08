"""Decide which manifests to write, to empty and to delete, and the next state. Pure: no store, no log.

The manifest of a directory with files is written. One without files is deleted, or emptied while a metastore may still
have its partition. After a change of the partition columns, it keeps its old rows until then. Directories added ahead
stay, and so does the only manifest of a table without partition columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import polars as pl

from pydelta.log import Snapshot
from pydelta.manifests.contents import Manifest, hive_values, manifests_of, values_of_directory
from pydelta.manifests.state import ManifestState
from pydelta.protocol.partitions import partition_dir

__all__ = [
    "FoundManifests",
    "Publication",
    "manifests_of_changes",
    "partition_directories",
    "partition_directory",
    "plan_publication",
    "why_full",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundManifests:
    """The partitions of a table, as found in the log.

    Args:
        manifests: Manifests to write, by directory.
        without_files: Directories that have no files.
        reason: Why every manifest is written, as a phrase, or None if only the changes since the state are.
        partial: Whether only some partitions are published, and the others stay at their version.
    """

    manifests: Mapping[str, Manifest]
    without_files: Collection[str] = ()
    reason: str | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The changes besides writing the manifests of directories with files.

    Args:
        emptied: Directories whose manifest is written empty.
        removed: Directories whose manifest is deleted.
        after: State to write last.
    """

    emptied: tuple[str, ...]
    removed: tuple[str, ...]
    after: ManifestState


def why_full(before: ManifestState | None, table: ManifestState, *, asked: bool = False) -> str | None:
    """Return why every manifest has to be written, as a phrase, or None if the changes are enough.

    Args:
        before: State that was read, or None if nothing is published.
        table: State of the newest version, see ``ManifestState.of``.
        asked: Whether the caller asked to write every manifest.
    """
    if asked:
        return "it was asked for"
    if before is None:
        return "nothing was published yet"
    reason = before.why_not_from(table)
    if reason is None and before.version > table.version:
        return f"version {before.version} was published, but the table is at {table.version}"
    return reason


def plan_publication(
    before: ManifestState | None,
    table: ManifestState,
    found: FoundManifests,
    *,
    listed: Collection[str] = (),
    keep_emptied: bool = False,
) -> Publication:
    """Decide which directories without files to empty or delete, and the next state.

    Args:
        before: State that was read, or None if nothing is published.
        table: State of the version to publish, see ``ManifestState.of``.
        found: Partitions of the log.
        listed: Directories that have a manifest, if every manifest is written.
        keep_emptied: Whether a metastore may still have partitions without files.
    """
    known = before if found.reason is None else None
    filled = set(found.manifests)
    emptied = set(known.emptied) if known is not None else set()
    ahead = set(before.ahead) - filled if before is not None and before.is_laid_out_as(table) else set()
    stale = {*found.without_files, *listed, *(() if keep_emptied else emptied)} - filled - ahead
    # Directories of earlier partition columns keep their rows until the metastore has the new partitions.
    outdated = {name for name in stale if tuple(values_of_directory(name)) != table.partition_columns}
    written_empty = {name for name in stale - outdated if keep_emptied or not name}
    removed = stale - written_empty - (outdated if keep_emptied else set())
    written = dict.fromkeys({*filled, *written_empty}, table.version)
    partitions = dict.fromkeys(ahead, table.version) | (known.partitions if known is not None else {}) | written
    left = (emptied | stale) - filled - removed - (set() if table.partition_columns else {""})
    after = msgspec.structs.replace(
        table,
        version=(known.version if known is not None else -1) if found.partial else table.version,
        partitions={name: version for name, version in partitions.items() if name not in removed},
        emptied=tuple(sorted(left)),
        ahead=tuple(sorted(ahead)),
    )
    return Publication(emptied=tuple(sorted(written_empty)), removed=tuple(sorted(removed)), after=after)


# --- manifests of changed partitions ----------------------------------------------------------------------------


def manifests_of_changes(
    snapshot: Snapshot, changed: Iterable[tuple[str | None, ...]], schemes: Mapping[str, str]
) -> tuple[Mapping[str, Manifest], tuple[str, ...]]:
    """Render the manifests of touched partitions with files, and list those that lost their last file."""
    touched = sorted(changed, key=lambda values: tuple(value or "" for value in values))
    spec = snapshot.files.spec
    keys = spec.keys
    frame = snapshot.files.core
    directories = partition_directories(snapshot, touched)
    if keys:
        wanted = pl.DataFrame(
            {key: [values[at] for values in touched] for at, key in enumerate(keys)},
            schema=dict.fromkeys(keys, pl.String()),
        )
        frame = frame.join(wanted, on=keys, how="semi", nulls_equal=True)
        frame = _with_other_spellings(snapshot, frame, set(directories), keys)
    manifests = manifests_of(snapshot, frame, schemes=schemes) if touched else {}
    return manifests, tuple(dict.fromkeys(name for name in directories if name not in manifests))


def _with_other_spellings(
    snapshot: Snapshot, frame: pl.DataFrame, directories: set[str], keys: Sequence[str]
) -> pl.DataFrame:
    """Add files of the same partitions whose value the log spells differently, such as ``01`` for ``1``."""
    types = {str(field.data_type) for field in snapshot.files.spec.partition_schema().fields}
    if types <= {"string", "binary"}:
        return frame  # Each value has one spelling.
    distinct = snapshot.files.core.select(keys).unique()
    rows = distinct.rows()
    same = [row for row, name in zip(rows, partition_directories(snapshot, rows), strict=True) if name in directories]
    wanted = pl.DataFrame(same, schema=dict.fromkeys(keys, pl.String()), orient="row")
    return snapshot.files.core.join(wanted, on=list(keys), how="semi", nulls_equal=True)


def partition_directory(snapshot: Snapshot, values: Sequence[str | None]) -> str:
    """See ``partition_directories``, for one partition."""
    return partition_directories(snapshot, [values])[0]


def partition_directories(snapshot: Snapshot, rows: Iterable[Sequence[str | None]]) -> list[str]:
    """Turn partition values as the log spells them, in the order of the columns, into directories."""
    types = [field.data_type for field in snapshot.files.spec.partition_schema().fields]
    columns = snapshot.partition_columns
    return [partition_dir(dict(zip(columns, hive_values(values, types), strict=True))) for values in rows]
