"""Report what an OPTIMIZE did: its result and metrics, nested as in the reference engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.commands.alter.clustering import ZCUBE_ID
from pydelta.commands.optimize.plan import Layout, size_summary
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddFile
from pydelta.protocol.stats import leaves_with_stats
from pydelta.txn import Committed

__all__ = ["OPTIMIZE_METRICS", "OptimizeResult", "columns_with_stats", "cube_of", "history_metrics"]

_SIZES: Final = {"min": "long?", "max": "long?", "avg": "double", "totalFiles": "long", "totalSize": "long"}
_NUMBER_AND_SIZE: Final = {"num": "long", "size": "long"}
_FILES_AND_SIZE: Final = {"numFiles": "long", "size": "long"}
OPTIMIZE_METRICS: Final[Mapping[str, Any]] = {
    "numFilesAdded": "long",
    "numFilesRemoved": "long",
    "filesAdded": _SIZES,
    "filesRemoved": _SIZES,
    "partitionsOptimized": "long",
    "zOrderStats": {
        "strategyName": "string?",
        "inputCubeFiles": _NUMBER_AND_SIZE,
        "inputOtherFiles": _NUMBER_AND_SIZE,
        "inputNumCubes": "long",
        "mergedFiles": _NUMBER_AND_SIZE,
        "numOutputCubes": "long",
        "mergedNumCubes": "long?",
    },
    "clusteringStats": {
        "inputZCubeFiles": _FILES_AND_SIZE,
        "inputOtherFiles": _FILES_AND_SIZE,
        "inputNumZCubes": "long",
        "mergedFiles": _FILES_AND_SIZE,
        "numOutputZCubes": "long",
    },
    "numBins": "long",
    "numBatches": "long",
    "totalConsideredFiles": "long",
    "totalFilesSkipped": "long",
    "preserveInsertionOrder": "boolean",
    "numFilesSkippedToReduceWriteAmplification": "long",
    "numBytesSkippedToReduceWriteAmplification": "long",
    "startTimeMs": "long",
    "endTimeMs": "long",
    "totalClusterParallelism": "long",
    "totalScheduledTasks": "long",
    "autoCompactParallelismStats": {
        "maxClusterActiveParallelism": "long?",
        "minClusterActiveParallelism": "long?",
        "maxSessionActiveParallelism": "long?",
        "minSessionActiveParallelism": "long?",
    },
    "deletionVectorStats": {"numDeletionVectorsRemoved": "long", "numDeletionVectorRowsRemoved": "long"},
    "numTableColumns": "long",
    "numTableColumnsWithStats": "long",
}
"""Names and types of the struct ``metrics``, as in the reference engine; ``?`` marks nullable ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeResult:
    """The result of an OPTIMIZE. Sizes are in bytes, times in epoch milliseconds.

    ``version`` is None when there was nothing to do and nothing was committed.
    """

    version: int | None
    added: tuple[AddFile, ...] = ()
    removed: tuple[AddFile, ...] = ()
    num_bins: int = 0
    num_considered: int = 0
    start_time_ms: int = 0
    end_time_ms: int = 0
    layout: Layout | None = None
    clustered: bool = False
    num_table_columns: int = 0
    num_table_columns_with_stats: int = 0
    committed: Committed | None = field(default=None, repr=False)

    def metrics(self) -> dict[str, Any]:
        """Return the counts under the reference engine's names, nested like its ``metrics`` struct."""
        removed_sizes = [add.size for add in self.removed]
        vectors = [add.deletion_vector for add in self.removed if add.deletion_vector is not None]
        in_cubes = [add.size for add in self.removed if cube_of(add) is not None]
        others = [add.size for add in self.removed if cube_of(add) is None]
        cubes = {cube_of(add) for add in self.removed} - {None}
        found: dict[str, Any] = {
            "numFilesAdded": len(self.added),
            "numFilesRemoved": len(self.removed),
            "filesAdded": size_summary([add.size for add in self.added]),
            "filesRemoved": size_summary(removed_sizes),
            "partitionsOptimized": self.num_partitions,
            "zOrderStats": None,
            "clusteringStats": None,
            "numBins": self.num_bins,
            "numBatches": 1,
            "totalConsideredFiles": self.num_considered,
            "totalFilesSkipped": self.num_considered - len(self.removed),
            "preserveInsertionOrder": self.layout is None,
            "numFilesSkippedToReduceWriteAmplification": 0,
            "numBytesSkippedToReduceWriteAmplification": 0,
            "startTimeMs": self.start_time_ms,
            "endTimeMs": self.end_time_ms,
            "totalClusterParallelism": 0,
            "totalScheduledTasks": 0,
            "autoCompactParallelismStats": None,
            "deletionVectorStats": None,
            "numTableColumns": self.num_table_columns,
            "numTableColumnsWithStats": self.num_table_columns_with_stats,
        }
        if vectors:
            found["deletionVectorStats"] = {
                "numDeletionVectorsRemoved": len(vectors),
                "numDeletionVectorRowsRemoved": sum(vector.cardinality for vector in vectors),
            }
        if self.clustered:
            found["clusteringStats"] = {
                "inputZCubeFiles": {"numFiles": len(in_cubes), "size": sum(in_cubes)},
                "inputOtherFiles": {"numFiles": len(others), "size": sum(others)},
                "inputNumZCubes": len(cubes),
                "mergedFiles": {"numFiles": len(self.removed), "size": sum(removed_sizes)},
                "numOutputZCubes": self.num_bins,
            }
        elif self.layout is not None:
            found["zOrderStats"] = {
                "strategyName": "all",
                "inputCubeFiles": {"num": 0, "size": 0},
                "inputOtherFiles": {"num": len(self.removed), "size": sum(removed_sizes)},
                "inputNumCubes": 0,
                "mergedFiles": {"num": len(self.removed), "size": sum(removed_sizes)},
                "numOutputCubes": self.num_bins,
                "mergedNumCubes": None,
            }
        return found

    @property
    def num_partitions(self) -> int:
        """The number of partitions with rewritten files."""
        return len({tuple(sorted(add.partition_values.items(), key=lambda item: item[0])) for add in self.removed})


def history_metrics(adds: Sequence[AddFile], removed: Sequence[AddFile]) -> dict[str, str | int]:
    """Return ``operationMetrics`` of the commit; sizes in bytes."""
    sizes = sorted(add.size for add in adds)
    metrics: dict[str, str | int] = {
        "numAddedFiles": len(adds),
        "numAddedBytes": sum(sizes),
        "numRemovedFiles": len(removed),
        "numRemovedBytes": sum(add.size for add in removed),
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in removed),
    }
    if sizes:
        named = {"p25FileSize": 0.25, "p50FileSize": 0.5, "p75FileSize": 0.75}
        metrics |= {"minFileSize": sizes[0], "maxFileSize": sizes[-1]}
        metrics |= {name: sizes[min(int(len(sizes) * part), len(sizes) - 1)] for name, part in named.items()}
    return metrics


def columns_with_stats(snapshot: Snapshot) -> int:
    """Count the columns that have statistics or partition values."""
    leaves = leaves_with_stats(snapshot.schema, snapshot.properties, snapshot.partition_columns)
    return len({path[0] for path, _ in leaves} | set(snapshot.partition_columns))


def cube_of(add: AddFile) -> str | None:
    """Return the clustering run that ordered a file; None without one."""
    return (add.tags or {}).get(ZCUBE_ID)
