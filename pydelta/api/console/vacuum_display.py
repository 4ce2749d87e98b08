"""Show a VACUUM to a person: live counts on a terminal while it runs, a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pydelta.commands.vacuum.command import VacuumProgress, VacuumResult

__all__ = ["counts_line", "live_counts", "partition_lines", "summary_lines"]

_SHOWN: Final = 20
_STEPS: Final = ("k", "M", "G", "T", "P")


@contextmanager
def live_counts() -> Iterator[Callable[[VacuumProgress], None] | None]:
    """Yield a callback that shows progress on standard error; None if that is not a terminal."""
    from pydelta.api.console.terminal import Terminal

    terminal = Terminal(error=True)
    if not terminal.is_terminal:
        yield None
        return
    with terminal.bar("needed") as show:
        yield lambda state: show(
            state.phase, state.doomed if state.phase == "deleting" else None, state.deleted, counts_line(state)
        )


def counts_line(state: VacuumProgress) -> str:
    """Format a run's progress in at most 50 characters, since 80 columns also hold phase, bar and time.

    Example:
        >>> counts_line(VacuumProgress(phase="listing", listed=12_345_678, kept=12_345_670, doomed=8, doomed_bytes=9))
        '12.3M listed, 12.3M kept, 8 to go (9 B)'
    """
    if state.phase == "deleting":
        return f"{_short(state.deleted)} of {_short(state.doomed)} deleted ({_short(state.deleted_bytes, 'B')})"
    counts = f"{_short(state.listed)} listed, {_short(state.kept)} kept, {_short(state.doomed)} to go"
    return f"{counts} ({_short(state.doomed_bytes, 'B')})"


def _short(number: int, unit: str = "") -> str:
    """Format a count in at most six characters, not counting the unit."""
    if number < 1000:
        return f"{number} {unit}".strip()
    scaled, step = number / 1000, 0
    while scaled >= 999.95 and step < len(_STEPS) - 1:
        scaled, step = scaled / 1000, step + 1
    prefix = _STEPS[step]
    return f"{scaled:.1f} {prefix}{unit}" if unit else f"{scaled:.1f}{prefix}"


def partition_lines(result: VacuumResult) -> list[str]:
    """List files and bytes that a dry run found per partition: the largest ones, and a total of the others."""
    totals = result.partitions
    lines = [
        f"{partition or '(no partition)'}: {files} files, {size} bytes"
        for partition, files, size in totals.head(_SHOWN).iter_rows()
    ]
    if totals.height > _SHOWN:
        rest = totals.slice(_SHOWN)
        lines.append(f"{rest.height} more partitions: {rest['files'].sum()} files, {rest['bytes'].sum()} bytes")
    return lines


def summary_lines(result: VacuumResult) -> list[str]:
    """Summarize the requests and the result of a VACUUM."""
    lines = []
    if result.mode != "full":
        lines.append(
            f"A listing would have taken {result.listing_requests} LIST requests, or {result.directory_requests} "
            "directory by directory."
        )
    lines.append(f"{result.list_requests} LIST and {result.delete_requests} DELETE requests.")
    freed = "to free" if result.dry_run else "freed"
    lines.append(f"{result.listed} files listed, {result.bytes} bytes {freed}.")
    if result.noncurrent_bytes is not None:
        lines.append(
            f"{result.noncurrent_bytes} bytes are in {result.noncurrent_files} noncurrent versions, with "
            f"{result.delete_markers} delete markers: a lifecycle rule of the bucket expires them."
        )
    return [*lines, result.sentence]
