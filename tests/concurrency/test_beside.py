"""Statements beside a compaction that never rests: each is acknowledged, nothing is lost, and files are merged.

Real threads and the real commands, over files without bytes; ``benchmarks/beside.py`` does so with processes and rows.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from pydelta.commands.change.merge import ClauseAction, ClauseOn, MergeClause
from pydelta.errors import DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, Literal
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import merge, optimize, update
from pydelta.testing.operations import add_file, append, create_table, rows_of
from pydelta.testing.row_files import LogEngine, LogUpsert

_NAMES = itertools.count()
_PATIENT = 3_600_000
TURNS = 12
CLAUSES = (
    MergeClause(on=ClauseOn.MATCHED, action=ClauseAction.UPDATE, assignments=(("x", 0),)),
    MergeClause(on=ClauseOn.NOT_MATCHED, action=ClauseAction.INSERT, assignments=(("p", "m"), ("x", 0))),
)


def run_mix(settings, *, give_way_ms, meet):
    """The rows at the end, those that were acknowledged, the refusals, the files merged, and retries by the history.

    ``meet`` is called by a change between what it read and its commit, and by each compaction when it is done.
    """
    store = MemoryStore(f"memory://beside{next(_NAMES)}/t")
    base = [("u", 1000 + turn) for turn in range(TURNS)] + [("m", 2000 + turn) for turn in range(TURNS)]
    create_table(DeltaLog(store), [add_file(part, [x]) for part, x in base])
    expected, refused, merged, guard, done = Counter(base), [], [], threading.Lock(), threading.Event()

    def acknowledged(minus, plus):
        with guard:
            expected.subtract(minus)
            expected.update(plus)

    def appends(number):
        for turn in range(TURNS):
            append("u", [number * 100 + turn]).run(DeltaLog(store))
            acknowledged([], [("u", number * 100 + turn)])

    class Slow(LogEngine):
        def committed(self, snapshot):
            pass

    def changes(change, part, first):
        for turn in range(TURNS):
            old, new = first + turn, first + 5000 + turn
            try:
                change(old, new)
            except DeltaConcurrentModificationException as lost:
                refused.append(lost)
            else:
                acknowledged([(part, old)], [(part, new)])

    def updates(old, new):
        class Engine(Slow):
            def write_updated(self, *args, **named):
                written = super().write_updated(*args, **named)
                meet(merged)
                return written

        condition = Compare("=", Column(("x",)), Literal(old, "long"))
        update(DeltaLog(store, settings=settings), Engine(), (("x", new),), condition)

    def upserts(old, new):
        class Merging(LogUpsert):
            def write(self, *args, **named):
                written = super().write(*args, **named)
                meet(merged)
                return written

        log = DeltaLog(store, settings=settings)
        merge(log, Slow(), lambda snapshot: Merging(snapshot, old, new, "m"), CLAUSES, settings)

    def compacts():
        while not done.is_set():
            try:
                result = optimize(DeltaLog(store), LogEngine(), Settings(optimize_give_way_ms=give_way_ms))
            except DeltaConcurrentModificationException:
                continue
            merged.append(len(result.removed))

    compactor = threading.Thread(target=compacts)
    compactor.start()
    try:
        with ThreadPoolExecutor(5) as pool:
            work = [pool.submit(appends, number) for number in (1, 2, 3)]
            work += [pool.submit(changes, updates, "u", 1000), pool.submit(changes, upserts, "m", 2000)]
            for item in work:
                item.result()
    finally:
        done.set()
        compactor.join()
    retries = [
        int((record.commit_info.get("operationMetrics") or {}).get("numRetries", 0))
        for record in DeltaLog(store).history()
        if record.commit_info is not None
    ]
    return rows_of(DeltaLog(store).update()), +expected, refused, sum(merged), retries


def until_compacted(merged):
    """Wait until a compaction that began later has ended, or the compactor gives way to somebody."""
    seen = len(merged)
    for _ in range(200):
        if len(merged) > seen + 1:
            return
        threading.Event().wait(0.005)


def test_no_statement_is_refused_for_a_compaction():
    rows, expected, refused, merged, retries = run_mix(
        Settings(change_max_retries=10), give_way_ms=_PATIENT, meet=until_compacted
    )
    assert {lost.winning_operation for lost in refused} <= {"UPDATE", "MERGE"}, "rows changed where statistics overlap"
    assert rows == expected
    assert merged > 0
    assert max(retries) <= 10


def test_without_retries_some_are_refused_and_still_nothing_is_lost():
    rows, expected, refused, merged, retries = run_mix(
        Settings(change_max_retries=0), give_way_ms=0, meet=until_compacted
    )
    assert refused
    assert rows == expected
    assert merged > 0
    assert max(retries) == 0
