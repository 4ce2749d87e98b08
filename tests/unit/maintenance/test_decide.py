"""What a table needs, by its state, its policy and the budget: a row per case."""

from __future__ import annotations

import dataclasses

import pytest

from pydelta.errors import CannotVacuumLiteError
from pydelta.settings.maintenance import MaintenancePolicy
from pydelta.tools.maintenance.decide import MAKE_INVENTORY, NO_INVENTORY, DailyBudget, decide, shown_span
from pydelta.tools.maintenance.state import ActionFailure, ActionKind, Compaction, MaintenanceState, Removals

HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_800_000_000_000
MIB = 1 << 20
GIB = 1 << 30

QUIET = MaintenanceState(
    name="lake.t", uri="file:///t", version=7, created_ms=NOW - 400 * DAY, commits=8, files=10, bytes=GIB,
    retention_ms=7 * DAY, registered=True,
)  # fmt: skip
CROWDED = Compaction(files=60, bytes=60 * MIB, new_files=1)
GARBAGE = (Removals(last_ms=NOW - 8 * DAY, files=5, bytes=500),)
VACUUMS = MaintenancePolicy(vacuum="inventory")
IMPOSSIBLE = ActionFailure(tries=1, last_ms=NOW - DAY, said="the log is too short", code=CannotVacuumLiteError.code)


def state(**changes):
    return dataclasses.replace(QUIET, **changes)


def due(given, policy=None, budget=None, now_ms=NOW):
    actions = decide(given, policy or MaintenancePolicy(), budget or DailyBudget(), now_ms=now_ms)
    return [action.kind for action in actions if action.held is None]


def held(given, policy=None, budget=None, now_ms=NOW):
    actions = decide(given, policy or MaintenancePolicy(), budget or DailyBudget(), now_ms=now_ms)
    return {action.kind: action.held for action in actions if action.held is not None}


CASES = {
    "a quiet table needs nothing": (state(), MaintenancePolicy(), []),
    "a table that is not there needs nothing": (state(version=-1, compaction=CROWDED), MaintenancePolicy(), []),
    "a table left alone gets nothing": (
        state(compaction=CROWDED, announced=True, removals=GARBAGE),
        MaintenancePolicy(enabled=False, vacuum="full"),
        [],
    ),
    "small files past the bound are merged": (state(compaction=CROWDED), MaintenancePolicy(), [ActionKind.COMPACT]),
    "just at the bound they are": (
        state(compaction=Compaction(files=51, bytes=1, new_files=1)), MaintenancePolicy(), [ActionKind.COMPACT],
    ),
    "one below the bound they are not": (
        state(compaction=Compaction(files=50, bytes=1, new_files=1)), MaintenancePolicy(), [],
    ),
    "the table's own bound counts": (
        state(compaction=Compaction(files=50, bytes=1, new_files=1)),
        MaintenancePolicy(compact_min_files=49),
        [ActionKind.COMPACT],
    ),
    "compaction that is switched off": (state(compaction=CROWDED), MaintenancePolicy(compact=False), []),
    "not twice within the minimum age": (
        state(compaction=CROWDED, last={ActionKind.COMPACT: NOW - 9 * 60_000}), MaintenancePolicy(), [],
    ),
    "again after it": (
        state(compaction=CROWDED, last={ActionKind.COMPACT: NOW - 10 * 60_000}),
        MaintenancePolicy(),
        [ActionKind.COMPACT],
    ),
    "rows are put in order when enough of them are new": (
        state(unordered_files=3, unordered_bytes=GIB // 4), MaintenancePolicy(zorder_by=("a",)), [ActionKind.ZORDER],
    ),
    "not for a smaller part": (
        state(unordered_files=3, unordered_bytes=GIB // 10), MaintenancePolicy(zorder_by=("a",)), [],
    ),
    "not for a table of one small file": (
        state(files=1, bytes=MIB, unordered_files=1, unordered_bytes=MIB), MaintenancePolicy(zorder_by=("a",)), [],
    ),
    "a table in order still has its small files merged": (
        state(unordered_bytes=GIB // 10, compaction=CROWDED), MaintenancePolicy(zorder_by=("a",)), [ActionKind.COMPACT],
    ),
    "ZORDER comes in place of merging": (
        state(unordered_bytes=GIB, compaction=CROWDED), MaintenancePolicy(zorder_by=("a",)), [ActionKind.ZORDER],
    ),
    "a clustered table is clustered": (
        state(clustered=True, unordered_bytes=GIB // 2), MaintenancePolicy(), [ActionKind.CLUSTER],
    ),
    "a clustered table with many small files, too": (
        state(clustered=True, unordered_bytes=MIB, compaction=CROWDED), MaintenancePolicy(), [ActionKind.CLUSTER],
    ),
    "unless that is switched off": (
        state(clustered=True, unordered_bytes=GIB, compaction=CROWDED), MaintenancePolicy(cluster=False), [],
    ),
    "nothing is deleted unless somebody asks": (state(removals=GARBAGE), MaintenancePolicy(), []),
    "LITE deletes what has expired": (state(removals=GARBAGE), MaintenancePolicy(vacuum="lite"), [ActionKind.LITE]),
    "what was removed lately stays": (
        state(removals=(Removals(last_ms=NOW - 6 * DAY, files=5, bytes=500),)), MaintenancePolicy(vacuum="lite"), [],
    ),
    "the table's own retention counts": (
        state(removals=GARBAGE, retention_ms=9 * DAY), MaintenancePolicy(vacuum="lite"), [],
    ),
    "LITE does not run twice in a day": (
        state(
            removals=(Removals(last_ms=NOW - 7 * DAY - 1, files=1, bytes=1),), last={ActionKind.LITE: NOW - 23 * HOUR}
        ),
        MaintenancePolicy(vacuum="lite"),
        [],
    ),
    "nor for what the last one dealt with": (
        state(removals=GARBAGE, last={ActionKind.LITE: NOW - 12 * HOUR}),
        MaintenancePolicy(vacuum="lite", vacuum_every_ms=HOUR),
        [],
    ),
    "but for what has expired since": (
        state(removals=GARBAGE, last={ActionKind.LITE: NOW - 2 * DAY}),
        MaintenancePolicy(vacuum="lite"),
        [ActionKind.LITE],
    ),
    "LITE comes before the inventory": (
        state(removals=GARBAGE, inventory_ms=NOW - HOUR), VACUUMS, [ActionKind.LITE, ActionKind.INVENTORY],
    ),
    "an inventory that was used is not used again": (
        state(inventory_ms=NOW - 9 * DAY, last={ActionKind.INVENTORY: NOW - 8 * DAY}), VACUUMS, [],
    ),
    "a new one is, a week later": (
        state(inventory_ms=NOW - HOUR, last={ActionKind.INVENTORY: NOW - 8 * DAY}), VACUUMS, [ActionKind.INVENTORY],
    ),
    "and not within the week": (
        state(inventory_ms=NOW - HOUR, last={ActionKind.INVENTORY: NOW - 6 * DAY}), VACUUMS, [],
    ),
    "a table younger than its retention has no garbage": (
        state(created_ms=NOW - 6 * DAY, inventory_ms=NOW - HOUR), VACUUMS, [],
    ),
    "a listing needs no inventory": (state(), MaintenancePolicy(vacuum="full"), [ActionKind.FULL]),
    "where LITE is not possible the inventory takes its place": (
        state(
            removals=GARBAGE, failures={ActionKind.LITE: IMPOSSIBLE}, inventory_ms=NOW - HOUR,
            last={ActionKind.INVENTORY: NOW - 2 * DAY},
        ),
        VACUUMS,
        [ActionKind.INVENTORY],
    ),
    "or the listing": (
        state(removals=GARBAGE, failures={ActionKind.LITE: IMPOSSIBLE}, last={ActionKind.FULL: NOW - 2 * DAY}),
        MaintenancePolicy(vacuum="full"),
        [ActionKind.FULL],
    ),
    "with LITE alone it is tried again": (
        state(removals=GARBAGE, failures={ActionKind.LITE: IMPOSSIBLE}),
        MaintenancePolicy(vacuum="lite"),
        [ActionKind.LITE],
    ),
    "an announced commit is synced at once": (state(announced=True), MaintenancePolicy(), [ActionKind.SYNC]),
    "not that of a table without an entry": (state(announced=True, registered=False), MaintenancePolicy(), []),
    "not where the table does not want it": (state(announced=True), MaintenancePolicy(sync=False), []),
    "several things at once, in their order": (
        state(announced=True, compaction=CROWDED, removals=GARBAGE),
        MaintenancePolicy(vacuum="lite"),
        [ActionKind.SYNC, ActionKind.COMPACT, ActionKind.LITE],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_due(case):
    given, policy, expected = case
    assert due(given, policy) == expected


def test_each_action_says_why_and_what_it_costs_and_saves():
    [compact, lite] = decide(
        state(compaction=CROWDED, removals=GARBAGE), MaintenancePolicy(vacuum="lite"), DailyBudget(), now_ms=NOW
    )
    assert compact.reason == "60 files below 32.0 MiB (60.0 MiB) can become 1: 59 fewer; the bound is 50"
    assert (compact.files, compact.bytes, compact.saved_files) == (60, 60 * MIB, 59)
    assert compact.requests >= 2 * 60
    assert lite.reason == (
        "5 files (500 B) were removed more than 7 days ago, and no VACUUM has run since they expired"
    )
    assert (lite.saved_files, lite.saved_bytes) == (5, 500)


def test_a_budget_that_is_spent_holds_back_what_is_dear_and_lets_pass_what_is_cheap():
    given = state(compaction=CROWDED, removals=GARBAGE)
    policy = MaintenancePolicy(vacuum="lite")
    assert held(given, policy, DailyBudget(bytes=60 * MIB - 1)) == {
        ActionKind.COMPACT: "it would read 60.0 MiB, and today's budget has 60.0 MiB left"
    }
    assert due(given, policy, DailyBudget(bytes=60 * MIB)) == [ActionKind.COMPACT, ActionKind.LITE]
    spent = held(given, policy, DailyBudget(requests=124 + 11))
    assert spent == {ActionKind.LITE: "it would take 12 requests, and today's budget has 11 left"}


def test_the_lower_of_two_limits_counts():
    assert DailyBudget(bytes=5, requests=None).within(DailyBudget(bytes=3, requests=9)) == DailyBudget(
        bytes=3, requests=9
    )


def test_what_failed_waits_longer_each_time():
    def with_tries(tries, ago):
        failure = ActionFailure(tries=tries, last_ms=NOW - ago, said="a conflict")
        return state(compaction=CROWDED, failures={ActionKind.COMPACT: failure})

    minute = 60_000
    assert due(with_tries(1, 5 * minute)) == [ActionKind.COMPACT]
    assert held(with_tries(1, 4 * minute)) == {
        ActionKind.COMPACT: "it failed once, the next try is at 2027-01-15 08:01 UTC: a conflict"
    }
    assert "failed 2 times" in held(with_tries(2, 9 * minute))[ActionKind.COMPACT]
    assert due(with_tries(2, 10 * minute)) == [ActionKind.COMPACT]
    assert due(with_tries(50, 6 * HOUR)) == [ActionKind.COMPACT]
    assert held(with_tries(50, 6 * HOUR - 1))


def test_without_an_inventory_the_sweep_says_so():
    assert held(state(), VACUUMS) == {ActionKind.INVENTORY: NO_INVENTORY}
    assert "no inventory of its bucket has been loaded" in NO_INVENTORY
    assert MAKE_INVENTORY in NO_INVENTORY
    assert "scripts/lake inventory" in MAKE_INVENTORY


@pytest.mark.parametrize(("span", "text"), [(DAY, "1 day"), (90_000, "90 seconds"), (0, "0 ms"), (1, "1 ms")])
def test_spans_are_shown_in_their_largest_whole_unit(span, text):
    assert shown_span(span) == text
