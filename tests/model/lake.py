"""Describe what there is: the log, the files, the manifests, the clock, and where each actor stands.

A state never changes; a step makes another one. Files are named by who wrote them and say which rows they hold, so that
what a table holds can be compared with what its commits say one after the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Rows = frozenset[str]


class File(NamedTuple):
    """A data file, and the rows in it."""

    name: str
    rows: Rows


class Commit(NamedTuple):
    """One version: who made it by which operation, what it adds and removes, when it was written."""

    by: str
    op: str
    adds: frozenset[File] = frozenset()
    removes: frozenset[File] = frozenset()
    row: str = ""
    batch: int = -1
    """Of a query's sink: which batch; -1: none."""
    at: int = 0


class Put(NamedTuple):
    """A commit whose reply was lost and that may land yet; once at most."""

    version: int
    commit: Commit


class Lease(NamedTuple):
    """The newest lease over the manifests; its holder has released it where ``expires`` is 0."""

    holder: str = ""
    expires: int = 0


class Main(NamedTuple):
    """The main file of a V2 checkpoint: who wrote it, which sidecars it names, whether the hint was ever at it."""

    version: int
    by: str
    names: frozenset[str]
    at: int
    settled: bool = False


class Lake(NamedTuple):
    """Everything there is.

    Args:
        time: Ticks.
        history: Version -> commit, for every version that there ever was: what the store forgets, this does not.
        logged: Versions whose commit file is there.
        strays: Commits that landed where the log had been cleaned up: nobody reads them.
        checkpoints: Versions with a checkpoint.
        files: File -> when it was written.
        pending: Puts that may land yet.
        manifest: What the published manifest names; None before the first.
        state: The version that the manifest is said to be of; None before the first.
        lease: Over the manifests.
        doubt: A former holder may have written late: everything is to be published anew.
        actors: Where each stands, in the scenario's order.
        told: What each was told in the end: "done", "failed" or "unknown"; empty while it works.
        crashes, losses: How many may still happen.
        mains: Main files of V2 checkpoints.
        sidecars: Sidecar -> when it was written.
        hint: Version and writer of the checkpoint that ``_last_checkpoint`` is at.
        keeps_log: Clean-ups keep the log as long as the table says; else they were asked to keep nothing.
    """

    time: int
    history: tuple[tuple[int, Commit], ...]
    logged: frozenset[int]
    strays: frozenset[tuple[int, Commit]]
    checkpoints: frozenset[int]
    files: tuple[tuple[File, int], ...]
    pending: frozenset[Put]
    manifest: frozenset[File] | None
    state: int | None
    lease: Lease
    doubt: bool
    actors: tuple[Any, ...]
    told: tuple[str, ...]
    crashes: int
    losses: int
    mains: frozenset[Main] = frozenset()
    sidecars: tuple[tuple[str, int], ...] = ()
    hint: tuple[int, str] = (-1, "")
    keeps_log: bool = True


class Rules(NamedTuple):
    """What the engine keeps to. Each can be taken away, and the explorer has to find what goes wrong then."""

    put_if_absent: bool = True
    """A commit file is created only if it does not exist."""
    settle: bool = True
    """A put without a reply is read back before its outcome is reported."""
    same_version: bool = True
    """A version is given up only after another writer's commit was seen in it."""
    conflicts: bool = True
    """A commit moves after the winners only if none changed what it read."""
    retention: bool = True
    """VACUUM keeps files that are younger than the retention."""
    tombstones: bool = True
    """VACUUM keeps files that were removed within the retention."""
    looks_again: bool = True
    """VACUUM keeps files that came back between its reading of the log and its START."""
    vacuum_is_seen: bool = True
    """RESTORE conflicts with a VACUUM that began since it read the table."""
    running_is_seen: bool = True
    """RESTORE refuses files that a running VACUUM may delete."""
    missing_is_seen: bool = True
    """RESTORE checks that the files it brings back exist."""
    followed: bool = True
    """A transaction that took long checks the version before its own, before and after its put."""
    looks_twice_quickly: bool = True
    """It takes a commit back only right after that check; after a pause the outcome is unknown."""
    oldest_first: bool = True
    """The log is cleaned up in the order of its versions."""
    anchored: bool = True
    """The log is cleaned up only before a checkpoint that is old enough."""
    lease: bool = True
    """Only one publisher works at a time."""
    doubted: bool = True
    """A publisher that wrote after its lease leaves a doubt, and the next one publishes everything again."""
    manifests_are_kept: bool = True
    """VACUUM keeps files that a published manifest names."""
    state_last: bool = True
    """The state is written after the manifest."""
    idempotent: bool = True
    """A batch that is already in the log is not committed again."""
    query_conflicts: bool = True
    """A commit of a query conflicts with an unseen commit of the same query."""
    looks_after: bool = True
    """A writer that named sidecars again checks that their checkpoint is still the newest, or writes a full one."""
    hinted: bool = True
    """Only sidecars of the checkpoint in the hint are named again."""
    young: bool = True
    """Only sidecars of a checkpoint younger than half of any clean-up's retention are named again."""
    anchor_is_settled: bool = True
    """The log is cleaned up only before a checkpoint that the hint has reached."""


def history_of(lake: Lake) -> dict[int, Commit]:
    """Every version that there ever was."""
    return dict(lake.history)


def newest(lake: Lake) -> int:
    """The newest version."""
    return max(lake.history)[0]


def taken(lake: Lake) -> frozenset[int]:
    """Versions of which there is a commit file."""
    return lake.logged | {version for version, _ in lake.strays}


def live(lake: Lake, version: int) -> frozenset[File]:
    """The files of a version, by all commits up to it."""
    found: frozenset[File] = frozenset()
    for number, commit in lake.history:
        if number <= version:
            found = (found - commit.removes) | commit.adds
    return found


def there(lake: Lake) -> frozenset[File]:
    """The files that are in the store."""
    return frozenset(file for file, _ in lake.files)


def with_file(lake: Lake, file: File) -> Lake:
    """The same with a file that is written now."""
    kept = (item for item in lake.files if item[0] != file)
    return lake._replace(files=tuple(sorted((*kept, (file, lake.time)), key=lambda item: item[0].name)))


def without_file(lake: Lake, file: File) -> Lake:
    """The same without a file."""
    return lake._replace(files=tuple(item for item in lake.files if item[0] != file))


def with_commit(lake: Lake, version: int, commit: Commit) -> Lake:
    """The same with a version's commit; one that was there is overwritten, one that was cleaned up is not."""
    if version not in lake.logged and version in dict(lake.history):
        return lake._replace(strays=lake.strays | {(version, commit)})
    kept = [item for item in lake.history if item[0] != version]
    stamped = commit._replace(at=lake.time)
    return lake._replace(history=tuple(sorted((*kept, (version, stamped)))), logged=lake.logged | {version})


def replay(lake: Lake) -> Rows:
    """The rows that the commits leave, one after the other, by what each was asked for and not by its files."""
    rows: Rows = frozenset()
    at: list[Rows] = []
    for _, commit in lake.history:
        if commit.op == "CREATE":
            rows = frozenset().union(*(file.rows for file in commit.adds))
        elif commit.op in ("WRITE", "STREAMING UPDATE"):
            rows = rows | {commit.row}
        elif commit.op == "DELETE":
            rows = rows - {commit.row}
        elif commit.op == "RESTORE":
            rows = at[0]
        at.append(rows)
    return rows
