"""Say what must hold: in every state that can be reached, and when everybody has ended.

Each promise returns what is wrong, or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.model.actors import RETENTION
from tests.model.lake import Lake, live, newest, replay, there
from tests.model.sidecars import is_broken, starts

Promise = Callable[[Lake, tuple[str, ...]], str]


def gapless(lake: Lake, names: tuple[str, ...]) -> str:
    """Versions follow one another without a gap."""
    versions = [number for number, _ in lake.history]
    return "" if versions == list(range(len(versions))) else f"versions {versions}"


def once(lake: Lake, names: tuple[str, ...]) -> str:
    """What was wanted once stands in the log once."""
    made = Counter((commit.by, commit.op) for _, commit in lake.history)
    twice = [by for (by, _), count in made.items() if count > 1]
    batches = Counter(commit.batch for _, commit in lake.history if commit.batch >= 0)
    twice += [f"batch {batch}" for batch, count in batches.items() if count > 1]
    return f"{twice[0]} is in the log twice" if twice else ""


def told_the_truth(lake: Lake, names: tuple[str, ...]) -> str:
    """An acknowledged commit stays; what was told to have failed leaves no trace, and none that comes later."""
    made = {commit.by for _, commit in lake.history}
    made |= {put.commit.by for put in lake.pending if put.version not in dict(lake.history)}
    for name, told, local in zip(names, lake.told, lake.actors, strict=True):
        commits = getattr(local, "commit", None) is not None
        if told == "done" and commits and name not in {commit.by for _, commit in lake.history}:
            return f"{name} was acknowledged and is gone"
        if told == "failed" and name in made:
            return f"{name} was reported as failed, but is in the log or may still get there"
    return ""


def readable(lake: Lake, names: tuple[str, ...]) -> str:
    """The newest version can be read from the log, and so can each one that was current within the retention."""
    for version, _ in lake.history:
        if not is_retained(lake, version) or (version < newest(lake) and not lake.keeps_log):
            continue
        begins = [number for number in (*lake.checkpoints, *starts(lake)) if number <= version]
        first = max(begins) + 1 if begins else 0
        missing = [number for number in range(first, version + 1) if number not in lake.logged]
        if missing:
            return f"version {version} needs commit {missing[0]}, which is gone"
    return ""


def named(lake: Lake, names: tuple[str, ...]) -> str:
    """Each sidecar that a checkpoint names is there, once the hint has come to it; before, if the log is kept."""
    return is_broken(lake)


def whole(lake: Lake, names: tuple[str, ...]) -> str:
    """All files of the newest version are there, and of each one that was current within the retention."""
    for version, _ in lake.history:
        missing = live(lake, version) - there(lake) if is_retained(lake, version) else None
        if missing:
            return f"version {version} has lost {min(missing).name}"
    return ""


def is_retained(lake: Lake, version: int) -> bool:
    """Whether a version is the newest one, or was so within the retention."""
    followed = dict(lake.history).get(version + 1)
    return version == newest(lake) or (followed is not None and followed.at >= lake.time - RETENTION)


def serial(lake: Lake, names: tuple[str, ...]) -> str:
    """The rows are those that the commits leave one after the other; none is there twice, none is lost."""
    rows = Counter(row for file in live(lake, newest(lake)) for row in file.rows)
    doubled = [row for row, count in rows.items() if count > 1]
    if doubled:
        return f"row {doubled[0]} is there twice"
    wanted = replay(lake)
    return "" if set(rows) == wanted else f"rows {''.join(sorted(rows))}, not {''.join(sorted(wanted))}"


def published(lake: Lake, names: tuple[str, ...]) -> str:
    """What a manifest names is there."""
    missing = (lake.manifest or frozenset()) - there(lake)
    return f"the manifest names {min(missing).name}, which is gone" if missing else ""


def published_in_order(lake: Lake, names: tuple[str, ...]) -> str:
    """In the end the manifest is of no version before the one that its state tells, unless a doubt says so."""
    if lake.state is None or lake.doubt:
        return ""
    later = [version for version, _ in lake.history if version >= lake.state]
    if any(lake.manifest == live(lake, version) for version in later):
        return ""
    return f"the state has version {lake.state}, the manifest an earlier one"


ALWAYS: tuple[Promise, ...] = (gapless, once, told_the_truth, readable, named, whole, serial, published)
IN_THE_END: tuple[Promise, ...] = (published_in_order,)
