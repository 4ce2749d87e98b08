"""What a publication empties, deletes and remembers, case by case: from the state that was read, and what has files."""

from __future__ import annotations

import msgspec
import pytest

from pydelta.manifests.plan import FoundManifests, Publication, plan_publication, why_full
from pydelta.manifests.state import GENERATOR, ManifestState

TABLE = ManifestState(
    table_id="id-1",
    location="s3a://lake/t",
    version=7,
    generation=0,
    partition_columns=("p",),
    partition_types=("string",),
    schemes={"s3a": "s3"},
)
PLAIN = msgspec.structs.replace(TABLE, partition_columns=(), partition_types=())


def state(of=TABLE, **changes):
    return msgspec.structs.replace(of, **changes)


def old(*directories, of=TABLE, version=5, **changes):
    """The state of version 5, with manifests of these directories."""
    return state(of, version=version, partitions=dict.fromkeys(directories, version), **changes)


def planned(partitions, *, emptied=(), removed=(), left=(), of=TABLE, **after):
    return Publication(emptied=emptied, removed=removed, after=state(of, partitions=partitions, emptied=left, **after))


KEEP = {"keep_emptied": True}
CASES = {
    # --- the difference since the state
    "a directory with more files": (
        old("p=a", "p=b"), {"filled": ["p=a"]}, planned({"p=a": 7, "p=b": 5})),
    "a new directory": (
        old("p=a"), {"filled": ["p=b"]}, planned({"p=a": 5, "p=b": 7})),
    "no files any more": (
        old("p=a", "p=b"), {"without_files": ["p=b"]}, planned({"p=a": 5}, removed=("p=b",))),
    "no files any more, and a metastore has the partition": (
        old("p=a", "p=b"), {"without_files": ["p=b"], **KEEP},
        planned({"p=a": 5, "p=b": 7}, emptied=("p=b",), left=("p=b",))),
    "emptied before, and a metastore has the partition still": (
        old("p=a", "p=b", emptied=("p=b",)), {"filled": ["p=a"], **KEEP},
        planned({"p=a": 7, "p=b": 5}, left=("p=b",))),
    "emptied before, and nobody waits for a metastore": (
        old("p=a", "p=b", emptied=("p=b",)), {"filled": ["p=a"]}, planned({"p=a": 7}, removed=("p=b",))),
    "emptied before, and has files again": (
        old("p=b", emptied=("p=b",)), {"filled": ["p=b"], **KEEP}, planned({"p=b": 7})),
    "nothing changed but the version": (old("p=a"), {}, planned({"p=a": 5})),
    # --- asked for ahead
    "asked for ahead stays without files": (
        old("p=a", "p=b", ahead=("p=b",)), {"without_files": ["p=b"]}, planned({"p=a": 5, "p=b": 5}, ahead=("p=b",))),
    "asked for ahead, and has files": (
        old("p=b", ahead=("p=b",)), {"filled": ["p=b"]}, planned({"p=b": 7})),
    "asked for ahead stays when everything is written": (
        old("p=b", ahead=("p=b",)), {"filled": ["p=a"], "listed": ["p=a", "p=b"]},
        planned({"p=a": 7, "p=b": 7}, ahead=("p=b",))),
    "asked for ahead of another table": (
        old("p=b", ahead=("p=b",), table_id="id-0"), {"filled": ["p=a"], "listed": ["p=b"]},
        planned({"p=a": 7}, removed=("p=b",))),
    "asked for ahead when the column had another type": (
        old("p=1", ahead=("p=1",), partition_types=("integer",)), {"filled": [], "listed": ["p=1"]},
        planned({}, removed=("p=1",))),
    # --- everything
    "nothing is published": (None, {"filled": ["p=a"], "listed": []}, planned({"p=a": 7})),
    "everything: what the state says does not count": (
        old("p=z", emptied=("p=z",)), {"filled": ["p=a"], "listed": ["p=a"]}, planned({"p=a": 7})),
    "everything: a manifest that nobody knows goes": (
        None, {"filled": ["p=a"], "listed": ["p=a", "p=x"]}, planned({"p=a": 7}, removed=("p=x",))),
    "everything: a metastore may have that partition": (
        None, {"filled": ["p=a"], "listed": ["p=x"], **KEEP},
        planned({"p=a": 7, "p=x": 7}, emptied=("p=x",), left=("p=x",))),
    "partitioned in another way: the old manifests go": (
        None, {"filled": ["p=a"], "listed": ["q=1"]}, planned({"p=a": 7}, removed=("q=1",))),
    "partitioned in another way: the old manifests keep their rows for the metastore": (
        None, {"filled": ["p=a"], "listed": ["q=1"], **KEEP}, planned({"p=a": 7}, left=("q=1",))),
    # --- without partition columns
    "without partition columns": (
        old("", of=PLAIN), {"filled": [""]}, planned({"": 7}, of=PLAIN)),
    "without partition columns and without files": (
        old("", of=PLAIN), {"without_files": [""]}, planned({"": 7}, emptied=("",), of=PLAIN)),
    "no partition columns any more": (
        None, {"filled": [""], "listed": ["p=a"]}, planned({"": 7}, removed=("p=a",), of=PLAIN)),
    # --- some partitions
    "some partitions: the others stay at their version": (
        old("p=a", "p=b"), {"filled": ["p=a"], "partial": True}, planned({"p=a": 7, "p=b": 5}, version=5)),
    "some partitions: one of them has no files any more": (
        old("p=a", "p=b"), {"without_files": ["p=b"], "partial": True},
        planned({"p=a": 5}, removed=("p=b",), version=5)),
    "some partitions of what was never published": (
        None, {"filled": ["p=a"], "listed": [], "partial": True}, planned({"p=a": 7}, version=-1)),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_what_is_planned(case):
    before, inputs, expected = CASES[case]
    table = TABLE if expected.after.partition_columns else PLAIN
    how = {name: inputs[name] for name in ("listed", "keep_emptied") if name in inputs}
    found = FoundManifests(
        manifests=dict.fromkeys(inputs.get("filled", ())),
        without_files=inputs.get("without_files", ()),
        reason="every manifest" if "listed" in inputs else None,
        partial=inputs.get("partial", False),
    )
    assert plan_publication(before, table, found, **how) == expected


@pytest.mark.parametrize(
    ("before", "asked", "reason"),
    [
        (old("p=a"), False, None),
        (old("p=a"), True, "it was asked for"),
        (None, False, "nothing was published yet"),
        (None, True, "it was asked for"),
        (old("p=a", table_id="id-0"), False, "another table was published here before"),
        (old("p=a", location="s3a://old/t"), False, "the table was at s3a://old/t when it was published"),
        (old("p=a", generator=GENERATOR - 1), False, f"the manifests were written by generator {GENERATOR - 1}"),
        (old("p=a", partition_columns=("q",)), False, "the partition columns have changed"),
        (old("p=a", partition_types=("date",)), False, "the partition columns have changed"),
        (old("p=a", schemes={}), False, "the rewriting of schemes has changed"),
        (old("p=a", version=8), False, "version 8 was published, but the table is at 7"),
        (old("p=a", version=7), False, None),
    ],
)
def test_why_every_manifest_is_written(before, asked, reason):
    assert why_full(before, TABLE, asked=asked) == reason
