"""Define how each table feature is dropped: the properties to remove, what still uses it, and how to fix that.

Pure. Protocol: "Table Features", "Checkpoint Protection".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydelta.protocol.actions import Action, AddFile, Metadata, RemoveFile

__all__ = ["FeatureUse", "Removal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUse:
    """The parts of a snapshot that show whether a feature is in use.

    Args:
        metadata: The table's metadata.
        column_mapping_mode: ``none``, ``name`` or ``id``.
        domains: Names of its metadata domains, sorted.
        vectors: Number of live files with a deletion vector.
    """

    metadata: Metadata
    column_mapping_mode: str
    domains: Sequence[str]
    vectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The steps that drop a feature.

    Args:
        properties: Table properties to remove. A trailing dot makes it a prefix.
        problem: Returns what still uses the feature and how to fix it, or None.
        used_by: Whether a past action uses it, so that reading its version requires the feature.
    """

    properties: tuple[str, ...] = ()
    problem: Callable[[FeatureUse], tuple[str, str] | None] = lambda state: None
    used_by: Callable[[Action], bool] = lambda action: False


def live_vectors(state: FeatureUse) -> tuple[str, str] | None:
    """Report how many files have a deletion vector."""
    if not state.vectors:
        return None
    return (
        f"{state.vectors} files have a deletion vector",
        "Rewrite these files without the rows that are deleted, with DeltaTable.purge() (REORG TABLE … APPLY (PURGE)), "
        "and drop the feature then.",
    )


def mapped_columns(state: FeatureUse) -> tuple[str, str] | None:
    """Report whether the columns have other names in the files than in the table."""
    mode = state.column_mapping_mode
    if mode == "none":
        return None
    return (
        f"delta.columnMapping.mode is {mode}, and the columns have other names in the files than in the table",
        "Take it off in a Spark session: ALTER TABLE … SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none').",
    )


def widened_columns(state: FeatureUse) -> tuple[str, str] | None:
    """Report whether a column has changed its type."""
    if "delta.typeChanges" not in state.metadata.schema_string:
        return None
    return (
        "columns have changed their type, and files may still hold the old one",
        "Drop the feature in a Spark session, which rewrites the files: ALTER TABLE … DROP FEATURE typeWidening.",
    )


def constraints(state: FeatureUse) -> tuple[str, str] | None:
    """List the table's CHECK constraints."""
    prefix = "delta.constraints."
    names = sorted(key.removeprefix(prefix) for key in state.metadata.configuration if key.startswith(prefix))
    return (f"the table has the constraints {', '.join(names)}", "Drop the constraints first.") if names else None


def domains(state: FeatureUse) -> tuple[str, str] | None:
    """List the table's metadata domains."""
    if not state.domains:
        return None
    names = ", ".join(state.domains)
    return f"the table has metadata domains: {names}", "Remove them with the applications that own them."


def sets(action: Action, name: str, *values: str) -> bool:
    """Return whether an action sets a table property to one of these values."""
    return isinstance(action, Metadata) and action.configuration.get(name, "").strip().lower() in values


def uses_vectors(action: Action) -> bool:
    """Return whether an action has a deletion vector or enables them."""
    if isinstance(action, (AddFile, RemoveFile)):
        return action.deletion_vector is not None
    return sets(action, "delta.enableDeletionVectors", "true")


def uses_widening(action: Action) -> bool:
    """Return whether an action records a type change or enables type widening."""
    changed = isinstance(action, Metadata) and "delta.typeChanges" in action.schema_string
    return changed or sets(action, "delta.enableTypeWidening", "true")


def uses_mapping(action: Action) -> bool:
    """Return whether an action enables column mapping."""
    return sets(action, "delta.columnMapping.mode", "name", "id")


def uses_v2_checkpoints(action: Action) -> bool:
    """Return whether an action enables V2 checkpoints."""
    return sets(action, "delta.checkpointPolicy", "v2")
