"""Say what each actor does next: a writer, RESTORE, a checkpoint, the log's clean-up, VACUUM, a publisher, a sink.

Each function takes where its actor stands and gives the steps that it can take now: a label, and the lake afterwards.
A step is as much as the store does at once: one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.model.lake import (
    Commit,
    File,
    Lake,
    Lease,
    Put,
    Rules,
    history_of,
    live,
    newest,
    taken,
    there,
    with_commit,
    with_file,
    without_file,
)

Step = tuple[str, Lake]
RETENTION = 2
"""Ticks: of removed files and of young ones, and of the log."""
LEASE = 1


class Writing(NamedTuple):
    """A transaction on its way: what it read and what it wants to commit next."""

    at: str
    base: int = -1
    commit: Commit | None = None
    began: int = 0
    """When it wrote its file."""
    read: int = 0
    """When it read the log."""
    looked: int = 0
    """When it saw the version before, last."""


class Actor(NamedTuple):
    """A name, and what it does.

    Args:
        name: Of it alone; it names its files.
        kind: One of ``KINDS``.
        row: The row that a writer appends or deletes.
        batch: Of a stream.
    """

    name: str
    kind: str
    row: str = ""
    batch: int = -1


def set_actor(lake: Lake, index: int, local: Any, told: str = "") -> Lake:
    """The lake with an actor elsewhere, and what it was told. At its end nothing is kept of the way there."""
    if isinstance(local, Writing) and local.at == "end":
        local = Writing("end", commit=local.commit)
    actors = (*lake.actors[:index], local, *lake.actors[index + 1 :])
    if not told:
        return lake._replace(actors=actors)
    return lake._replace(actors=actors, told=(*lake.told[:index], told, *lake.told[index + 1 :]))


# --- transactions: pydelta/txn --------------------------------------------------------------------------------


def plan(lake: Lake, actor: Actor, rules: Rules) -> tuple[Commit | None, File | None, str]:
    """What a transaction wants, from the newest version: the commit, the file to write first, or why there is none."""
    base = newest(lake)
    files = live(lake, base)
    if actor.kind == "append":
        file = File(f"{actor.name}.parquet", frozenset([actor.row]))
        return Commit(actor.name, "WRITE", adds=frozenset([file]), row=actor.row), file, ""
    if actor.kind == "delete":
        hit = [file for file in files if actor.row in file.rows]
        if not hit:
            return None, None, "done"
        rest = File(f"{actor.name}.parquet", hit[0].rows - {actor.row})
        adds = frozenset([rest]) if rest.rows else frozenset()
        return Commit(actor.name, "DELETE", adds, frozenset(hit), row=actor.row), rest if rest.rows else None, ""
    if actor.kind == "optimize":
        if len(files) < 2:
            return None, None, "done"
        whole = File(f"{actor.name}.parquet", frozenset().union(*(file.rows for file in files)))
        return Commit(actor.name, "OPTIMIZE", frozenset([whole]), files), whole, ""
    if actor.kind == "restore":
        return plan_restore(lake, actor, rules)
    assert actor.kind == "sink"
    if rules.idempotent and any(commit.batch == actor.batch for _, commit in lake.history):
        return None, None, "done"
    file = File(f"{actor.name}.parquet", frozenset([actor.row]))
    return Commit(actor.name, "STREAMING UPDATE", frozenset([file]), row=actor.row, batch=actor.batch), file, ""


def plan_restore(lake: Lake, actor: Actor, rules: Rules) -> tuple[Commit | None, File | None, str]:
    """RESTORE to version 0: what it brings back must be there, and stay."""
    target, current = live(lake, 0), live(lake, newest(lake))
    returning = target - current
    if rules.missing_is_seen and not returning <= there(lake):
        return None, None, "failed"
    if rules.running_is_seen and returning and running_vacuum(lake):
        return None, None, "failed"
    return Commit(actor.name, "RESTORE", returning, current - target), None, ""


def running_vacuum(lake: Lake) -> bool:
    """Whether a VACUUM began and has not said that it ended."""
    ended = {commit.by for _, commit in lake.history if commit.op == "VACUUM END"}
    return any(commit.op == "VACUUM START" and commit.by not in ended for _, commit in lake.history)


def conflicts(mine: Commit, winner: Commit, rules: Rules) -> bool:
    """Whether a commit may not move behind a winner."""
    if mine.op == "RESTORE":
        if winner.op == "VACUUM START":
            return rules.vacuum_is_seen and bool(mine.adds)
        return rules.conflicts and bool(winner.adds or winner.removes)
    if mine.batch >= 0 and winner.batch >= 0:
        return rules.query_conflicts
    return rules.conflicts and bool(mine.removes & winner.removes)


def transaction(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """Read, write a file, then put the commit until it is known what became of it."""
    me: Writing = lake.actors[index]
    if me.at == "read":
        commit, file, end = plan(lake, actor, rules)
        if commit is None:
            yield f"{actor.name} reads: {end}", set_actor(lake, index, Writing("end"), end)
            return
        after = Writing("write" if file else "put", newest(lake), commit, lake.time, lake.time)
        yield f"{actor.name} reads version {newest(lake)}", set_actor(lake, index, after)
    elif me.at == "write":
        assert me.commit is not None
        (file,) = me.commit.adds
        after = me._replace(at="put", began=lake.time)
        yield f"{actor.name} writes {file.name}", set_actor(with_file(lake, file), index, after)
    elif me.at == "put":
        if rules.followed and lake.time > me.read:
            yield look(lake, index, actor, rules, "put it")
        else:
            yield from put(lake, index, actor, rules)
    elif me.at == "put it":
        yield from put(lake, index, actor, rules)
    elif me.at == "landed":
        yield look(lake, index, actor, rules, "end")
    elif me.at == "settle":
        yield from settle(lake, index, actor, rules)
    elif me.at == "follow":
        yield follow(lake, index, actor, rules)


def look(lake: Lake, index: int, actor: Actor, rules: Rules, then: str) -> Step:
    """Look for the version before; where it is gone, the commit is not made, or is taken back."""
    me: Writing = lake.actors[index]
    if me.base in lake.logged:
        after = set_actor(lake, index, me._replace(at=then, looked=lake.time), "done" if then == "end" else "")
        return f"{actor.name} finds {me.base} there", after
    if then == "end" and lake.time > me.looked and rules.looks_twice_quickly:
        return f"{actor.name} cannot tell", set_actor(lake, index, me._replace(at="end"), "unknown")
    left = frozenset(item for item in lake.strays if item[1].by != actor.name)
    gone = lake._replace(strays=left)
    return f"{actor.name} finds {me.base} gone", set_actor(gone, index, me._replace(at="end"), "failed")


def landed_at(lake: Lake, index: int, rules: Rules) -> Lake:
    """An actor whose commit landed: told so, or looking once more."""
    me: Writing = lake.actors[index]
    if rules.followed and lake.time > me.read:
        return set_actor(lake, index, me._replace(at="landed"))
    return set_actor(lake, index, me._replace(at="end"), "done")


def put(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """One put-if-absent of the next version; its reply may be lost, before or after it took effect."""
    me: Writing = lake.actors[index]
    assert me.commit is not None
    version = me.base + 1
    is_free = version not in taken(lake) or not rules.put_if_absent
    if is_free:
        landed = with_commit(lake, version, me.commit)
        yield f"{actor.name} commits {version}", landed_at(landed, index, rules)
    else:
        yield f"{actor.name} finds {version} taken", set_actor(lake, index, me._replace(at="follow"))
    if lake.losses:
        fewer = lake._replace(losses=lake.losses - 1)
        lost = me._replace(at="settle")
        if is_free:
            landed = with_commit(fewer, version, me.commit)
            yield f"{actor.name} commits {version}, no reply", set_actor(landed, index, lost)
        late = fewer._replace(pending=fewer.pending | {Put(version, me.commit)})
        yield f"{actor.name} puts {version}, no reply, it may land yet", set_actor(late, index, lost)


def settle(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """Read the version back: ours, another's, or nothing there, which is put again."""
    me: Writing = lake.actors[index]
    version = me.base + 1
    if not rules.settle:
        yield f"{actor.name} takes it for failed", set_actor(lake, index, me._replace(at="end"), "failed")
        return
    if not rules.same_version:
        yield f"{actor.name} tries the next version", set_actor(lake, index, me._replace(at="put", base=newest(lake)))
        return
    strays = dict(lake.strays)
    found = history_of(lake).get(version) if version in lake.logged else strays.get(version)
    if found is None:
        yield f"{actor.name} finds no {version}: puts it again", set_actor(lake, index, me._replace(at="put"))
    elif found.by == actor.name:
        yield f"{actor.name} finds its own {version}", landed_at(lake, index, rules)
    else:
        yield f"{actor.name} finds another's {version}", set_actor(lake, index, me._replace(at="follow"))


def follow(lake: Lake, index: int, actor: Actor, rules: Rules) -> Step:
    """Check each winner since the base, and move behind them."""
    me: Writing = lake.actors[index]
    assert me.commit is not None
    winners = [commit for number, commit in lake.history if number > me.base and number in lake.logged]
    if any(commit.by == actor.name for commit in winners):
        # a put of ours that nobody heard of landed after all
        return f"{actor.name} finds its own commit", set_actor(lake, index, me._replace(at="end"), "done")
    if any(conflicts(me.commit, winner, rules) for winner in winners):
        return f"{actor.name} conflicts", set_actor(lake, index, me._replace(at="end"), "failed")
    return f"{actor.name} moves behind {newest(lake)}", set_actor(lake, index, me._replace(at="put", base=newest(lake)))


# --- the log's upkeep: pydelta/log ----------------------------------------------------------------------------


def checkpoint(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """Read the newest version, write its checkpoint; whole or not at all."""
    me: Writing = lake.actors[index]
    if me.at == "read":
        yield f"{actor.name} reads {newest(lake)}", set_actor(lake, index, Writing("write", newest(lake)))
    elif me.at == "write":
        after = lake._replace(checkpoints=lake.checkpoints | {me.base})
        yield f"{actor.name} writes checkpoint {me.base}", set_actor(after, index, Writing("end"), "done")


class Deleting(NamedTuple):
    """What is to be deleted yet, from one listing."""

    at: str
    left: tuple[Any, ...] = ()
    cutoff: int = 0
    needed: frozenset[File] = frozenset()


def cleanup(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """List the log; delete the commits before the newest checkpoint at or before the newest expired version."""
    me: Deleting = lake.actors[index]
    if me.at == "list":
        expired = [
            number for number, commit in lake.history if number in lake.logged and commit.at < lake.time - RETENTION
        ]
        anchors = [
            number for number in lake.checkpoints if expired and number <= max(expired) and number in lake.logged
        ]
        if rules.anchored:
            doomed = tuple(sorted(number for number in lake.logged if anchors and number < max(anchors)))
        else:
            doomed = tuple(sorted(expired))
        doomed = doomed if rules.oldest_first else doomed[::-1]
        after = Deleting("delete", doomed) if doomed else Deleting("end")
        yield f"{actor.name} lists the log", set_actor(lake, index, after, "" if doomed else "done")
    elif me.at == "delete":
        left = me.left[1:]
        after = lake._replace(logged=lake.logged - {me.left[0]})
        end = Deleting("delete", left) if left else Deleting("end")
        yield f"{actor.name} deletes commit {me.left[0]}", set_actor(after, index, end, "" if left else "done")


# --- VACUUM: pydelta/commands/vacuum --------------------------------------------------------------------------


def vacuum(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """Read the log, list the files, commit a START, spare what came back meanwhile, delete, commit an END."""
    me: Deleting = lake.actors[index]
    if me.at == "read":
        cutoff = lake.time - RETENTION if rules.retention else lake.time + 1
        after = Deleting("list", cutoff=cutoff, needed=needed_files(lake, cutoff, rules))
        yield f"{actor.name} reads version {newest(lake)}", set_actor(lake, index, after)
    elif me.at == "list":
        doomed = tuple(sorted(file for file, written in lake.files if written < me.cutoff and file not in me.needed))
        after = me._replace(at="start", left=doomed, needed=frozenset())
        yield f"{actor.name} lists", set_actor(lake, index, after)
    elif me.at == "start":
        start = with_commit(lake, newest(lake) + 1, Commit(actor.name, "VACUUM START"))
        yield f"{actor.name} commits START", set_actor(start, index, me._replace(at="look again"))
    elif me.at == "look again":
        back = live(lake, newest(lake)) if rules.looks_again else frozenset()
        left = tuple(file for file in me.left if file not in back)
        yield f"{actor.name} looks at the log again", set_actor(lake, index, me._replace(at="delete", left=left))
    elif me.at == "delete" and me.left:
        after = without_file(lake, me.left[0])
        yield f"{actor.name} deletes {me.left[0].name}", set_actor(after, index, me._replace(left=me.left[1:]))
    elif me.at == "delete":
        after = with_commit(lake, newest(lake) + 1, Commit(actor.name, "VACUUM END"))
        yield f"{actor.name} commits END", set_actor(after, index, Deleting("end"), "done")


def needed_files(lake: Lake, cutoff: int, rules: Rules) -> frozenset[File]:
    """What a version reads that was current since the cut-off, and what a published manifest names."""
    needed = live(lake, newest(lake))
    if rules.tombstones:
        for _, commit in lake.history:
            if commit.at >= cutoff:
                needed |= commit.removes
    if rules.manifests_are_kept and lake.manifest is not None:
        needed |= lake.manifest
    return needed


# --- manifests: pydelta/manifests -----------------------------------------------------------------------------


class Publishing(NamedTuple):
    """A publisher: its lease, and what it is about to write."""

    at: str
    expires: int = 0
    version: int = -1
    files: frozenset[File] = frozenset()
    anew: bool = False
    wrote: bool = False


def publish(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """Take the lease, read the newest version, write the manifest, then the state, and let the next one in."""
    me: Publishing = lake.actors[index]
    name = actor.name
    if me.at == "acquire":
        if rules.lease and lake.lease.holder and lake.time <= lake.lease.expires:
            return  # it waits
        expires = lake.time + LEASE
        after = lake._replace(lease=Lease(name, expires)) if rules.lease else lake
        yield f"{name} takes the lease", set_actor(after, index, Publishing("read", expires, anew=lake.doubt))
    elif me.at == "read":
        version = newest(lake)
        if lake.state is not None and lake.state >= version and not me.anew:
            yield f"{name} has nothing to do", set_actor(lake, index, me._replace(at="release"))
            return
        after = me._replace(at="check", version=version, files=live(lake, version))
        yield f"{name} reads version {version}", set_actor(lake, index, after)
    elif me.at in ("check", "check state"):
        if rules.lease and lake.time >= me.expires:
            yield f"{name} has lost the lease", set_actor(lake, index, me._replace(at="release"))
            return
        first = (
            ("write" if rules.state_last else "state")
            if me.at == "check"
            else ("state" if rules.state_last else "write")
        )
        yield f"{name} may write", set_actor(lake, index, me._replace(at=first))
    elif me.at in ("write", "state"):
        is_first = (me.at == "write") == rules.state_last
        done = lake._replace(manifest=me.files) if me.at == "write" else lake._replace(state=me.version)
        if not is_first and me.anew:
            done = done._replace(doubt=False)
        after = me._replace(at="check state" if is_first else "release", wrote=True)
        yield (
            f"{name} writes {'the manifest' if me.at == 'write' else 'the state'} of {me.version}",
            set_actor(done, index, after),
        )
    elif me.at == "release":
        is_late = rules.lease and lake.time >= me.expires
        after = lake
        if is_late and me.wrote and rules.doubted:
            after = lake._replace(doubt=True)
        elif not is_late and lake.lease.holder == name:
            after = lake._replace(lease=Lease())
        yield f"{name} lets the next one in", set_actor(after, index, Publishing("end"), "done")


KINDS: dict[str, Callable[[Lake, int, Actor, Rules], Iterator[Step]]] = {
    "append": transaction,
    "delete": transaction,
    "optimize": transaction,
    "restore": transaction,
    "sink": transaction,
    "checkpoint": checkpoint,
    "cleanup": cleanup,
    "vacuum": vacuum,
    "publish": publish,
}
FIRST: dict[str, Any] = {
    **dict.fromkeys(("append", "delete", "optimize", "restore", "sink", "checkpoint"), Writing("read")),
    "cleanup": Deleting("list"),
    "vacuum": Deleting("read"),
    "publish": Publishing("acquire"),
}
