"""Run the hooks of a landed commit: checksum, log compaction, checkpoint, log clean-up, and installed hooks.

A hook cannot fail a commit, because the version is already in the log. Its errors are logged and returned. Each hook
has a deadline for all its waiting (``spark.pydelta.hooks.timeout``), since the committer waits for it. Other packages
add hooks through the entry point group ``pydelta.hooks``. Each entry names a callable that takes a ``HookContext``; a
decorator, ``after_commits_where(table_says(…))``, limits it to the commits that concern it. The callable may have an
attribute ``refused``, which is called with a ``RefusedCommit`` when a command gives up.

Checkpoints of large tables are written behind the commits: in one thread per process, only the newest per table, all
before the process ends.

::

    commit of version 100 --> follow(table, checkpoint of 100) --> thread: checkpoint of 100 …
    commit of version 110 --> waits                                         |
    commit of version 120 --> replaces the work of 110         <-- done ----+--> checkpoint of 120

Failures there are logged. The commits stand, and the next commit due for a checkpoint writes it.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Final, TypeAlias

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.side_files import read_checksum
from pydelta.protocol.actions import Action
from pydelta.settings.clock import Deadline

__all__ = [
    "ENTRY_POINT_GROUP",
    "Behind",
    "Hook",
    "HookContext",
    "HookFailure",
    "RefusedCommit",
    "after_commits_where",
    "behind_commits",
    "built_in_hooks",
    "environment_has",
    "run_hooks",
    "run_refusal_hooks",
    "table_says",
]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Work:
    what: str
    run: Callable[[], object]


class Behind:
    """A thread and its queue. The interpreter joins the thread at exit, so that no work is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Work] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._futures: set[Future[None]] = set()

    def follow(self, table: str, what: str, run: Callable[[], object]) -> None:
        """Run work soon. It replaces work that is already waiting for the same table.

        Args:
            table: Its URI.
            what: Description of the work, for the log.
            run: Does the work.
        """
        with self._lock:
            is_new = table not in self._waiting
            self._waiting[table] = _Work(what, run)
            if not is_new:
                return
            if self._threads is None:
                self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pydelta-behind")
            try:
                future = self._threads.submit(self._do, table)
            except RuntimeError:  # The interpreter is exiting and starts no more threads.
                future = None
            if future is not None:
                self._futures.add(future)
                future.add_done_callback(self._futures.discard)
                return
        self._do(table)

    def _do(self, table: str) -> None:
        with self._lock:
            work = self._waiting.pop(table)
        started = time.monotonic()
        try:
            work.run()
        except Exception:  # The commit stands, even if the work after it fails.
            _logger.warning("%s failed", work.what, exc_info=True, extra={"table": table})
        else:
            _logger.info("%s took %.1f s", work.what, time.monotonic() - started, extra={"table": table})

    def join(self, seconds: float | None = None) -> bool:
        """Wait until no work is waiting or running. Returns False if ``seconds`` (None for no limit) was not enough."""
        with self._lock:
            futures = set(self._futures)
        return not wait(futures, timeout=seconds).not_done


behind_commits = Behind()
"""The instance of this process."""


ENTRY_POINT_GROUP: Final = "pydelta.hooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookContext:
    """The input of a hook.

    Args:
        log: The table's log.
        snapshot: The state at the new version.
        previous: The state just before it.
        actions: The lines of the new commit.
        now_ms: Current time, epoch milliseconds.
        deadline: Total time that the hook may wait, for example for a metastore or another process.
    """

    log: DeltaLog
    snapshot: Snapshot
    previous: Snapshot
    actions: Sequence[Action]
    now_ms: int
    deadline: Deadline = field(default_factory=lambda: Deadline(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCommit:
    """A command that made no commit, or one whose outcome is unknown.

    Args:
        table: Location of the table.
        error: The conflict, or the lost reply.
    """

    table: str
    error: DeltaError


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


def after_commits_where(
    concerned: Callable[[HookContext], bool], *, refused: Callable[[RefusedCommit], object] | None = None
) -> Callable[[Hook], Hook]:
    """Let a hook run after the commits alone that concern it; after all others it is not entered.

    Args:
        concerned: Returns whether a commit concerns the hook.
        refused: What to call when a command gives up.
    """

    def decorate(hook: Hook) -> Hook:
        @functools.wraps(hook)
        def run(context: HookContext) -> object:
            return hook(context) if concerned(context) else None

        run.refused = refused  # type: ignore[attr-defined]
        return run

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailure:
    """A hook that failed after the commit had landed."""

    name: str
    error: Exception


def write_checksum(context: HookContext) -> None:
    """Write ``N.crc`` next to the commit ("Version Checksum File")."""
    context.log.write_checksum(context.snapshot)


def write_checkpoint(context: HookContext) -> None:
    """Write a checkpoint at each multiple of ``delta.checkpointInterval``, then clean up the log behind it.

    For tables with many files, a background thread does this.
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
    """Return the number of live files. If only the file table knows it, trust the checksum's number."""
    sums = context.snapshot.sums()
    if sums is None:
        claimed = read_checksum(context.log.store, context.snapshot.version)
        return context.snapshot.num_files if claimed is None else claimed.sums.num_files
    return sums.num_files


def write_compacted(context: HookContext) -> None:
    """Write the log compaction file if ``pydelta.log.compactionInterval`` makes one due at this version."""
    if context.snapshot.properties.log_compaction_interval:
        context.log.compact(context.snapshot)


def built_in_hooks() -> tuple[tuple[str, Hook], ...]:
    """Return the engine's own hooks, in the order in which they run."""
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
    """Run the hooks in sequence, each with its own deadline. A failure does not stop the others.

    Args:
        context: The landed commit.
        hooks: Names and hooks; None for the built-in ones followed by the installed ones.
        clock: Clock of the deadlines.

    Returns:
        The failures, in order. Each was logged as a warning: engine errors by message, others with a traceback.
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
        except Exception as error:  # The commit stands, whatever a hook does.
            is_explained = isinstance(error, DeltaError)  # Its message says what happened and what to do.
            _logger.warning(
                "Hook %s failed after version %d was committed%s",
                name,
                context.snapshot.version,
                f": {error}" if is_explained else "",
                exc_info=None if is_explained else error,
                extra={"hook": name, "table": context.snapshot.table_uri, "version": context.snapshot.version},
            )
            if is_explained:
                _logger.debug("The hook failed here", exc_info=error)
            failures.append(HookFailure(name=name, error=error))
    return tuple(failures)


def run_refusal_hooks(refused: RefusedCommit) -> None:
    """Call what installed hooks have for refused commits. A failure there is logged, and never raised."""
    for name, load in _installed_hooks():
        try:
            tell = getattr(load(), "refused", None)
            if tell is not None:
                tell(refused)
        except Exception as error:  # noqa: BLE001 -- the caller raises the refusal itself
            _logger.warning("Hook %s failed after a refused commit: %s", name, error, extra={"table": refused.table})


def _constant(hook: Hook) -> Callable[[], Hook]:
    return lambda: hook
