"""A table in, the files that no retained version needs deleted: found by listing, by the log alone, or by an inventory."""

from __future__ import annotations

from collections.abc import Callable

from pydelta.commands.inventory import Inventory
from pydelta.commands.vacuum_result import VacuumMode, VacuumOptions, VacuumProgress, VacuumResult
from pydelta.log import DeltaLog
from pydelta.predicate import Expr

__all__ = ["VacuumOptions", "VacuumProgress", "VacuumResult", "vacuum"]


def vacuum(
    log: DeltaLog,
    *,
    retention_hours: float | None = None,
    dry_run: bool = False,
    mode: VacuumMode = "full",
    inventory: Inventory | None = None,
    where: Expr | str | None = None,
    enforce_retention: bool = True,
    progress: Callable[[VacuumProgress], None] | None = None,
    now_ms: int | None = None,
    options: VacuumOptions | None = None,
) -> VacuumResult:
    """Delete what is older than the retention and what no version since then needs.

    Args:
        log: The table.
        retention_hours: How far back versions stay readable; None for the table's
            ``delta.deletedFileRetentionDuration`` (a week).
        dry_run: Only say what would go.
        mode: ``full`` lists the table; ``lite`` takes from the log what was removed; ``inventory`` reads a list.
        inventory: For ``inventory``; giving one chooses that mode.
        where: Condition over partition columns: only files in directories of these partitions.
        enforce_retention: Refuse a retention below the table's; the session's setting can turn that off too.
        progress: Told now and then how far it has got.
        now_ms: The clock, epoch milliseconds; None for now.
        options: How to go about it.
    """
    raise NotImplementedError
