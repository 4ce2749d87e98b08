"""What a person sees of a VACUUM: live counts on a terminal while it runs, some lines at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pydelta.commands.vacuum_result import VacuumProgress, VacuumResult

__all__ = ["live_counts", "partition_lines", "summary_lines"]

_SHOWN: Final = 20


@contextmanager
def live_counts() -> Iterator[Callable[[VacuumProgress], None] | None]:
    """Something to tell the progress to, shown on standard error; None where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("needed", total=None, counts="")

        def tell(state: VacuumProgress) -> None:
            counts = (
                f"{state.listed} listed, {state.kept} kept, {state.doomed} to go ({state.doomed_bytes} bytes), "
                f"{state.deleted} deleted ({state.deleted_bytes} bytes)"
            )
            total = state.doomed if state.phase == "deleting" else None
            bar.update(task, description=state.phase, total=total, completed=state.deleted, counts=counts)

        yield tell


def partition_lines(result: VacuumResult) -> list[str]:
    """Files and bytes that a dry run found, partition by partition, the largest first and not all of very many."""
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
    """What finding and deleting took, and how it ended."""
    lines = []
    if result.mode != "full":
        lines.append(
            f"Listing would have taken {result.listing_requests} LIST requests, or {result.directory_requests} "
            "directory by directory."
        )
    lines.append(
        f"{result.list_requests} LIST and {result.delete_requests} DELETE requests; {result.listed} files looked at, "
        f"{result.bytes} bytes {'to free' if result.dry_run else 'freed'}."
    )
    if result.noncurrent_bytes is not None:
        lines.append(
            f"{result.noncurrent_bytes} bytes are in {result.noncurrent_files} noncurrent versions, with "
            f"{result.delete_markers} delete markers: a lifecycle rule of the bucket expires them."
        )
    return [*lines, result.sentence]
