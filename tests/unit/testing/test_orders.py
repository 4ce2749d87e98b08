"""Every order that can matter: what comes out of them is what comes out of all orders there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydelta.testing.lockstep import interleavings, run_lockstep
from pydelta.testing.orders import Turn, WatchedStore, every_order

_NAMES = itertools.count()
Program = list[tuple[str, str]]


def outcome(programs: dict[str, Program], schedule: Sequence[str]) -> tuple[tuple[str, ...], list[Turn]]:
    """Each step of a program reads a path and adds what it read to its own text, or writes that text, or lists."""
    store = WatchedStore(f"memory://orders{next(_NAMES)}/t")

    def body(name: str):
        def run(step):
            known = name
            for kind, path in programs[name]:
                step.at(kind)
                if kind == "read":
                    found = store.head(path)
                    known += "+" + (store.read(path).decode() if found else "-")
                elif kind == "list":
                    known += "+" + ",".join(sorted(item.path for item in store.list_all(path)))
                elif kind == "once":
                    known += "+" + store.put_if_absent(path, known.encode()).name
                elif kind == "delete":
                    store.delete_many([path])
                else:
                    store.put(path, known.encode())
            return known

        return run

    results = run_lockstep({name: body(name) for name in programs}, schedule, on_turn=store.begin)
    turns = store.turns[1:]
    store.begin("afterwards")
    left = sorted((item.path, store.read(item.path).decode()) for item in list(store.list_all()))
    return (results["one"], results["two"], repr(left)), turns


def outcomes_of_orders(programs: dict[str, Program]) -> tuple[set[tuple[str, ...]], int]:
    found = []

    def run(schedule: Sequence[str]) -> list[Turn]:
        came_out, turns = outcome(programs, schedule)
        found.append(came_out)
        return turns

    orders = list(every_order(run))
    assert len(orders) == len(set(orders)) == len(found)
    return set(found), len(orders)


def outcomes_of_all(programs: dict[str, Program]) -> set[tuple[str, ...]]:
    one, two = len(programs["one"]) + 1, len(programs["two"]) + 1
    return {outcome(programs, schedule)[0] for schedule in interleavings("one", one, "two", two)}


steps = st.lists(
    st.tuples(st.sampled_from(["read", "write", "once", "list", "delete"]), st.sampled_from(["a/x", "a/y", "b"])),
    min_size=1,
    max_size=3,
).map(lambda found: [(kind, path.partition("/")[0] if kind == "list" else path) for kind, path in found])


@given(st.fixed_dictionaries({"one": steps, "two": steps}))
def test_every_outcome_there_is_comes_out_of_some_order(programs):
    found, _ = outcomes_of_orders(programs)
    assert found == outcomes_of_all(programs)


def test_turns_that_do_not_touch_each_other_are_run_in_one_order():
    programs = {"one": [("write", "a/x"), ("read", "a/x")], "two": [("write", "b"), ("read", "b")]}
    assert outcomes_of_orders(programs)[1] == 1


def test_what_both_read_is_no_race():
    assert outcomes_of_orders({"one": [("read", "b")] * 3, "two": [("read", "b")] * 3})[1] == 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("write", "b"), ("write", "b")),
        (("write", "b"), ("read", "b")),
        (("delete", "a/x"), ("list", "a")),
        (("once", "b"), ("once", "b")),
    ],
)
def test_a_race_is_run_both_ways(one, two):
    assert 2 <= outcomes_of_orders({"one": [one], "two": [two]})[1] < len(list(interleavings("one", 2, "two", 2)))


def test_an_update_that_is_lost_is_found():
    found, orders = outcomes_of_orders({name: [("read", "b"), ("write", "b")] for name in ("one", "two")})
    lost = {out for out in found if out[0] == "one+-" and out[1] == "two+-"}
    assert lost
    assert len(found - lost) == 2
    assert orders < len(list(interleavings("one", 3, "two", 3)))
