"""Find the files that commits changed, and those that an Iceberg entry may already name. Pure.

What follows a version is taken from the commits alone, so a sync costs what changed, not what the table has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from pydelta.log.columns import PV_PREFIX, core_schema
from pydelta.log.deltas import added_files, build_delta
from pydelta.log.pruning import PartitionSpec
from pydelta.log.runs import AddRun, objects_of, runs_of
from pydelta.manifests.contents import locations
from pydelta.protocol.actions import Action, AddFile, RemoveFile

__all__ = ["FileChanges", "file_changes"]

_ADDED: Final[Mapping[str, pl.DataType]] = {"stats": pl.String(), "rest": pl.String(), "location": pl.String()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """The files that commits changed.

    Args:
        live: Files that the commits add and that are live after them: the columns of ``core``, ``stats``, ``rest``
            (see ``pydelta.log.columns``) and ``location``.
        known: Files that the entry may name: ``location`` and ``pv:`` columns.
        whole: Whether ``known`` has the partition values of all its files.
        data_change: Whether rows changed, not only where they lie.
    """

    live: pl.DataFrame
    known: pl.DataFrame
    whole: bool
    data_change: bool


def file_changes(
    commits: Iterable[tuple[int, Sequence[Action]]], *, spec: PartitionSpec, root: str, schemes: Mapping[str, str]
) -> FileChanges:
    """Find what commits changed.

    A file is new, so that no manifest has to be searched for it, if it is only added, with ``dataChange``. Other
    files may already be live: one that is removed and added again with a vector, or added again with new statistics.

    Args:
        commits: Versions and their actions, oldest first.
        spec: Partition columns after the commits.
        root: URI of the table.
        schemes: Scheme of a location -> scheme that readers use.
    """
    deltas, seen, whole, data_change = [], [], True, False
    names = spec.physical_names
    for version, actions in commits:
        deltas.append(build_delta(actions, version=version, partition_names=names, root=root))
        for run in runs_of(actions):
            data_change |= run.data_change
            if not (isinstance(run, AddRun) and run.data_change):
                missing = [
                    pl.lit(None, dtype=pl.String).alias(key) for key in spec.keys if key not in run.frame.columns
                ]
                whole &= not missing
                seen.append(run.frame.with_columns(missing).select("path", *spec.keys))
        loose = [action for action in objects_of(actions) if isinstance(action, AddFile | RemoveFile)]
        data_change |= any(action.data_change for action in loose)
        touched = [action for action in loose if isinstance(action, RemoveFile) or not action.data_change]
        if touched:
            whole &= all(set(names) <= (action.partition_values or {}).keys() for action in touched)
            seen.append(_named(touched, names))
    live = added_files(deltas) if deltas else pl.DataFrame(schema={**core_schema(names), **_ADDED})
    columns = [*core_schema(names), "stats", "rest"]
    live = live.select(columns).with_columns(location=locations(live["path"], root, schemes))
    schema = dict.fromkeys(["path", *spec.keys], pl.String())
    known = pl.concat([pl.DataFrame(schema=schema), *seen])
    known = known.select(locations(known["path"], root, schemes).alias("location"), *spec.keys)
    return FileChanges(live=live, known=known.unique("location"), whole=whole, data_change=data_change)


def _named(actions: Sequence[AddFile | RemoveFile], names: Sequence[str]) -> pl.DataFrame:
    values = [action.partition_values or {} for action in actions]
    columns = {PV_PREFIX + name: [found.get(name) or None for found in values] for name in names}
    paths = {"path": [action.path for action in actions]}
    return pl.DataFrame(paths | columns, schema=dict.fromkeys([*paths, *columns], pl.String()))
