"""Run what follows a landed commit: checksum, log compaction, checkpoint, log clean-up, and the hooks of others.

A hook cannot fail a commit: the version is in the log when it runs. What it raises is logged and handed back.
Each has a deadline for all that it waits for (``spark.pydelta.hooks.timeout``), since whoever committed waits with it.
Other packages add hooks through the entry point group ``pydelta.hooks``; each entry names a callable that takes a
``HookContext``, and says by a decorator which commits concern it: ``after_commits_where(table_says(…))``.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Final, TypeAlias

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.checksum import read_checksum
from pydelta.protocol.actions import Action
from pydelta.settings.clock import Deadline
from pydelta.txn.background import behind_commits

__all__ = [
    "ENTRY_POINT_GROUP",
    "Hook",
    "HookContext",
    "HookFailure",
    "after_commits_where",
    "built_in_hooks",
    "environment_has",
    "run_hooks",
    "table_says",
]

ENTRY_POINT_GROUP: Final = "pydelta.hooks"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookContext:
    """What a hook may look at.

    Args:
        log: The table's log.
        snapshot: The state at the new version.
        previous: The state just before it.
        actions: The lines of the new commit.
        now_ms: The clock, epoch milliseconds.
        deadline: How long the hook may wait for others, a metastore or another process, in all.
    """

    log: DeltaLog
    snapshot: Snapshot
    previous: Snapshot
    actions: Sequence[Action]
    now_ms: int
    deadline: Deadline = field(default_factory=lambda: Deadline(None))


Hook: TypeAlias = Callable[[HookContext], object]


def table_says(name: str) -> Callable[[HookContext], bool]:
    """Return what asks whether a property of the table is ``true``."""

    def holds(context: HookContext) -> bool:
        metadata = context.snapshot.metadata
        return metadata is not None and metadata.configuration.get(name, "").strip().lower() == "true"

    return holds


def environment_has(name: str) -> Callable[[HookContext], bool]:
    """Return what asks whether a variable of the environment is set."""
    return lambda _: bool(os.environ.get(name))


def after_commits_where(concerned: Callable[[HookContext], bool]) -> Callable[[Hook], Hook]:
    """Let a hook run after the commits alone that concern it; after all others it is not entered."""

    def decorate(hook: Hook) -> Hook:
        @functools.wraps(hook)
        def run(context: HookContext) -> object:
            return hook(context) if concerned(context) else None

        return run

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailure:
    """A hook that failed after the commit had landed."""

    name: str
    error: Exception


def write_checksum(context: HookContext) -> None:
    """Put ``N.crc`` beside the commit ("Version Checksum File")."""
    context.log.write_checksum(context.snapshot)


def write_checkpoint(context: HookContext) -> None:
    """At each ``delta.checkpointInterval``-th version put a checkpoint, then clean the log up behind it.

    Where the table has many files, this is done behind the commit, by a thread of the process.
    """
    snapshot, log, now_ms = context.snapshot, context.log, context.now_ms
    if snapshot.version == 0 or snapshot.version % snapshot.properties.checkpoint_interval:
        return

    def put() -> None:
        log.checkpoint(snapshot)
        if snapshot.properties.enable_expired_log_cleanup:
            log.cleanup(now_ms)

    if _num_files(context) < log.settings.checkpoint_behind_files:
        put()
    else:
        behind_commits.follow(log.uri, f"The checkpoint of version {snapshot.version}", put)


def _num_files(context: HookContext) -> int:
    """How many live files there are; as the checksum claims where only the whole table could tell."""
    sums = context.snapshot.sums()
    if sums is None:
        claimed = read_checksum(context.log.store, context.snapshot.version)
        return context.snapshot.num_files if claimed is None else claimed.sums.num_files
    return sums.num_files


def write_compacted(context: HookContext) -> None:
    """Put the log compaction file that ``pydelta.log.compactionInterval`` asks for at this version."""
    if context.snapshot.properties.log_compaction_interval:
        context.log.compact(context.snapshot)


def built_in_hooks() -> tuple[tuple[str, Hook], ...]:
    """Return the engine's own hooks, in the order they run."""
    return (("checksum", write_checksum), ("compaction", write_compacted), ("checkpoint", write_checkpoint))


@functools.cache
def _installed_hooks() -> tuple[tuple[str, Callable[[], Hook]], ...]:
    found = entry_points(group=ENTRY_POINT_GROUP)
    return tuple((entry.name, entry.load) for entry in sorted(found, key=lambda entry: entry.name))


def run_hooks(
    context: HookContext,
    *,
    hooks: Sequence[tuple[str, Hook]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[HookFailure, ...]:
    """Run the hooks one after the other, each with a deadline of its own; one that fails stops no other.

    Args:
        context: The landed commit.
        hooks: Names and hooks; None for the built-in ones and then those that are installed.
        clock: Of the deadlines.

    Returns:
        The failures, in order. Each was logged as a warning: the engine's own by its message, others with tracebacks.
    """
    todo: list[tuple[str, Callable[[], Hook]]]
    if hooks is None:
        todo = [*((name, _constant(hook)) for name, hook in built_in_hooks()), *_installed_hooks()]
    else:
        todo = [(name, _constant(hook)) for name, hook in hooks]
    failures: list[HookFailure] = []
    for name, load in todo:
        try:
            seconds = context.log.settings.hooks_timeout_ms / 1000
            load()(replace(context, deadline=Deadline(seconds, clock=clock)))
        except Exception as error:  # the commit stands, whatever a hook does
            is_told = isinstance(error, DeltaError)  # its message says what happened, and what to do
            _logger.warning(
                "Hook %s failed after version %d was committed%s",
                name,
                context.snapshot.version,
                f": {error}" if is_told else "",
                exc_info=None if is_told else error,
                extra={"hook": name, "table": context.snapshot.table_uri, "version": context.snapshot.version},
            )
            if is_told:
                _logger.debug("The hook failed here", exc_info=error)
            failures.append(HookFailure(name=name, error=error))
    return tuple(failures)


def _constant(hook: Hook) -> Callable[[], Hook]:
    return lambda: hook
