"""Find the files that the log says were removed: VACUUM LITE lists no directory.

``_delta_log/_last_vacuum_info`` records up to which version everything that was removed has been deleted. A later
LITE begins behind it, so that it stays possible when log clean-up has passed the first versions; a FULL records it too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from pydelta.commands.vacuum.needed import CommitTimeline, files_of_commits
from pydelta.commands.vacuum.plan import LISTED_SCHEMA
from pydelta.errors import CannotVacuumLiteError, ObjectNotFoundError
from pydelta.log import DeltaLog
from pydelta.log.columns import canonical_path
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.paths import LOG_DIR, are_absolute, decoded_paths, plain_root
from pydelta.protocol.vector_files import vector_files
from pydelta.storage import Store

__all__ = ["LAST_VACUUM", "LiteRange", "plan_lite", "read_clean_version", "removed_files", "write_clean_version"]

LAST_VACUUM: Final = f"{LOG_DIR}/_last_vacuum_info"
_VERSION: Final = "latestCommitVersionOutsideOfRetentionWindow"


def read_clean_version(store: Store) -> int | None:
    """Read up to which version all removed files have been deleted; None where nothing (legible) says so."""
    try:
        found = json.loads(store.read(LAST_VACUUM))
    except (ObjectNotFoundError, *MALFORMED_JSON):
        return None
    version = found.get(_VERSION) if isinstance(found, dict) else None
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def write_clean_version(store: Store, version: int) -> None:
    """Record the version up to which removed files have been deleted, as the reference engine does."""
    store.put(LAST_VACUUM, json.dumps({_VERSION: version}, separators=(",", ":")).encode() + b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteRange:
    """Commits whose removals are looked at, both ends included; ``first > last`` when there are none."""

    first: int
    last: int


def plan_lite(timeline: CommitTimeline, *, clean_version: int | None, cutoff_ms: int) -> LiteRange:
    """Choose the commits to look at: those before the cut-off that no earlier run has dealt with. Pure.

    Args:
        timeline: The commits that the log holds.
        clean_version: What ``read_clean_version`` gave.
        cutoff_ms: Epoch milliseconds.

    Raises:
        CannotVacuumLiteError: The log no longer holds all of them.
    """
    if clean_version is not None and clean_version > timeline.newest:
        clean_version = None  # of another table that lay here
    first = 0 if clean_version is None else clean_version + 1
    expired = timeline.before(cutoff_ms)
    last = expired[-1] if expired else -1
    if not expired and timeline.versions and timeline.versions[0] > first:
        last = timeline.versions[0] - 1  # commits that are gone are older than those that are there
    missing = sorted(set(range(first, last + 1)) - set(expired))
    if missing:
        since = f"version {clean_version}" if clean_version is not None else "the table's beginning"
        raise CannotVacuumLiteError(
            f"VACUUM LITE cannot find everything that was removed since {since}: the log no longer has version "
            f"{missing[0]}{' and others' if len(missing) > 1 else ''}.",
            hint="Run VACUUM FULL (or USING INVENTORY) once; after FULL, LITE works again.",
        )
    return LiteRange(first=first, last=last)


def removed_files(log: DeltaLog, versions: LiteRange, timeline: CommitTimeline) -> pl.DataFrame:
    """Find the files, deletion vectors and change data that commits removed or left behind, under the table's root.

    Args:
        log: The table.
        versions: Of the commits.
        timeline: Their times.

    Returns:
        Columns as ``LISTED_SCHEMA`` and ``version``; ``modification_time`` is the commit's, ``size`` null where the
        log does not say it.
    """
    times = dict(zip(timeline.versions, timeline.times_ms, strict=True))
    parts = [pl.DataFrame(schema=LISTED_SCHEMA | {"version": pl.Int64()})]
    try:
        commits = files_of_commits(log, range(versions.first, versions.last + 1), all_of_them=True)
    except ObjectNotFoundError as error:
        raise CannotVacuumLiteError(
            f"Log clean-up deleted a commit that VACUUM LITE needs: {error.message}",
            hint="Run VACUUM FULL once; then LITE works again.",
        ) from error
    for commit in commits:
        gone = commit.files
        if gone.is_empty():
            continue
        sizes = gone.select(id="vector", size="vector_size").drop_nulls("id").unique("id")
        vectors = (
            vector_files(gone["vector"], offsets=False).join(sizes, on="id").group_by("path").agg(pl.col("size").sum())
        )
        found = pl.concat([gone.select("path", "size"), vectors])
        parts.append(
            _under(found, log.uri).with_columns(
                modification_time=pl.lit(times[commit.version], dtype=pl.Int64),
                version=pl.lit(commit.version, dtype=pl.Int64),
            )
        )
    return pl.concat(parts).unique("path", keep="last", maintain_order=True)


def _under(files: pl.DataFrame, root: str) -> pl.DataFrame:
    """The files that lie under the root, by plain paths; those of a shallow clone's source are left alone."""
    absolute = are_absolute(files["path"])
    plain = decoded_paths(files["path"])
    own = ~absolute
    if bool(absolute.any()):
        base = plain_root(root)
        places = np.flatnonzero(absolute.to_numpy())
        full = pl.Series([canonical_path(path, root) for path in files["path"].filter(absolute)], dtype=pl.String)
        inside = full.str.starts_with(base)
        plain = plain.clone().scatter(places, full.str.strip_prefix(base))
        own = own.scatter(places, inside)
    own = own & ~plain.str.contains(r"(^|/)\.{0,2}(/|$)")
    return files.with_columns(path=plain).filter(own)
