"""Decide which actions a table needs, and why, from its state, its policy and the rest of the day's budget. Pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Final

from pydelta.errors import CannotVacuumLiteError
from pydelta.settings.maintenance import MaintenancePolicy
from pydelta.tools.maintenance.state import ActionKind, MaintenanceState, Removals

__all__ = ["MAKE_INVENTORY", "NO_INVENTORY", "Action", "DailyBudget", "decide", "retry_ms"]

MAKE_INVENTORY: Final = (
    "Make one now: scripts/lake inventory in the stack, elsewhere jobs/inventory.py, then jobs/load_inventory.py."
)
NO_INVENTORY: Final = f"no inventory of its bucket has been loaded. {MAKE_INVENTORY}"
"""The reason why an action waits for an inventory."""
_PAGE: Final = 1000
"""Names per page of a listing, and files per bulk deletion."""
_FIRST_PAUSE_MS: Final = 5 * 60_000
_LONGEST_PAUSE_MS: Final = 6 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyBudget:
    """The budget that is left for today. None means no limit.

    Args:
        bytes: Bytes to read from tables.
        requests: Requests to the store.
    """

    bytes: int | None = None
    requests: int | None = None

    def less(self, action: Action) -> DailyBudget:
        """Return the budget that an action leaves."""
        return DailyBudget(
            bytes=None if self.bytes is None else max(self.bytes - action.bytes, 0),
            requests=None if self.requests is None else max(self.requests - action.requests, 0),
        )

    def within(self, other: DailyBudget) -> DailyBudget:
        """Return the lower limit of both, field by field."""

        def lower(one: int | None, two: int | None) -> int | None:
            return min((value for value in (one, two) if value is not None), default=None)

        return DailyBudget(bytes=lower(self.bytes, other.bytes), requests=lower(self.requests, other.requests))

    def refuses(self, action: Action) -> str | None:
        """Return why an action exceeds the budget; None if it does not."""
        if self.bytes is not None and action.bytes > self.bytes:
            return f"it would read {shown_bytes(action.bytes)}, and today's budget has {shown_bytes(self.bytes)} left"
        if self.requests is not None and action.requests > self.requests:
            return f"it would take {action.requests} requests, and today's budget has {self.requests} left"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action on a table, with its expected cost and savings.

    Args:
        kind: See ``ActionKind``.
        reason: The reason, for people.
        files, bytes: Data files that it reads.
        requests: Requests to the store.
        saved_files, saved_bytes: How much less the table or its store would hold.
        held: Why it is held back; None if it is due.
    """

    kind: str
    reason: str
    files: int = 0
    bytes: int = 0
    requests: int = 0
    saved_files: int = 0
    saved_bytes: int = 0
    held: str | None = None


def decide(state: MaintenanceState, policy: MaintenancePolicy, budget: DailyBudget, *, now_ms: int) -> list[Action]:
    """Decide what to do with a table, and in which order. Pure: looks only at its arguments.

    Args:
        state: The table.
        policy: Its maintenance policy.
        budget: The rest of the day's budget, for all tables and for this one.
        now_ms: The clock, epoch milliseconds.

    Returns:
        The actions that are due, and those that are held back by the budget or by a recent failure.
    """
    if not policy.enabled or state.version < 0:
        return []
    wanted = [_sync(state, policy), _optimize(state, policy, now_ms), *_vacuums(state, policy, now_ms)]
    actions = []
    for action in wanted:
        if action is None:
            continue
        held = action.held or _backs_off(state, action.kind, now_ms) or budget.refuses(action)
        if held is None:
            budget = budget.less(action)
        actions.append(replace(action, held=held))
    return actions


def retry_ms(tries: int) -> int:
    """Return how long a failed action is left alone after its last try. The pause doubles, up to six hours.

    Example:
        >>> [retry_ms(tries) // 60_000 for tries in (1, 2, 3, 20)]
        [5, 10, 20, 360]
    """
    return min(_FIRST_PAUSE_MS << min(tries - 1, 20), _LONGEST_PAUSE_MS)


def _backs_off(state: MaintenanceState, kind: str, now_ms: int) -> str | None:
    failure = state.failures.get(kind)
    if failure is None:
        return None
    due_ms = failure.last_ms + retry_ms(failure.tries)
    if now_ms >= due_ms:
        return None
    times = "once" if failure.tries == 1 else f"{failure.tries} times"
    return f"it failed {times}, the next try is at {shown_time(due_ms)}: {failure.said}"


def _sync(state: MaintenanceState, policy: MaintenancePolicy) -> Action | None:
    if not (state.announced and state.registered and policy.sync):
        return None
    return Action(kind=ActionKind.SYNC, reason=f"version {state.version} was announced")


def _optimize(state: MaintenanceState, policy: MaintenancePolicy, now_ms: int) -> Action | None:
    """Choose the OPTIMIZE that a table needs most: ordering rows comes before merging small files."""
    last_ms = max((state.last[kind] for kind in ActionKind.OPTIMIZES if kind in state.last), default=None)
    if last_ms is not None and now_ms - last_ms < policy.min_age_ms:
        return None
    small = state.compaction
    crowded = policy.compact and small.saved >= policy.compact_min_files
    orders = ActionKind.ZORDER if policy.zorder_by else None
    if state.clustered:
        orders = ActionKind.CLUSTER
    if orders == ActionKind.CLUSTER and not policy.cluster:
        return None  # OPTIMIZE of a clustered table also orders rows, but the policy turned that off.
    ratio = state.unordered_bytes / state.bytes if state.bytes else 0.0
    fresh = state.unordered_bytes >= policy.small_file_bytes and ratio >= policy.order_min_ratio
    reads = {
        ActionKind.CLUSTER: (state.unordered_files, state.unordered_bytes),
        ActionKind.ZORDER: (state.files, state.bytes),
    }
    if orders is not None and (fresh or (crowded and orders == ActionKind.CLUSTER)):
        files, size = reads[orders]
        why = (
            f"{shown_bytes(state.unordered_bytes)} of {shown_bytes(state.bytes)} ({ratio:.0%}) came after the last "
            f"{orders}; the bound is {policy.order_min_ratio:.0%}"
            if fresh
            else _many(state, policy)
        )
        return Action(
            kind=orders, reason=why, files=files, bytes=size, requests=_rewrite_requests(files, size),
            saved_files=max(small.saved, 0),
        )  # fmt: skip
    if not crowded:
        return None
    return Action(
        kind=ActionKind.COMPACT,
        reason=_many(state, policy),
        files=small.files,
        bytes=small.bytes,
        requests=_rewrite_requests(small.files, small.bytes),
        saved_files=small.saved,
    )


def _many(state: MaintenanceState, policy: MaintenancePolicy) -> str:
    small = state.compaction
    return (
        f"{small.files} files below {shown_bytes(policy.small_file_bytes)} ({shown_bytes(small.bytes)}) can become "
        f"{small.new_files}: {small.saved} fewer; the bound is {policy.compact_min_files}"
    )


def _rewrite_requests(files: int, size: int) -> int:
    """Estimate requests: a footer and a read per file, a write per 128 MiB, and the commit."""
    return 2 * files + size // (128 << 20) + 4


def _vacuums(state: MaintenanceState, policy: MaintenancePolicy, now_ms: int) -> list[Action]:
    if policy.vacuum == "off":
        return []
    sweep = None if policy.vacuum == "lite" else policy.vacuum
    lite_failure = state.failures.get(ActionKind.LITE)
    impossible = lite_failure is not None and lite_failure.code.startswith(CannotVacuumLiteError.code)
    found = []
    if not (impossible and sweep):
        found.append(_lite(state, policy, now_ms))
    if sweep is not None:
        found.append(_sweep(state, policy, f"vacuum {sweep}", now_ms, in_place_of_lite=impossible))
    return [action for action in found if action is not None]


def _lite(state: MaintenanceState, policy: MaintenancePolicy, now_ms: int) -> Action | None:
    last_ms = max((state.last[kind] for kind in ActionKind.VACUUMS if kind in state.last), default=None)
    if last_ms is not None and now_ms - last_ms < policy.vacuum_every_ms:
        return None
    expired = _expired(state, last_ms, now_ms)
    files = sum(item.files for item in expired)
    if not files:
        return None
    size = sum(item.bytes for item in expired)
    return Action(
        kind=ActionKind.LITE,
        reason=f"{files} files ({shown_bytes(size)}) were removed more than {shown_span(state.retention_ms)} ago, and "
        "no VACUUM has run since they expired",
        requests=state.commits + files // _PAGE + 4,
        saved_files=files,
        saved_bytes=size,
    )


def _expired(state: MaintenanceState, last_ms: int | None, now_ms: int) -> list[Removals]:
    """Return the removals whose retention has ended since the last VACUUM."""
    done_ms = -1 if last_ms is None else last_ms - state.retention_ms
    return [item for item in state.removals if done_ms <= item.last_ms < now_ms - state.retention_ms]


def _sweep(
    state: MaintenanceState, policy: MaintenancePolicy, kind: str, now_ms: int, *, in_place_of_lite: bool
) -> Action | None:
    """Decide on a VACUUM that also finds unreferenced files. With an inventory, only a new inventory justifies it."""
    last_ms = state.last.get(kind)
    every_ms = policy.vacuum_every_ms if in_place_of_lite else policy.sweep_every_ms
    if state.created_ms + state.retention_ms > now_ms:
        return None  # Every file is younger than the retention.
    if last_ms is not None and now_ms - last_ms < every_ms:
        return None
    listed_ms = state.inventory_ms
    if kind == ActionKind.INVENTORY and last_ms is not None and listed_ms is not None and listed_ms <= last_ms:
        return None
    since = f"the last one was at {shown_time(last_ms)}" if last_ms is not None else "none is known"
    why = f"files that no commit names are looked for every {shown_span(every_ms)}, and {since}"
    if in_place_of_lite:
        why = f"VACUUM LITE is not possible for this table, and {since}"
    return Action(
        kind=kind,
        reason=why,
        requests=state.commits + 4 + (state.files // _PAGE + 1 if kind == ActionKind.FULL else 0),
        held=NO_INVENTORY if kind == ActionKind.INVENTORY and listed_ms is None else None,
    )


def shown_bytes(size: int) -> str:
    """Format a size for people.

    Example:
        >>> shown_bytes(512), shown_bytes(33_554_432)
        ('512 B', '32.0 MiB')
    """
    value, units = float(size), ("B", "KiB", "MiB", "GiB", "TiB")
    place = 0
    while value >= 1024 and place < len(units) - 1:
        value, place = value / 1024, place + 1
    return f"{size} B" if not place else f"{value:.1f} {units[place]}"


def shown_span(span_ms: int) -> str:
    """Format a duration in its largest whole unit.

    Example:
        >>> shown_span(604_800_000), shown_span(90_000)
        ('7 days', '90 seconds')
    """
    for name, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if span_ms and span_ms % size == 0:
            count = span_ms // size
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{span_ms} ms"


def shown_time(time_ms: int) -> str:
    """Format a time in UTC."""
    return f"{dt.datetime.fromtimestamp(time_ms / 1000, tz=dt.UTC):%Y-%m-%d %H:%M} UTC"
