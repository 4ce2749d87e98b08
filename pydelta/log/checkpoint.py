"""stub"""

from __future__ import annotations

from dataclasses import dataclass

from pydelta.log.snapshot import Snapshot
from pydelta.storage.interface import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResult:
    """What was written."""

    version: int


def write_checkpoint(store: Store, snapshot: Snapshot, *, now_ms: int | None = None) -> CheckpointResult:
    """Write."""
    raise NotImplementedError
