"""Read the maintenance policy of a table: its ``pydelta.maintenance.*`` properties, parsed into a frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydelta.errors import UnknownSettingError
from pydelta.errors.suggestions import did_you_mean
from pydelta.settings.row import rows_of, setting, unset
from pydelta.settings.values import (
    choice,
    parse_bool,
    parse_bytes,
    parse_columns,
    parse_interval_ms,
    parse_positive_int,
    parse_ratio,
)

__all__ = ["POLICY_PREFIX", "MaintenancePolicy", "policy_names"]

POLICY_PREFIX: Final = "pydelta.maintenance."


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """The maintenance policy of a table, with a row per property. Times are in milliseconds, sizes in bytes."""

    # fmt: off
    enabled: bool = setting("enabled", parse_bool, "true", "Whether the table is maintained.")
    compact: bool = setting("compact", parse_bool, "true", "Merge small files.")
    compact_min_files: int = setting("compact.minFiles", parse_positive_int, "50",
        "Merge when the table would then have this many files fewer.")
    small_file_bytes: int = setting("compact.smallFileSize", parse_bytes, "32mb", "Size below which a file is small.")
    min_age_ms: int = setting("compact.minAge", parse_interval_ms, "interval 10 minutes",
        "Minimum age of files to merge, and minimum time between two OPTIMIZE.")
    zorder_by: tuple[str, ...] = unset("zorder", parse_columns, (),
        "Columns to order rows by (ZORDER BY); unset: none.")
    cluster: bool = setting("cluster", parse_bool, "true", "Cluster the new files of a clustered table.")
    order_min_ratio: float = setting("order.minRatio", parse_ratio, "0.2",
        "Order or cluster when this share of the table's bytes is not in order.")
    vacuum: str = setting("vacuum", choice("off", "lite", "inventory", "full"), "off",
        "`off`; `lite`: delete the files that the log lists as removed; `inventory` and `full`: also delete, now and "
        "then, files that no commit names, found by an inventory or by a listing of the table.")
    vacuum_every_ms: int = setting("vacuum.every", parse_interval_ms, "interval 1 day",
        "Minimum time between two VACUUM LITE.")
    sweep_every_ms: int = setting("vacuum.sweepEvery", parse_interval_ms, "interval 7 days",
        "Minimum time between two VACUUM by inventory or listing.")
    sync: bool = setting("sync", parse_bool, "true", "Publish manifests and twin after a commit.")
    budget_bytes: int | None = unset("budget.bytes", parse_bytes, None,
        "Limit of the table's bytes read for maintenance per day; unset: no limit.")
    budget_requests: int | None = unset("budget.requests", parse_positive_int, None,
        "Limit of requests per day; unset: no limit.")
    # fmt: on

    @classmethod
    def parse(cls, configuration: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> MaintenancePolicy:
        """Parse the policy in a table's metadata. Other properties are ignored.

        Args:
            configuration: The table's properties.
            defaults: Values by short name (``vacuum``), used for properties that the table does not set.

        Raises:
            UnknownSettingError: A default is not a property of a policy. The error has a suggestion.
            InvalidArgumentError: A value is invalid. The error names it.
        """
        values: dict[str, Any] = {}
        for name, text in (defaults or {}).items():
            if name not in _ROWS:
                raise UnknownSettingError(
                    f"A maintenance policy has no property {name!r}.",
                    hint=did_you_mean(name, _ROWS, otherwise=f"Name one of: {', '.join(_ROWS)}."),
                )
            values[_ROWS[name].field] = _ROWS[name].parse(text, name=name)
        for name, row in _ROWS.items():
            full = POLICY_PREFIX + name
            if full in configuration:
                values[row.field] = row.parse(configuration[full], name=full)
        return cls(**values)


_ROWS: Final = rows_of(MaintenancePolicy)


def policy_names() -> tuple[str, ...]:
    """Return the full names of the properties."""
    return tuple(POLICY_PREFIX + name for name in _ROWS)
