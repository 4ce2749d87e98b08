"""Look for a serial order of the commits: build dependencies from the versions, and find a shortest cycle if any. Pure.

::

    order   one version follows the other       only if the level is Serializable
    wr      the later one consumed a row that the earlier one wrote
    rw      the earlier one did not see a row that the later one wrote, and left it unchanged
    rt      the earlier one was acknowledged before the later one began

A cycle means that no such order exists. After Elle (Kingsbury, Alvaro 2020); the log gives the versions of rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydelta.tools.certify.history import Commit, Event, Row
from pydelta.tools.certify.promises import Broken
from pydelta.tools.certify.rows import Effect, name_rows

__all__ = ["Edge", "find_cycles", "isolation", "window_of"]

_STARTS: Final = 50
"""The maximum number of commits of a group at which a search starts. A faulty store makes groups of thousands."""
_WORDS: Final = {
    "order": "comes before it in the log",
    "wr": "wrote what it took up",
    "rt": "was answered before it began",
    "rw": "did not see what it wrote",
}


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependency: ``first`` has to precede ``then`` because of ``kind`` and ``rows``."""

    first: int
    then: int
    kind: str
    rows: frozenset[Row] = frozenset()


def isolation(
    level: str, commits: Sequence[Commit], effects: Sequence[Effect], windows: Mapping[int, tuple[int, int | None]]
) -> list[Broken]:
    """Check that the commits have a serial order.

    Args:
        level: ``Serializable`` demands the order of the log; other levels accept any order.
        commits: Commits, ascending.
        effects: Effect of each commit.
        windows: Per version, when its operation began and when it was acknowledged (None if never).
    """
    names = {
        commit.version: f"{commit.operation or 'commit'} of {commit.op} (version {commit.version})"
        for commit in commits
    }
    ops = {commit.version: commit.op or "" for commit in commits}
    edges = _edges(level, commits, effects, windows)
    found = []
    for cycle in find_cycles(edges):
        anti = sum(edge.kind == "rw" for edge in cycle)
        kind = {0: "G1c, circular information flow", 1: "G-single, a change was not seen"}.get(anti, "G2, write skew")
        steps = "; ".join(f"{names[edge.first]} {_WORDS[edge.kind]}: {names[edge.then]}{_of(edge)}" for edge in cycle)
        versions = tuple(sorted({edge.first for edge in cycle}))
        found.append(
            Broken(
                promise="isolation",
                says=f"These commits have no serial order ({kind}): {steps}.",
                versions=versions,
                ops=tuple(ops[version] for version in versions),
            )
        )
    return found


def _of(edge: Edge) -> str:
    return f" [{name_rows(edge.rows)}]" if edge.rows else ""


def _edges(
    level: str, commits: Sequence[Commit], effects: Sequence[Effect], windows: Mapping[int, tuple[int, int | None]]
) -> list[Edge]:
    edges, writer, before = [], dict[Row, int](), None
    for commit, effect in zip(commits, effects, strict=True):
        if before is not None and level == "Serializable":
            edges.append(Edge(before, commit.version, "order"))
        edges += [Edge(other, commit.version, "wr", rows) for other, rows in _by_writer(effect.saw, writer)]
        edges += [Edge(commit.version, other, "rw", rows) for other, rows in _by_writer(effect.missed, writer)]
        for row in commit.added:
            if row not in writer or row not in commit.removed:
                writer[row] = commit.version
        before = commit.version
    return edges + _real_time(windows)


def _by_writer(rows: frozenset[Row], writer: Mapping[Row, int]) -> list[tuple[int, frozenset[Row]]]:
    """Group rows by the version that wrote them."""
    grouped: dict[int, set[Row]] = {}
    for row in rows:
        if row in writer:
            grouped.setdefault(writer[row], set()).add(row)
    return [(other, frozenset(group)) for other, group in sorted(grouped.items())]


def _real_time(windows: Mapping[int, tuple[int, int | None]]) -> list[Edge]:
    """Derive edges from acknowledgements that precede beginnings, leaving out those that other edges imply."""
    moments = [(began, 1, version) for version, (began, _) in windows.items()]
    moments += [(ended, 0, version) for version, (_, ended) in windows.items() if ended is not None]
    edges, frontier, before = [], set[int](), dict[int, frozenset[int]]()
    for _, begins, version in sorted(moments):
        if begins:
            before[version] = frozenset(frontier)
            edges += [Edge(other, version, "rt") for other in sorted(frontier)]
        else:
            frontier -= before.get(version, frozenset())
            frontier.add(version)
    return edges


def find_cycles(edges: Sequence[Edge]) -> list[list[Edge]]:
    """Find a short cycle in each group of mutually reachable nodes, preferably through a change that was not seen."""
    out: dict[int, list[Edge]] = {}
    for edge in edges:
        if edge.first != edge.then:
            out.setdefault(edge.first, []).append(edge)
    cycles = []
    for group in _components(out):
        if len(group) > 1:
            telling = [node for node in sorted(group) if any(edge.kind == "rw" for edge in out.get(node, ()))]
            starts = (telling or sorted(group))[:_STARTS]
            found = [cycle for node in starts if (cycle := _shortest(node, group, out))]
            cycles.append(min(found, key=len))
    return cycles


def _shortest(start: int, group: frozenset[int], out: Mapping[int, list[Edge]]) -> list[Edge] | None:
    """Find the shortest path from a node back to itself."""
    came: dict[int, Edge] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for edge in out.get(node, ()):
            if edge.then == start:
                path = [edge]
                while path[-1].first != start:
                    path.append(came[path[-1].first])
                return path[::-1]
            if edge.then in group and edge.then not in came:
                came[edge.then] = edge
                queue.append(edge.then)
    return None


def _components(out: Mapping[int, list[Edge]]) -> list[frozenset[int]]:
    """Group nodes that reach each other (Tarjan's algorithm, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    held: set[int] = set()
    groups = []
    for root in sorted(out):
        if root in index:
            continue
        work = [(root, iter(out.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        held.add(root)
        while work:
            node, rest = work[-1]
            edge = next(rest, None)
            if edge is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = set()
                    while node not in group:
                        group.add(stack.pop())
                    held -= group
                    groups.append(frozenset(group))
            elif edge.then not in index:
                index[edge.then] = low[edge.then] = len(index)
                stack.append(edge.then)
                held.add(edge.then)
                work.append((edge.then, iter(out.get(edge.then, ()))))
            elif edge.then in held:
                low[node] = min(low[node], index[edge.then])
    return groups


def window_of(events: Sequence[Event]) -> tuple[int, int | None]:
    """Return when the first attempt of an operation began, and when the operation was first acknowledged."""
    ended = [event.returned_ns for event in events if event.outcome == "ok" and event.returned_ns is not None]
    return min(event.invoked_ns for event in events), min(ended) if ended else None
