"""List the scenarios that are explored, and for each rule of the engine the one that shows what it is for."""

from __future__ import annotations

from tests.model.actors import Actor
from tests.model.explore import Scenario

_APPEND_C = Actor("ann", "append", "c")
_APPEND_D = Actor("ben", "append", "d")
_DELETE_A = Actor("dan", "delete", "a")
_DELETE_B = Actor("eve", "delete", "b")
_OPTIMIZE = Actor("olga", "optimize")
_RESTORE = Actor("rose", "restore")
_VACUUM = Actor("vic", "vacuum")
_FIRST_PUBLISHER, _SECOND_PUBLISHER = Actor("pat", "publish"), Actor("quinn", "publish")
_SINK, _ZOMBIE = Actor("sink", "sink", "s", 0), Actor("zombie", "sink", "s", 0)
_NEXT = Actor("next", "sink", "t", 1)
_CHECKPOINT, _CLEANUP, _OTHER_CLEANUP = Actor("kim", "checkpoint"), Actor("lee", "cleanup"), Actor("max", "cleanup")

_UMA, _VERA = Actor("uma", "v2 checkpoint", batch=3), Actor("vera", "v2 checkpoint", batch=4)
_KIT = Actor("kit", "whole checkpoint", batch=2)
_SWEEP, _BY_HINT, _AT_ONCE = Actor("lee", "sweep"), Actor("hugo", "sweep by hint"), Actor("otto", "sweep at once")

SCENARIOS: dict[str, Scenario] = {
    item.name: item
    for item in (
        Scenario("two appends", (_APPEND_C, _APPEND_D), crashes=1, losses=2),
        Scenario("three writers", (_APPEND_C, _DELETE_A, _DELETE_B), crashes=1, losses=1),
        Scenario("delete and optimize", (_APPEND_C, _DELETE_A, _OPTIMIZE), crashes=1, losses=1),
        Scenario("vacuum beside a writer", (_DELETE_A, _VACUUM), ticks=3, crashes=1, losses=1),
        Scenario("two vacuums", (_VACUUM, Actor("wim", "vacuum")), ticks=3, crashes=1, deletes=True),
        Scenario("restore beside vacuum", (_RESTORE, _VACUUM), ticks=3, crashes=1, losses=1, deletes=True),
        Scenario("restore beside writers", (_RESTORE, _APPEND_C, _DELETE_B), crashes=1, losses=1, deletes=True),
        Scenario("clean-up of the log", (_APPEND_C, _CHECKPOINT, _CLEANUP, _OTHER_CLEANUP), ticks=3, crashes=1),
        Scenario("a writer that outlasts the log", (_APPEND_C, _VACUUM, _CHECKPOINT, _CLEANUP), ticks=3, losses=1),
        Scenario("two publishers", (_FIRST_PUBLISHER, _DELETE_A, _SECOND_PUBLISHER), ticks=3, crashes=1),
        Scenario("publisher beside vacuum", (_FIRST_PUBLISHER, _DELETE_A, _VACUUM), ticks=3),
        Scenario("a query twice", (_SINK, _ZOMBIE, _NEXT), crashes=1, losses=1),
        Scenario("the log and the files", (_DELETE_A, _VACUUM, _CHECKPOINT, _CLEANUP), ticks=3),
        Scenario("sidecars named again", (_UMA, _KIT, _BY_HINT), ticks=3, crashes=1, versions=3),
        Scenario("sidecars and no log kept", (_UMA, _KIT, _SWEEP), crashes=1, versions=3, keeps_log=False),
        Scenario("sidecars and two clean-ups", (_UMA, _KIT, _SWEEP, _BY_HINT), crashes=1, versions=3, keeps_log=False),
        Scenario("sidecars and a careless clean-up", (_UMA, _KIT, _AT_ONCE), crashes=1, versions=3, keeps_log=False),
        Scenario("sidecars named again twice", (_UMA, _VERA, _KIT, _BY_HINT), versions=4, keeps_log=False),
    )
}
SHOWN_BY: dict[str, str] = {
    "put_if_absent": "two appends",
    "settle": "two appends",
    "same_version": "two appends",
    "conflicts": "three writers",
    "retention": "vacuum beside a writer",
    "tombstones": "vacuum beside a writer",
    "looks_again": "restore beside vacuum",
    "vacuum_is_seen": "restore beside vacuum",
    "running_is_seen": "restore beside vacuum",
    "missing_is_seen": "restore beside vacuum",
    "anchored": "clean-up of the log",
    "followed": "a writer that outlasts the log",
    "looks_twice_quickly": "a writer that outlasts the log",
    "oldest_first": "a writer that outlasts the log",
    "lease": "two publishers",
    "doubted": "two publishers",
    "state_last": "two publishers",
    "manifests_are_kept": "publisher beside vacuum",
    "idempotent": "a query twice",
    "query_conflicts": "a query twice",
    "looks_after": "sidecars and no log kept",
    "hinted": "sidecars named again twice",
    "young": "sidecars named again",
    "anchor_is_settled": "sidecars and two clean-ups",
}
"""Rule -> a scenario in which a promise is broken without it."""
