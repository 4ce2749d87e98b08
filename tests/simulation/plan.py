"""Draw what is done, and do it: operations of several writers, in rounds between which time passes."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest import mock

from pydelta.commands.vacuum.command import Vacuum, VacuumOptions
from pydelta.errors import (
    CommitStateUnknownError,
    DeltaConcurrentModificationException,
    DeltaError,
    LogCorruptedError,
    LogGapError,
    StorageError,
)
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests.publish import ManifestOptions, publish
from pydelta.protocol.actions import AddFile, CommitInfo, encode_commit
from pydelta.protocol.paths import LOG_DIR, commit_file, decode_log_path
from pydelta.settings import Settings
from pydelta.testing import operations as ops
from pydelta.testing import row_files
from pydelta.testing.commands import vacuum
from pydelta.testing.row_files import Rows
from pydelta.testing.stores import SimulatedCrash
from pydelta.txn import Committed, transaction
from pydelta.txn.commit import SILENT
from pydelta.txn.hooks import built_in_hooks
from tests.simulation.arrow import KINDS, arrow_operation, file_bytes, is_arrow, tagged
from tests.simulation.world import SimStore, World

__all__ = ["FAULTS", "RETENTION_MS", "Done", "Step", "draw_plan", "recorded", "run_step"]

HOUR_MS: Final = 3_600_000
RETENTION_MS: Final = HOUR_MS
LOG_RETENTION_MS: Final = 2 * HOUR_MS
PAUSES_MS: Final = (0, 0, HOUR_MS // 3, 2 * HOUR_MS, 50 * HOUR_MS)
FAULTS: Final = ("overwriting writer", "vacuum without retention", "crowd")
_OWN: Final = threading.local()
_SLEEPLESS: Final = VacuumOptions(list_workers=1, delete_workers=1, sleep=lambda seconds: None)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: by whom, in which round, of what kind and with which numbers."""

    number: int
    round: int
    actor: str
    kind: str
    partition: str
    value: int

    def __str__(self) -> str:
        return f"#{self.number} round {self.round} {self.actor}: {self.kind} p={self.partition} x={self.value}"


@dataclass(slots=True)
class Done:
    """What became of an operation. ``told``: done, failed, unknown; ``wrong``: an error that must not come."""

    step: Step
    model: Callable[[Rows], Rows]
    back_to: int | None = None
    told: str = "unknown"
    version: int | None = None
    txns: list[str] = field(default_factory=list)
    wrong: str = ""


_ROWS: Final = (
    *("append",) * 6, *("delete",) * 3, *("hide",) * 3, "update", "upsert", "overwrite", "drop partition", "optimize",
    "compact", "purge", "restore", "checkpoint",
)  # fmt: skip
_FILES: Final = (*_ROWS, *("vacuum",) * 4, *("restore",) * 2, *("manifests",) * 3, "optimize", "checkpoint")


def draw_plan(seed: str, fault: str = "") -> tuple[list[Step], list[int]]:
    """Draw the operations of a seed, and the milliseconds that pass after each round.

    Args:
        seed: Any text.
        fault: One of ``FAULTS``: who does what nobody should; ``crowd`` has only appends, and many.
    """
    rng = random.Random(f"plan {seed}")
    rounds, actors = rng.randint(2, 3), "abc"[: rng.randint(2, 3)]
    kinds = _FILES if rng.random() < 0.4 else _ROWS
    if fault == "crowd":
        rounds, actors, kinds = 4, "abcd", ("append",)
    steps: list[Step] = []
    for number in range(rounds):
        for actor in actors:
            kind = rng.choice(kinds)
            if fault == "overwriting writer" and rng.random() < 0.3:
                kind = "overwriting writer"
            if fault == "vacuum without retention" and kind in ("vacuum", "checkpoint", "manifests"):
                kind = "vacuum without retention"
            steps.append(Step(len(steps), number, actor, kind, rng.choice("12"), rng.randint(1, 4)))
    pauses = [rng.choice(PAUSES_MS) for _ in range(rounds)]
    if is_arrow(seed):  # two of three by the engine that needs no JVM
        steps = [replace(step, kind=KINDS.get(step.kind, step.kind)) if rng.random() < 0.67 else step for step in steps]
    return steps, pauses


def _same(rows: Rows) -> Rows:
    return rows


def _operation(step: Step, newest: int) -> tuple[Callable[[DeltaLog], Any], Callable[[Rows], Rows], int | None]:
    """What a step does, what it does to the rows, and the version that it goes back to."""
    part, value, kind = step.partition, step.value, step.kind
    if is_arrow(kind):
        return (*arrow_operation(kind, part, value, step.number), None)
    if kind == "restore":
        version = (step.value + step.number) % (newest + 1)
        return lambda log: ops.back_to(version, _same).run(log, SILENT), _same, version
    if kind == "manifests":
        return lambda log: publish(log, ManifestOptions(wait_seconds=0.0)), _same, None
    if kind == "vacuum":
        return lambda log: vacuum(log, options=_SLEEPLESS), _same, None
    if kind == "vacuum without retention":
        request = Vacuum(retention_hours=0, enforce_retention=False)
        return lambda log: vacuum(log, request, options=_SLEEPLESS), _same, None
    if kind == "overwriting writer":
        return lambda log: _overwrite_commit(log, part, value), lambda rows: rows + Counter({(part, value): 1}), None
    made = {
        "append": lambda: ops.append(part, [value, 10 + step.number]),
        "delete": lambda: ops.delete_value(value),
        "hide": lambda: ops.hide_value(value),
        "update": lambda: ops.update_value(value, 20 + step.number),
        "upsert": lambda: ops.upsert_value(value, 30 + step.number, part),
        "overwrite": lambda: ops.overwrite(part, [value]),
        "drop partition": lambda: ops.delete_partition(part),
        "optimize": lambda: ops.optimize(None),
        "compact": lambda: ops.compact(part),
        "purge": lambda: ops.purge(),
        "checkpoint": lambda: ops.checkpoint(),
    }[kind]()
    return lambda log: made.run(log, SILENT), made.model, None


def _overwrite_commit(log: DeltaLog, partition: str, value: int) -> None:
    """A planted fault: a writer that puts its commit without asking whether the version is taken."""
    txn = ops.start_transaction(log)
    add = ops.add_file(partition, [value])
    version = log.update().version + 1
    info = CommitInfo({"txnId": txn.txn_id, "operation": "WRITE"})
    log.store.put(f"{LOG_DIR}/{commit_file(version)}", encode_commit([info, add]))


def run_step(step: Step, world: World, newest: int) -> Done:
    """Do one step in the actor's process, which knows what it knew unless it died, and say what it was told."""
    settings = Settings(change_give_way_ms=0, optimize_give_way_ms=0)
    log = world.processes.setdefault(step.actor, DeltaLog(SimStore(world), settings=settings))
    run, model, version = _operation(step, newest)
    done = Done(step, model, version)
    _OWN.done, _OWN.store = done, log.store
    world.trace.append(f"{step}")
    try:
        result = run(log)
        done.told = "done"
        done.version = result.version if isinstance(result, Committed) else None
    except SimulatedCrash:
        del world.processes[step.actor]
        done.told = "unknown"
    except (CommitStateUnknownError, StorageError):
        done.told = "unknown"
    except (LogCorruptedError, LogGapError) as error:
        done.wrong = f"{type(error).__name__} over a log that is whole: {error.message}"
    except DeltaConcurrentModificationException:
        done.told = "failed"
    except DeltaError as error:
        done.told = "failed"
        world.trace.append(f"{step.actor}: {error.message[:160]}")
    except Exception as error:  # noqa: BLE001 -- whatever else comes out is wrong
        done.wrong = f"{type(error).__name__}: {error}"
    world.trace.append(f"{step.actor}: {done.wrong or done.told}")
    return done


@contextlib.contextmanager
def recorded(world: World, *, real: bool) -> Iterator[None]:
    """Let operations note the ids of their transactions, write their files into the world and take its time.

    Args:
        world: Where it is.
        real: Whether the files are ones that can be read.
    """
    plain = row_files.add_file

    plain_transaction = transaction.OptimisticTransaction

    def begin(log: DeltaLog, snapshot: Snapshot | None, **given: Any) -> Any:
        given |= {"backoff": ops.NO_PAUSE, "hooks": built_in_hooks(), "clock": lambda: world.now_ms}
        txn = plain_transaction(log, snapshot, **given)
        _OWN.done.txns.append(txn.txn_id)
        return txn

    def add_file(*given: Any, **named: Any) -> AddFile:
        add = plain(*given, **named)
        _OWN.store.put(decode_log_path(add.path).text, file_bytes(add) if real else b"rows")
        return add.replace(modification_time=world.now_ms)

    with contextlib.ExitStack() as stack:
        for module in (ops, row_files):
            stack.enter_context(mock.patch.object(module, "add_file", add_file))
        stack.enter_context(mock.patch.object(transaction, "OptimisticTransaction", begin))
        stack.enter_context(mock.patch.object(ops, "NOW_MS", world.now_ms))
        if real:
            stack.enter_context(tagged(world))
        yield
