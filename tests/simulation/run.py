"""Run a seed and check what became of the table."""

from __future__ import annotations

import gc
import json
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.errors import DeltaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests.publish import ManifestOptions, publish
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.vectors import deleted_rows, stored_range, vector_path
from pydelta.storage.memory import MemoryStore
from pydelta.testing import operations as ops
from pydelta.testing.row_files import ROWS_TAG, Rows, rows_of
from tests.simulation.arrow import is_arrow
from tests.simulation.plan import LOG_RETENTION_MS, RETENTION_MS, Done, Step, draw_plan, recorded, run_step
from tests.simulation.world import Odds, World, replaced

__all__ = ["Outcome", "named", "run_chunk", "run_seed", "shrink"]


@dataclass(slots=True)
class _Version:
    """A version as it was when it landed: independent of how the engine reads the log."""

    at_ms: int
    txn: str
    live: dict[tuple[str, str | None], dict[str, Any]]
    rows: Rows


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a seed came to. ``wrong`` says which promise broke; empty when all were kept."""

    seed: str
    wrong: str = ""
    trace: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: int = 0


class _Book:
    """The history of the table, written down while it happens."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.versions: list[_Version] = []
        self.wrong = ""
        self._hidden: dict[str, set[int]] = {}

    def landed(self, path: str, data: bytes, replaced: bool) -> None:
        """Note an object that appeared."""
        if not path.startswith("_delta_log/") or not path.endswith(".json") or "checkpoint" in path:
            return
        name = path.rpartition("/")[2]
        if not name.removesuffix(".json").isdigit():
            return
        version = int(name.removesuffix(".json"))
        if replaced or version < len(self.versions):
            self.wrong = self.wrong or f"gapless: version {version} was written twice"
            return
        if version > len(self.versions):
            self.wrong = self.wrong or f"gapless: version {version} follows version {len(self.versions) - 1}"
            return
        self.versions.append(self._after(data))

    def _after(self, data: bytes) -> _Version:
        live = dict(self.versions[-1].live) if self.versions else {}
        txn = ""
        for line in data.splitlines():
            ((kind, body),) = json.loads(line).items()
            if kind in ("add", "remove"):
                vector = body.get("deletionVector")
                key = (body["path"], vector and f"{vector['pathOrInlineDv']}@{vector.get('offset')}")
                live.pop(key, None)
                if kind == "add":
                    live[key] = body
            elif kind == "commitInfo":
                txn = body.get("txnId", "")
        assert self.world is not None
        rows: Rows = Counter()
        for add in live.values():
            hidden = self._hidden_rows(add)
            values = [int(value) for value in add["tags"][ROWS_TAG].split(",") if value]
            rows.update((add["partitionValues"]["p"], value) for at, value in enumerate(values) if at not in hidden)
        return _Version(self.world.now_ms, txn, live, rows)

    def _hidden_rows(self, add: dict[str, Any]) -> set[int]:
        vector = _vector(add)
        if vector is None:
            return set()
        if vector.unique_id not in self._hidden:
            assert self.world is not None
            path, where = vector_path(vector), stored_range(vector)
            stored = self.world.memory.read_range(path, *where) if path and where else None
            self._hidden[vector.unique_id] = set(deleted_rows(vector, stored).tolist())
        return self._hidden[vector.unique_id]


def _vector(add: dict[str, Any]) -> DeletionVectorDescriptor | None:
    found = add.get("deletionVector")
    if found is None:
        return None
    return DeletionVectorDescriptor(
        storage_type=found["storageType"], path_or_inline_dv=found["pathOrInlineDv"], offset=found.get("offset"),
        size_in_bytes=found["sizeInBytes"], cardinality=found["cardinality"],
    )  # fmt: skip


_FILED: Final = frozenset({"manifests", "vacuum", "vacuum without retention"})
_PROPERTIES: Final = {
    "delta_enableDeletionVectors": "true",
    "delta_isolationLevel": "Serializable",
    "delta_deletedFileRetentionDuration": "interval 1 hours",
    "delta_logRetentionDuration": "interval 2 hours",
}


def run_seed(seed: str, *, odds: Odds | None = None, fault: str = "", without: Collection[int] = ()) -> Outcome:
    """Run what a seed draws, from an empty store, and check every promise.

    Args:
        seed: Any text.
        odds: What goes wrong how often.
        fault: A planted fault, of ``FAULTS``.
        without: Numbers of steps to leave out.
    """
    book = _Book()
    world = book.world = World(seed, odds or Odds(), book.landed)
    steps, pauses = draw_plan(seed, fault)
    steps = [step for step in steps if step.number not in without]
    outcome = Outcome(seed=seed, trace=world.trace, steps=steps)
    with replaced(world), recorded(world, real=is_arrow(seed)):
        done = _create(world)
        for number, pause in enumerate(pauses):
            bodies = {}
            for step in steps:
                if step.round == number:
                    bodies[step.actor] = _body(step, world, book, done)
            for error in world.run_together(bodies).values():
                if error is not None:
                    raise error
            world.now_ms += pause
            world.trace.append(f"-- {pause // 60_000} minutes pass")
        world.faults = False
        outcome.versions = len(book.versions)
        outcome.wrong = book.wrong or _wrong(world, book, done)
    world.forget()
    return outcome


def _create(world: World) -> list[Done]:
    """Version 0, with some files, before anything can go wrong."""
    from tests.simulation import plan

    step = Step(-1, -1, "setup", "create", "1", 1)
    done = Done(step, lambda rows: rows, told="done")
    plan._OWN.done, plan._OWN.store = done, _Through(world)
    world.faults = False
    files = [ops.add_file(*each) for each in (("1", [1, 2, 3]), ("1", [2, 4]), ("2", [1, 4]))]
    ops.create_table(
        DeltaLog(_Through(world)), files, **_PROPERTIES, delta_checkpointInterval=str(world.rng.choice((2, 4, 8)))
    )
    world.faults = True
    return [done]


class _Through(MemoryStore):
    """The store outside of the turns, whose objects are noted all the same."""

    def __init__(self, world: World) -> None:
        super().__init__(world.memory.root)
        self._world = world

    def put_if_absent(self, path: str, data: bytes) -> Any:
        """See ``Store.put_if_absent``."""
        return self._world._create(path, data)


def _body(step: Step, world: World, book: _Book, done: list[Done]) -> Any:
    return lambda: done.append(run_step(step, world, len(book.versions) - 1))


# -- promises -----------------------------------------------------------------------------------------------------


def _wrong(world: World, book: _Book, done: list[Done]) -> str:
    for each in done:
        if each.wrong:
            return f"error: {each.step}: {each.wrong}"
    return (
        _once(book, done)
        or _told_the_truth(book, done)
        or _serial(book, done)
        or _readable(world, book)
        or _whole(world, book)
        or (_published(world, book) if {each.step.kind for each in done} & _FILED else "")
    )


def _once(book: _Book, done: list[Done]) -> str:
    txns = Counter(version.txn for version in book.versions)
    if twice := [txn for txn, count in txns.items() if count > 1]:
        return f"once: transaction {twice[0]} is in the log {txns[twice[0]]} times"
    known = {txn for each in done for txn in each.txns}
    if strange := [number for number, version in enumerate(book.versions) if version.txn not in known]:
        return f"once: version {strange[0]} is nobody's"
    return ""


def _told_the_truth(book: _Book, done: list[Done]) -> str:
    in_log = {version.txn: number for number, version in enumerate(book.versions)}
    for each in done:
        found = [in_log[txn] for txn in each.txns if txn in in_log]
        if each.told == "done" and each.version is not None and each.version not in found:
            return f"told_the_truth: {each.step} was acknowledged as version {each.version} and is not there"
        if each.told == "failed" and found and not each.step.kind.startswith("vacuum"):
            return f"told_the_truth: {each.step} was told that it failed, and is version {found[0]}"
    return ""


def _serial(book: _Book, done: list[Done]) -> str:
    by_txn = {txn: each for each in done for txn in each.txns}
    for number, version in enumerate(book.versions[1:], start=1):
        each = by_txn[version.txn]
        before = book.versions[number - 1].rows
        wanted = before if each.back_to is None else book.versions[each.back_to].rows
        wanted = +each.model(Counter(wanted))
        if wanted != +version.rows:
            return f"serial: version {number} by {each.step} has {_shown(version.rows)}, not {_shown(wanted)}"
    return ""


def _shown(rows: Rows) -> str:
    return ", ".join(
        f"{part}/{value}" + (f" x{count}" if count > 1 else "") for (part, value), count in sorted(rows.items())
    )


def _retained(world: World, book: _Book, retention_ms: int) -> list[int]:
    """Versions that are the newest, or were so within a retention."""
    ends = [version.at_ms for version in book.versions[1:]]
    return [
        number
        for number in range(len(book.versions))
        if number >= len(ends) or ends[number] >= world.now_ms - retention_ms
    ]


def _readable(world: World, book: _Book) -> str:
    log = DeltaLog(world.memory)
    newest = len(book.versions) - 1
    for number in {newest, *_retained(world, book, min(RETENTION_MS, LOG_RETENTION_MS))[:2]}:
        try:
            snapshot = log.snapshot(number)
            rows = rows_of(snapshot)
        except DeltaError as error:
            return f"readable: version {number} cannot be read: {error.message}"
        if snapshot.version != number or +rows != +book.versions[number].rows:
            return f"readable: version {number} is read as {_shown(rows)}, not {_shown(book.versions[number].rows)}"
    if log.update().version != newest:
        return f"readable: the newest version is read as {log.update().version}, not {newest}"
    return ""


def _whole(world: World, book: _Book) -> str:
    there = {info.path for info in world.memory.list_all()}
    for number in _retained(world, book, RETENTION_MS):
        needed = set()
        for add in book.versions[number].live.values():
            needed.add(add["path"])
            vector = _vector(add)
            if vector is not None and (path := vector_path(vector)) is not None:
                needed.add(path)
        if missing := needed - there:
            return f"whole: version {number} has lost {min(missing)}"
    return ""


def _published(world: World, book: _Book) -> str:
    if missing := _named(world) - {info.path.rpartition("/")[2] for info in world.memory.list_all()}:
        return f"published: a manifest names {min(missing)}, which is gone"
    world.now_ms += 3_600_000  # a lease whose holder died runs out
    try:
        publish(DeltaLog(world.memory), ManifestOptions(wait_seconds=0.0))
    except UnsupportedFeatureError:
        return ""  # deletion vectors
    except DeltaError as error:
        return f"published: nothing can be published any more: {error.message}"
    wanted = {path.rpartition("/")[2] for path, _ in book.versions[-1].live}
    if _named(world) != wanted:
        return f"published: the manifests name {len(_named(world))} files, and the table has {len(wanted)}"
    return ""


def _named(world: World) -> set[str]:
    found = set()
    for info in world.memory.list_all("_symlink_format_manifest"):
        found |= {line.rpartition("/")[2] for line in world.memory.read(info.path).decode().splitlines()}
    return found


def shrink(outcome: Outcome, *, odds: Odds | None = None, fault: str = "") -> Outcome:
    """Leave out steps one by one, as long as the same promise breaks."""
    promise = outcome.wrong.partition(":")[0]
    gone: set[int] = set()
    best, numbers = outcome, [step.number for step in outcome.steps]
    for number in numbers:
        tried = run_seed(outcome.seed, odds=odds, fault=fault, without=gone | {number})
        if tried.wrong.partition(":")[0] == promise:
            gone.add(number)
            best = tried
    return best


def named(seed: int) -> str:
    """Return the text of a seed of the command line: every fourth has operations of both engines."""
    return f"arrow-{seed}" if seed % 4 == 0 else str(seed)


def run_chunk(seeds: Sequence[int]) -> list[tuple[int, str, int, list[str]]]:
    """Run some seeds in a process of a pool; for each what was wrong, its versions and its trace."""
    logging.disable(logging.CRITICAL)
    gc.disable()  # what a seed leaves in circles is little, and looking for it after every few steps is not
    outcomes = [(seed, run_seed(named(seed))) for seed in seeds]
    gc.enable()
    gc.collect()
    return [(seed, outcome.wrong, outcome.versions, outcome.trace) for seed, outcome in outcomes]
