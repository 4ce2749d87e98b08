"""Look at tables repeatedly: each look lists the end of the log, and sums are only recomputed after a change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydelta.errors import TableNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.settings.maintenance import MaintenancePolicy
from pydelta.tools.maintenance.state import ActionFailure, MaintenanceState, last_runs, later_removals, state_of

__all__ = ["Known", "TableWatcher"]

_LOOK_BACK: Final = 100
"""Commits to read at the first look, to find OPTIMIZE and VACUUM runs of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts about a table that do not come from its log.

    Args:
        last: When each kind of action last succeeded, according to the journal.
        failures: Failed tries since then.
        inventory_ms: When the newest inventory of its bucket was made; None without one.
        announced: Whether a commit was announced but not yet published.
    """

    last: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, ActionFailure] = field(default_factory=dict)
    inventory_ms: int | None = None
    announced: bool = False


@dataclass(slots=True)
class TableWatcher:
    """A table that is looked at repeatedly. Not thread-safe.

    Args:
        name: Name of the table.
        log: Log of the table.
        defaults: Policy defaults, by short names.
        registered: Whether it has an entry in a metastore.
    """

    name: str
    log: DeltaLog
    defaults: Mapping[str, str] = field(default_factory=dict)
    registered: bool = False
    _snapshot: Snapshot | None = None
    _policy: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    _state: MaintenanceState | None = None
    _history: dict[str, int] = field(default_factory=dict)
    _read_to: int = -1
    sums: int = 0

    def look(self, known: Known, *, now_ms: int) -> tuple[MaintenanceState, MaintenancePolicy]:
        """Look at the newest version.

        Args:
            known: Facts from outside of the log.
            now_ms: The clock, epoch milliseconds.

        Raises:
            TableNotFoundError: The table does not exist, or no longer exists.
            InvalidArgumentError: A policy property is invalid.
            DeltaError: The log cannot be read.
        """
        snapshot = self.log.update()
        if snapshot.version < 0 or snapshot.metadata is None:
            raise TableNotFoundError(
                f"There is no Delta table at {self.log.uri}.",
                hint="If it was dropped, drop its entry in the metastore, too.",
            )
        if snapshot is not self._snapshot:
            self._policy = MaintenancePolicy.parse(snapshot.metadata.configuration, self.defaults)
            self._read_history(snapshot)
        last = _newest(self._history, known.last)
        state = self._state
        if state is None or snapshot is not self._snapshot or self._is_ripe(state, last, now_ms):
            before = state.removals if state is not None else ()
            state = state_of(self.name, snapshot, self._policy, last=last, now_ms=now_ms)
            state = dataclasses.replace(state, removals=later_removals(before, state.removals))
            self.sums += 1
        self._snapshot, self._state = snapshot, state
        return dataclasses.replace(
            state,
            failures=dict(known.failures),
            inventory_ms=known.inventory_ms,
            announced=known.announced,
            registered=self.registered,
        ), self._policy

    def _is_ripe(self, state: MaintenanceState, last: Mapping[str, int], now_ms: int) -> bool:
        """Return whether the sums of an unchanged snapshot would differ by now."""
        ripens_ms = state.compaction.ripens_ms
        return state.last != last or (ripens_ms is not None and now_ms >= ripens_ms)

    def _read_history(self, snapshot: Snapshot) -> None:
        """Read the new commits, if the policy needs to know when anyone last ran OPTIMIZE or VACUUM."""
        # The table was recreated at the same location.
        if self._snapshot is not None and snapshot.version < self._snapshot.version:
            self._history, self._read_to, self._state = {}, -1, None
        asks = self._policy.vacuum != "off" or self._policy.zorder_by or snapshot.clustering_columns
        if not (self._policy.enabled and asks):
            return
        fresh = snapshot.version - self._read_to
        records = self.log.history(limit=min(fresh, _LOOK_BACK))
        self._history |= last_runs([record for record in records if record.version > self._read_to])
        self._read_to = snapshot.version


def _newest(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    found = {kind: max(one.get(kind, -1), two.get(kind, -1)) for kind in one.keys() | two.keys()}
    return {kind: found[kind] for kind in sorted(found)}
