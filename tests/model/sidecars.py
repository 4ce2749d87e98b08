"""Say what writers of V2 checkpoints do next, and clean-ups that delete checkpoints and their sidecars.

::

    writer:    list, hint | own sidecar | main | are the named ones there? | list again | hint
                                                         otherwise: a whole one, its hint, and the first main goes
    clean-up:  list | the anchor in full | hint | delete | candidates | list again | delete

The versions and the commits of them are there from the beginning: nobody here commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.model.actors import RETENTION, Actor, Step, set_actor
from tests.model.lake import Lake, Main, Rules

YOUNG = RETENTION / 2
"""A checkpoint of this age or more is not leant on."""


class Checkpointing(NamedTuple):
    """A writer of a V2 checkpoint: what it leans on, and when it began."""

    at: str
    read: int = 0
    base: Main | None = None
    is_kept: bool = False
    """Whether sidecars of the base are named again."""


class Sweeping(NamedTuple):
    """A clean-up: what it saw in its first listing, what is to be deleted yet."""

    at: str
    listed: frozenset[Main] = frozenset()
    anchor: Main | None = None
    left: tuple[Any, ...] = ()
    candidates: tuple[str, ...] = ()
    cutoff: int = 0


def named(main: Main) -> tuple[int, str]:
    """What listings sort a main file by: its version, then its name."""
    return main.version, main.by


def there_are(lake: Lake, main: Main) -> bool:
    """Whether each sidecar that a main file names is there."""
    return main.names <= {name for name, _ in lake.sidecars}


def without_main(lake: Lake, main: Main) -> Lake:
    """The same without a main file."""
    return lake._replace(mains=frozenset(item for item in lake.mains if named(item) != named(main)))


def with_sidecar(lake: Lake, name: str) -> Lake:
    """The same with a sidecar that is written now."""
    return lake._replace(sidecars=tuple(sorted((*lake.sidecars, (name, lake.time)))))


def with_hint(lake: Lake, version: int, by: str) -> Lake:
    """The same with a hint at a main file, unless it is at a later one; what it is at is settled."""
    if lake.hint[0] > version and lake.hint in {named(main) for main in lake.mains}:
        return lake
    mains = frozenset(main._replace(settled=True) if named(main) == (version, by) else main for main in lake.mains)
    return lake._replace(hint=(version, by), mains=mains)


# --- writers: pydelta/log/checkpoint ---------------------------------------------------------------------------


def write(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """Name again what the newest checkpoint names, if it is settled and young; look again once it is there."""
    me: Checkpointing = lake.actors[index]
    name, version = actor.name, actor.batch
    if me.at == "list":
        base = max(lake.mains, key=named, default=None)
        yield f"{name} lists the checkpoints", set_actor(lake, index, Checkpointing("hint", lake.time, base))
    elif me.at == "hint":
        base = me.base
        is_kept = (
            base is not None
            and actor.kind == "v2 checkpoint"
            and base.version < version
            and (lake.hint == named(base) or not rules.hinted)
            and (lake.time - base.at < YOUNG or not rules.young)
        )
        after = me._replace(at="sidecar" if is_kept else "whole sidecar", is_kept=is_kept)
        yield f"{name} reads the hint", set_actor(lake, index, after)
    elif me.at == "sidecar":
        yield f"{name} writes its sidecar", set_actor(with_sidecar(lake, name), index, me._replace(at="main"))
    elif me.at == "main":
        assert me.base is not None
        main = Main(version, name, me.base.names | {name}, lake.time)
        after = lake._replace(mains=lake.mains | {main})
        yield f"{name} writes checkpoint {version}", set_actor(after, index, me._replace(at="look"))
    elif me.at == "look":
        own = next((main for main in lake.mains if named(main) == (version, name)), None)
        if own is not None and there_are(lake, own):
            after = set_actor(lake, index, me._replace(at="list again" if rules.looks_after else "settle"))
            yield f"{name} finds what it names", after
        else:
            gone = lake if own is None else without_main(lake, own)
            after = set_actor(gone, index, me._replace(at="whole sidecar", is_kept=False))
            yield f"{name} misses a sidecar", after
    elif me.at == "list again":
        assert me.base is not None
        others = [main for main in lake.mains if named(main) != (version, name)]
        is_newest = bool(others) and named(max(others, key=named)) == named(me.base)
        after = me._replace(at="settle" if is_newest else "whole sidecar")
        yield f"{name} lists again", set_actor(lake, index, after)
    elif me.at == "settle":
        yield f"{name} puts the hint", set_actor(with_hint(lake, version, name), index, Checkpointing("end"), "done")
    else:
        yield from write_whole(lake, index, actor)


def write_whole(lake: Lake, index: int, actor: Actor) -> Iterator[Step]:
    """A checkpoint with sidecars of its own; one that named others before it goes."""
    me: Checkpointing = lake.actors[index]
    version, by = actor.batch, f"{actor.name} whole"
    if me.at == "whole sidecar":
        if me.base is not None and not there_are(lake, me.base):  # it copies rows that it does not keep in memory
            yield f"{actor.name} cannot write", set_actor(lake, index, Checkpointing("end"), "failed")
            return
        yield f"{actor.name} writes all rows", set_actor(with_sidecar(lake, by), index, me._replace(at="whole main"))
    elif me.at == "whole main":
        after = lake._replace(mains=lake.mains | {Main(version, by, frozenset([by]), lake.time)})
        yield f"{actor.name} writes a whole checkpoint {version}", set_actor(after, index, me._replace(at="whole hint"))
    elif me.at == "whole hint":
        then = "drop" if me.is_kept else "end"
        after = set_actor(with_hint(lake, version, by), index, me._replace(at=then), "" if me.is_kept else "done")
        yield f"{actor.name} puts the hint", after
    elif me.at == "drop":
        gone = without_main(lake, Main(version, actor.name, frozenset(), 0))
        yield f"{actor.name} deletes its first one", set_actor(gone, index, Checkpointing("end"), "done")


# --- clean-ups: pydelta/log/cleanup.py, and as others do it ----------------------------------------------------


def sweep(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """Delete what lies before an old checkpoint that can be read, then the old sidecars that none names."""
    me: Sweeping = lake.actors[index]
    if me.at == "list":
        keeps = RETENTION if lake.keeps_log else -1
        expired = [number for number, commit in lake.history if commit.at < lake.time - keeps]
        anchors = [main for main in lake.mains if expired and main.version <= max(expired)]
        anchor = max(anchors, key=named, default=None)
        after = Sweeping("read" if anchor else "end", lake.mains, anchor, cutoff=lake.time - RETENTION)
        yield f"{actor.name} lists the log", set_actor(lake, index, after, "" if anchor else "done")
        return
    assert me.anchor is not None
    if me.at == "read":
        found = me.anchor if named(me.anchor) in {named(main) for main in lake.mains} else None
        is_whole = found is not None and there_are(lake, found)
        after = me._replace(at="hint" if is_whole else "end")
        yield f"{actor.name} reads checkpoint {me.anchor.version}", set_actor(lake, index, after, _told(after))
    elif me.at == "hint":
        is_settled = lake.hint[0] >= me.anchor.version or not rules.anchor_is_settled
        older = tuple(sorted((main for main in me.listed if main.version < me.anchor.version), key=named))
        after = me._replace(at="delete" if is_settled else "end", left=("the commits", *older))
        yield f"{actor.name} reads the hint", set_actor(lake, index, after, _told(after))
    elif me.at == "delete":
        yield _delete(lake, index, actor, me, me.anchor.version)
    else:
        yield from sweep_sidecars(lake, index, actor, lists_again=True)


def sweep_by_hint(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """As the reference engine: what is old and before the hint, then a new listing tells which sidecars are named."""
    me: Sweeping = lake.actors[index]
    if me.at == "list":
        after = Sweeping("first listing", anchor=Main(*lake.hint, frozenset(), 0), cutoff=lake.time - RETENTION)
        yield f"{actor.name} reads the hint", set_actor(lake, index, after)
        return
    assert me.anchor is not None
    if me.at == "first listing":
        before = lake.time - RETENTION if lake.keeps_log else lake.time + 1
        doomed = [main for main in lake.mains if main.version < me.anchor.version and main.at < before]
        left = ("the commits", *sorted(doomed, key=named)) if doomed else ()
        after = me._replace(at="delete" if doomed else "end", listed=lake.mains, left=left)
        yield f"{actor.name} lists the log", set_actor(lake, index, after, _told(after))
    elif me.at == "delete":
        newest_gone = max(main.version for main in me.left if isinstance(main, Main))
        yield _delete(lake, index, actor, me, newest_gone)
    else:
        yield from sweep_sidecars(lake, index, actor, lists_again=True)


def sweep_at_once(lake: Lake, index: int, actor: Actor, rules: Rules) -> Iterator[Step]:
    """As nobody known does, but could: all before the newest checkpoint, and sidecars by one listing of before."""
    me: Sweeping = lake.actors[index]
    if me.at == "list":
        before = lake.time - RETENTION if lake.keeps_log else lake.time + 1
        anchor = max(lake.mains, key=named)
        older = [main for main in lake.mains if main.version < anchor.version and main.at < before]
        left = tuple(sorted(older, key=named))
        then, cutoff = "delete" if left else "end", lake.time - RETENTION
        after = Sweeping(then, lake.mains - set(left), anchor, left, cutoff=cutoff)
        yield f"{actor.name} lists the log", set_actor(lake, index, after, _told(after))
    elif me.at == "delete":
        assert me.anchor is not None
        yield _delete(lake, index, actor, me, -1)
    else:
        yield from sweep_sidecars(lake, index, actor, lists_again=False)


def _delete(lake: Lake, index: int, actor: Actor, me: Sweeping, before: int) -> Step:
    """The next thing to delete; commits before a version are one."""
    first, left = me.left[0], me.left[1:]
    after = me._replace(at="delete" if left else "candidates", left=left)
    if isinstance(first, Main):
        return f"{actor.name} deletes checkpoint {first.version}", set_actor(without_main(lake, first), index, after)
    gone = lake._replace(logged=frozenset(number for number in lake.logged if number >= before))
    return f"{actor.name} deletes {first}", set_actor(gone, index, after)


def sweep_sidecars(lake: Lake, index: int, actor: Actor, *, lists_again: bool) -> Iterator[Step]:
    """List old sidecars, look which are named, delete the others."""
    me: Sweeping = lake.actors[index]
    if me.at == "candidates":
        candidates = tuple(name for name, at in lake.sidecars if at < me.cutoff)
        after = me._replace(at="list again" if candidates else "end", candidates=candidates)
        yield f"{actor.name} lists the sidecars", set_actor(lake, index, after, _told(after))
    elif me.at == "list again":
        used = frozenset().union(*(main.names for main in (lake.mains if lists_again else me.listed)))
        left = tuple(name for name in me.candidates if name not in used)
        after = Sweeping("sidecars" if left else "end", anchor=me.anchor, candidates=left)
        yield f"{actor.name} looks which are named", set_actor(lake, index, after, _told(after))
    elif me.at == "sidecars":
        left = me.candidates[1:]
        kept = tuple(item for item in lake.sidecars if item[0] != me.candidates[0])
        after = me._replace(at="sidecars" if left else "end", candidates=left)
        label = f"{actor.name} deletes the sidecar of {me.candidates[0]}"
        yield label, set_actor(lake._replace(sidecars=kept), index, after, _told(after))


def _told(local: Sweeping) -> str:
    return "done" if local.at == "end" else ""


# --- the table -------------------------------------------------------------------------------------------------


def with_checkpoints(lake: Lake) -> Lake:
    """A table whose checkpoint of version 1 is of now and names a sidecar of long ago."""
    old = -10 * RETENTION
    first = Main(1, "first", frozenset(["first"]), lake.time, settled=True)
    return lake._replace(mains=frozenset([first]), sidecars=(("first", old),), hint=named(first))


def is_broken(lake: Lake) -> str:
    """What a checkpoint names that is gone; empty if nothing is.

    One that is not settled counts only where the log is kept as long as the table says.
    """
    for main in sorted(lake.mains, key=named):
        if (main.settled or lake.keeps_log) and not there_are(lake, main):
            return f"checkpoint {main.version} has lost a sidecar"
    return ""


def starts(lake: Lake) -> Iterator[int]:
    """Versions of the checkpoints that can be read."""
    return (main.version for main in lake.mains if there_are(lake, main))


def is_in_time(lake: Lake, local: Checkpointing) -> bool:
    """Whether a writer on its way may stay so for another tick: it takes less than half of the retention."""
    return local.at in ("list", "end") or lake.time + 1 - local.read <= YOUNG


KINDS: dict[str, Callable[[Lake, int, Actor, Rules], Iterator[Step]]] = {
    "v2 checkpoint": write,
    "whole checkpoint": write,
    "sweep": sweep,
    "sweep by hint": sweep_by_hint,
    "sweep at once": sweep_at_once,
}
FIRST: dict[str, Any] = {
    **dict.fromkeys(("v2 checkpoint", "whole checkpoint"), Checkpointing("list")),
    **dict.fromkeys(("sweep", "sweep by hint", "sweep at once"), Sweeping("list")),
}
