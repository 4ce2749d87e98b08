"""Read how a table wants to be maintained: its ``pydelta.maintenance.*`` properties, parsed into a frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydelta.errors import UnknownSettingError
from pydelta.errors.suggestions import did_you_mean
from pydelta.settings.values import (
    DAY_MS,
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

_PARSERS: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = {
    "enabled": ("enabled", parse_bool),
    "compact": ("compact", parse_bool),
    "compact.minFiles": ("compact_min_files", parse_positive_int),
    "compact.smallFileSize": ("small_file_bytes", parse_bytes),
    "compact.minAge": ("min_age_ms", parse_interval_ms),
    "zorder": ("zorder_by", parse_columns),
    "cluster": ("cluster", parse_bool),
    "order.minRatio": ("order_min_ratio", parse_ratio),
    "vacuum": ("vacuum", choice("off", "lite", "inventory", "full")),
    "vacuum.every": ("vacuum_every_ms", parse_interval_ms),
    "vacuum.sweepEvery": ("sweep_every_ms", parse_interval_ms),
    "sync": ("sync", parse_bool),
    "budget.bytes": ("budget_bytes", parse_bytes),
    "budget.requests": ("budget_requests", parse_positive_int),
}


def policy_names() -> tuple[str, ...]:
    """Return the full names of the properties, as they are spelt."""
    return tuple(POLICY_PREFIX + name for name in _PARSERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """How a table wants to be maintained. Times in milliseconds, sizes in bytes.

    Args:
        enabled: False: the table is left alone.
        compact: Merge small files.
        compact_min_files: Do it when a table would have this many files fewer afterwards.
        small_file_bytes: Files smaller than this are small.
        min_age_ms: Younger files are left to those who write them; at least so long between two OPTIMIZE.
        zorder_by: Columns to order rows by (ZORDER BY); empty for none.
        cluster: Put the new files of a clustered table in order.
        order_min_ratio: Do either when this part of the table's bytes is in no order yet.
        vacuum: ``off``; ``lite`` for what the log says was removed; ``inventory`` and ``full`` for that and, now and
            then, for files that no commit names: by an inventory, or by a listing of the table.
        vacuum_every_ms: At least so long between two VACUUM LITE.
        sweep_every_ms: At least so long between two VACUUM by inventory or listing.
        sync: Publish manifests and twin when a commit is announced.
        budget_bytes: Most bytes of the table that are read for it in a day; None for no limit of its own.
        budget_requests: Most requests in a day; None likewise.
    """

    enabled: bool = True
    compact: bool = True
    compact_min_files: int = 50
    small_file_bytes: int = 32 * 1024 * 1024
    min_age_ms: int = 10 * 60_000
    zorder_by: tuple[str, ...] = ()
    cluster: bool = True
    order_min_ratio: float = 0.2
    vacuum: str = "off"
    vacuum_every_ms: int = DAY_MS
    sweep_every_ms: int = 7 * DAY_MS
    sync: bool = True
    budget_bytes: int | None = None
    budget_requests: int | None = None

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
            if name not in _PARSERS:
                raise UnknownSettingError(
                    f"A maintenance policy has no property {name!r}.",
                    hint=did_you_mean(name, _PARSERS, otherwise=f"Name one of: {', '.join(_PARSERS)}."),
                )
            field, parser = _PARSERS[name]
            values[field] = parser(text, name=name)
        for name, (field, parser) in _PARSERS.items():
            full = POLICY_PREFIX + name
            if full in configuration:
                values[field] = parser(configuration[full], name=full)
        return cls(**values)
