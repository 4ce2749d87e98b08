"""Read how a table wants to be maintained: its ``pydelta.maintenance.*`` properties, parsed into a frozen value."""

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
    """How a table wants to be maintained, a row per property. Times in milliseconds, sizes in bytes."""

    # fmt: off
    enabled: bool = setting("enabled", parse_bool, "true", "Whether the table is maintained; if not, it is left alone.")
    compact: bool = setting("compact", parse_bool, "true", "Merge small files.")
    compact_min_files: int = setting("compact.minFiles", parse_positive_int, "50",
        "Do it when a table would have this many files fewer afterwards.")
    small_file_bytes: int = setting("compact.smallFileSize", parse_bytes, "32mb", "Files smaller than this are small.")
    min_age_ms: int = setting("compact.minAge", parse_interval_ms, "interval 10 minutes",
        "Younger files are left to those who write them; at least this long between two OPTIMIZE.")
    zorder_by: tuple[str, ...] = unset("zorder", parse_columns, (),
        "Columns to order rows by (ZORDER BY); empty for none.")
    cluster: bool = setting("cluster", parse_bool, "true", "Put the new files of a clustered table in order.")
    order_min_ratio: float = setting("order.minRatio", parse_ratio, "0.2",
        "Do either when this part of the table's bytes is in no order yet.")
    vacuum: str = setting("vacuum", choice("off", "lite", "inventory", "full"), "off",
        "`off`; `lite` for what the log says was removed; `inventory` and `full` for that and, now and then, "
        "for files that no commit names: by an inventory, or by a listing of the table.")
    vacuum_every_ms: int = setting("vacuum.every", parse_interval_ms, "interval 1 day",
        "At least this long between two VACUUM LITE.")
    sweep_every_ms: int = setting("vacuum.sweepEvery", parse_interval_ms, "interval 7 days",
        "At least this long between two VACUUM by inventory or listing.")
    sync: bool = setting("sync", parse_bool, "true", "Publish manifests and twin when a commit is announced.")
    budget_bytes: int | None = unset("budget.bytes", parse_bytes, None,
        "Most bytes of the table that are read for it in a day; unset: no limit of its own.")
    budget_requests: int | None = unset("budget.requests", parse_positive_int, None,
        "Most requests in a day; unset: no limit of its own.")
    # fmt: on

    @classmethod
    def parse(cls, configuration: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> MaintenancePolicy:
        """Parse what a table's metadata carries; other properties are passed over.

        Args:
            configuration: The table's properties.
            defaults: Short names (``vacuum``) and texts for what the table does not say.

        Raises:
            UnknownSettingError: A default of a name that is not a policy's, with a suggestion.
            InvalidArgumentError: A value that cannot be right, named.
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
    """Return the full names of the properties, as they are spelt."""
    return tuple(POLICY_PREFIX + name for name in _ROWS)
