"""What a sync changes, case by case: from what the metastore should say and what it says alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog_sync.diff import (
    Drift,
    FoundPartition,
    FoundTable,
    KnownPartitions,
    SyncPlan,
    TableAction,
    check_ours,
    compare_partitions,
    described,
    has_columns_of,
    is_partitioned_alike,
    plan_sync,
    why_full,
)
from catalog_sync.errors import NotOursError
from catalog_sync.twin import GENERATOR, GENERATOR_KEY, ID_KEY, LOCATION_KEY, SCHEMA_KEY, VERSION_KEY, HiveColumn, Twin

ROOT = "s3a://lake/orders"
MANIFESTS = f"{ROOT}/_symlink_format_manifest"


def columns(**types):
    return tuple(HiveColumn(name=name, type=kind) for name, kind in types.items())


TWIN = Twin(
    location=MANIFESTS,
    columns=columns(x="bigint", note="string"),
    partition_columns=columns(p="string"),
    comment=None,
    table_location=ROOT,
    table_id="id-1",
    version=7,
)
PLAIN = replace(TWIN, partition_columns=())


def found(of=TWIN, version="7", **changes):
    """The entry as a sync of a twin leaves it; parameters by the name of their constant, ``None`` for one to lack."""
    parameters = {
        LOCATION_KEY: of.table_location,
        ID_KEY: of.table_id,
        SCHEMA_KEY: of.schema_hash,
        GENERATOR_KEY: GENERATOR,
        VERSION_KEY: version,
    }
    for key in list(changes):
        if key in (LOCATION_KEY, ID_KEY, SCHEMA_KEY, GENERATOR_KEY):
            parameters[key] = changes.pop(key)
    entry = FoundTable(
        location=of.location,
        columns=of.columns,
        partition_columns=of.partition_columns,
        parameters={key: value for key, value in parameters.items() if value is not None},
    )
    return replace(entry, **changes)


def there(*directories, ours=True, at=None):
    return {
        name: FoundPartition(directory=name, location=at or f"{MANIFESTS}/{name}", ours=ours) for name in directories
    }


CREATE = SyncPlan(table=TableAction.CREATE, full=True, reason="it is new", stamp=True)
RECREATE = SyncPlan(table=TableAction.RECREATE, full=True, reason="the partition columns have changed", stamp=True)
ASKED = SyncPlan(full=True, reason="it was asked for", stamp=True)
NEWER = SyncPlan(stamp=True)
ALTER = SyncPlan(table=TableAction.ALTER, stamp=True)
UNTOLD = SyncPlan(full=True, reason="the log does not tell what changed", stamp=True)


def by(**types):
    """The entry of the table as it was when it was partitioned by other columns."""
    return found(replace(TWIN, partition_columns=columns(**types)))


CASES = {
    # --- no entry
    "nothing there: every partition, in order": (
        TWIN, None, {"live": {"p=b", "p=a"}}, replace(CREATE, add=("p=a", "p=b"))),
    "nothing there, no rows": (TWIN, None, {"live": ()}, CREATE),
    "nothing there, without partition columns": (PLAIN, None, {"live": {"p=a"}}, CREATE),
    # --- partitioned in another way: what changed since does not count, what is live does
    "another partition column": (
        TWIN, by(q="string"), {"live": {"p=a", "p=b"}, "touched": {"p=a"}}, replace(RECREATE, add=("p=a", "p=b"))),
    "one partition column more": (
        TWIN, by(), {"live": {"p=a"}, "touched": ()}, replace(RECREATE, add=("p=a",))),
    "one partition column less": (
        TWIN, by(p="string", q="string"), {"live": {"p=a"}, "touched": ()}, replace(RECREATE, add=("p=a",))),
    "partition columns in another order": (
        replace(TWIN, partition_columns=columns(p="string", q="string")), by(q="string", p="string"),
        {"live": {"p=a/q=b"}, "touched": {"p=a/q=b"}}, replace(RECREATE, add=("p=a/q=b",))),
    "a partition column of another type": (
        TWIN, by(p="int"), {"live": {"p=1"}, "touched": ()}, replace(RECREATE, add=("p=1",))),
    "no partition columns any more": (PLAIN, by(p="string"), {"live": (), "touched": ()}, RECREATE),
    "partitioned anew and no rows": (TWIN, by(q="string"), {"live": (), "touched": {"p=a"}}, RECREATE),
    "partitioned anew: partitions of before are none": (
        TWIN, by(q="string"), {"live": {"p=a"}, "existing": there("q=a", "p=a")}, replace(RECREATE, add=("p=a",))),
    # --- up to date
    "the same version": (TWIN, found(), {"live": {"p=a"}, "touched": ()}, SyncPlan()),
    "the same version, without partition columns": (PLAIN, found(PLAIN), {"live": ()}, SyncPlan()),
    # --- the log tells what changed
    "a new partition": (
        TWIN, found(version="6"), {"live": {"p=a", "p=b"}, "touched": {"p=b"}}, replace(NEWER, add=("p=b",))),
    "a partition with more files": (
        TWIN, found(version="6"), {"live": {"p=a"}, "touched": {"p=a"}, "existing": there("p=a")}, NEWER),
    "a partition without files any more": (
        TWIN, found(version="6"), {"live": {"p=a"}, "touched": {"p=b"}, "existing": there("p=b")},
        replace(NEWER, drop=("p=b",))),
    "a partition that came and went": (TWIN, found(version="6"), {"live": {"p=a"}, "touched": {"p=b"}}, NEWER),
    "everything deleted": (
        TWIN, found(version="6"), {"live": (), "touched": {"p=a", "p=b"}, "existing": there("p=b", "p=a")},
        replace(NEWER, drop=("p=a", "p=b"))),
    "a changed partition that lies elsewhere": (
        TWIN, found(version="6"), {"live": {"p=a"}, "touched": {"p=a"}, "existing": there("p=a", at=f"{ROOT}/p=a")},
        replace(NEWER, move=("p=a",))),
    "a partition whose column is spelt in another case": (
        replace(TWIN, partition_columns=columns(p="string")), found(version="6"),
        {"live": {"P=a"}, "touched": {"P=a"}, "existing": there("P=a", at=f"{MANIFESTS}/p=a")},
        replace(NEWER, move=("P=a",))),
    "what no commit touched is left alone": (
        TWIN, found(version="6"),
        {"live": {"p=a", "p=new"}, "touched": {"p=a"}, "existing": there("p=a") | there("p=gone", "p=b", at="else")},
        NEWER),
    "a partition that somebody added, of the same name": (
        TWIN, found(version="6"), {"live": {"p=a"}, "touched": {"p=a"}, "existing": there("p=a", ours=False)}, NEWER),
    "a partition that somebody added, without files": (
        TWIN, found(version="6"), {"live": (), "touched": {"p=a"}, "existing": there("p=a", ours=False)},
        replace(NEWER, drift=(Drift(partition="p=a", what="added by somebody else, kept"),))),
    "null, empty and odd values": (
        TWIN, found(version="6"),
        {"live": {"p=__HIVE_DEFAULT_PARTITION__", "p=a%2Fb", "p=50%25"},
         "touched": {"p=__HIVE_DEFAULT_PARTITION__", "p=50%25", "p=x%3Dy"}, "existing": there("p=x%3Dy")},
        replace(NEWER, add=("p=50%25", "p=__HIVE_DEFAULT_PARTITION__"), drop=("p=x%3Dy",))),
    "a newer version, without partition columns": (PLAIN, found(PLAIN, version="6"), {"live": ()}, NEWER),
    "a newer version that touched no file": (
        TWIN, found(version="6"), {"live": {"p=a"}, "touched": (), "existing": there("p=a")}, NEWER),
    # --- the log does not tell
    "changes that are not known": (
        TWIN, found(version="6"), {"live": {"p=a", "p=b"}, "existing": there("p=b", "p=c")},
        replace(UNTOLD, add=("p=a",), drop=("p=c",))),
    "changes that are not known, at the same version": (
        TWIN, found(), {"live": {"p=a"}, "existing": there("p=a")}, UNTOLD),
    # --- other columns, another place
    "another column": (
        TWIN, found(columns=columns(x="bigint")), {"live": {"p=a"}, "touched": ()}, ALTER),
    "a column of another type": (
        TWIN, found(columns=columns(x="int", note="string")), {"live": {"p=a"}, "touched": ()}, ALTER),
    "columns in another order": (
        TWIN, found(columns=columns(note="string", x="bigint")), {"live": {"p=a"}, "touched": ()}, ALTER),
    "another comment": (TWIN, found(**{SCHEMA_KEY: "other"}), {"live": {"p=a"}, "touched": ()}, ALTER),
    "other columns and changed partitions": (
        TWIN, found(version="6", columns=()), {"live": {"p=a"}, "touched": {"p=a", "p=b"}, "existing": there("p=b")},
        replace(ALTER, add=("p=a",), drop=("p=b",))),
    "other columns, without partition columns": (PLAIN, found(PLAIN, columns=()), {"live": ()}, ALTER),
    "another place": (
        TWIN, found(location="s3a://old"), {"live": {"p=a"}, "existing": there("p=a", at="s3a://old/p=a")},
        replace(ALTER, full=True, reason="the manifests lie elsewhere", move=("p=a",))),
    "another place, without partition columns": (
        PLAIN, found(PLAIN, location="s3a://old"), {"live": ()},
        replace(ALTER, full=True, reason="the manifests lie elsewhere")),
    # --- every partition is compared
    "asked for in full": (
        TWIN, found(), {"full": True, "live": {"p=a", "p=b", "p=m"}, "touched": {"p=z"},
         "existing": there("p=b", "p=c") | there("p=m", at="else")},
        replace(ASKED, add=("p=a",), move=("p=m",), drop=("p=c",))),
    "asked for in full, and all is right": (
        TWIN, found(), {"full": True, "live": {"p=a"}, "existing": there("p=a")}, ASKED),
    "asked for in full, without partition columns": (PLAIN, found(PLAIN), {"full": True, "live": ()}, ASKED),
    "in full: what somebody added is kept": (
        TWIN, found(), {"full": True, "live": {"p=a"}, "existing": there("p=a") | there("p=hand", ours=False)},
        replace(ASKED, drift=(Drift(partition="p=hand", what="added by somebody else, kept"),))),
    "in full and pruned: what somebody added is dropped": (
        TWIN, found(),
        {"full": True, "prune": True, "live": {"p=a"}, "existing": there("p=a", "p=z") | there("p=hand", ours=False)},
        replace(ASKED, drop=("p=hand", "p=z"),
                drift=(Drift(partition="p=hand", what="added by somebody else, dropped"),))),
    "the table was replaced": (
        TWIN, found(**{ID_KEY: "id-0"}), {"live": {"p=a"}, "touched": (), "existing": there("p=old")},
        SyncPlan(full=True, reason="the table was replaced", stamp=True, add=("p=a",), drop=("p=old",))),
    "an older table at a later version": (
        TWIN, found(version="8"), {"live": {"p=a"}, "touched": (), "existing": there()},
        SyncPlan(full=True, reason="it has version 8, but the table is at 7", stamp=True, add=("p=a",))),
    "broken off before it was stamped": (
        TWIN, found(version=None), {"live": {"p=a"}, "touched": (), "existing": there()},
        SyncPlan(full=True, reason="it carries no version", stamp=True, add=("p=a",))),
    "written by an older generator": (
        TWIN, found(**{GENERATOR_KEY: "1"}), {"live": {"p=a"}, "touched": (), "existing": there()},
        SyncPlan(full=True, reason="it was written by generator 1", stamp=True, add=("p=a",))),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_what_is_planned(case):
    twin, entry, inputs, expected = CASES[case]
    how = {name: inputs[name] for name in ("full", "prune") if name in inputs}
    partitions = KnownPartitions(**{name: value for name, value in inputs.items() if name not in how})
    assert plan_sync(twin, entry, partitions, **how) == expected


@pytest.mark.parametrize(
    ("entry", "full", "reason"),
    [
        (found(), False, None),
        (found(), True, "it was asked for"),
        (found(**{ID_KEY: "other"}), True, "it was asked for"),
        (found(**{ID_KEY: None}), False, "the table was replaced"),
        (found(**{GENERATOR_KEY: None}), False, "it was written by generator None"),
        (found(version=""), False, "it carries no version"),
        (found(version="-1"), False, "it carries no version"),
        (found(version="seven"), False, "it carries no version"),
        (found(version="²"), False, "it carries no version"),
        (found(version="0"), False, None),
        (found(version="8"), False, "it has version 8, but the table is at 7"),
        (found(location=""), False, "the manifests lie elsewhere"),
    ],
)
def test_why_every_partition_is_compared(entry, full, reason):
    assert why_full(TWIN, entry, full=full) == reason


def test_the_version_that_an_entry_carries():
    assert found(version="12").version == 12
    assert found(version=None).version is None


def test_an_entry_is_compared_by_names_and_types_and_comments_by_the_hash_alone():
    said = replace(TWIN, columns=(HiveColumn(name="x", type="bigint", comment="é"), TWIN.columns[1]))
    mangled = found(said, columns=(HiveColumn(name="x", type="bigint", comment="?"), TWIN.columns[1]))
    assert has_columns_of(said, mangled), "a metastore that cannot hold a comment is not told it again and again"
    assert not has_columns_of(said, found(TWIN))
    assert is_partitioned_alike(
        replace(TWIN, partition_columns=(HiveColumn(name="p", type="string", comment="new"),)), found()
    )


def test_an_entry_of_somebody_else_is_refused():
    theirs = found(location="s3a://theirs/t", **{LOCATION_KEY: None})
    with pytest.raises(
        NotOursError, match=r"a table lake\.t that catalog_sync did not make \(at s3a://theirs/t\)"
    ) as caught:
        check_ours(TWIN, theirs, "lake.t", adopt=True)
    assert "another name" in caught.value.hint


def test_the_twin_of_a_table_elsewhere_is_refused():
    with pytest.raises(
        NotOursError, match=r"lake\.t is the twin of the table at s3a://other, and not of s3a://lake/orders"
    ) as caught:
        check_ours(TWIN, found(**{LOCATION_KEY: "s3a://other"}), "lake.t", adopt=True)
    assert "drop the entry" in caught.value.hint


def test_the_twin_of_an_earlier_table_is_refused_unless_it_is_adopted():
    earlier = found(**{ID_KEY: "id-0"})
    with pytest.raises(NotOursError, match=r"earlier table at s3a://lake/orders \(id id-0, now id-1\)") as caught:
        check_ours(TWIN, earlier, "lake.t")
    assert "--adopt" in caught.value.hint
    check_ours(TWIN, earlier, "lake.t", adopt=True)
    check_ours(TWIN, found(), "lake.t")


def test_a_comparison_keeps_what_was_decided_of_the_table():
    plan = compare_partitions(ALTER, TWIN, there("p=b"), {"p=a"}, prune=False)
    assert plan == replace(ALTER, add=("p=a",), drop=("p=b",))


@pytest.mark.parametrize(
    ("plan", "empty", "lines"),
    [
        (SyncPlan(), True, ["nothing to change"]),
        (SyncPlan(full=True, reason="it was asked for"), True, ["nothing to change"]),
        (SyncPlan(stamp=True), False, ["write version and schema hash"]),
        (SyncPlan(add=("p=a",)), False, ["publish partition p=a"]),
        (SyncPlan(add=("p=a",), full=True), False, ["add partition p=a"]),
        (SyncPlan(move=("p=a",)), False, ["move partition p=a"]),
        (SyncPlan(drop=("p=a", "p=b")), False, ["drop partition p=a", "drop partition p=b"]),
        (SyncPlan(drift=(Drift(partition="p=a", what="kept"),)), True, ["found p=a: kept"]),
        (SyncPlan(table=TableAction.ALTER), False, ["alter the table"]),
        (
            SyncPlan(table=TableAction.CREATE, add=("p=a",)),
            False,
            ["create the table", "add partition p=a"],
        ),
        (
            replace(RECREATE, add=("p=a",)),
            False,
            [
                "recreate the table (the partition columns have changed)",
                "add partition p=a",
                "write version and schema hash",
            ],
        ),
    ],
)
def test_a_plan_in_words(plan, empty, lines):
    assert plan.is_empty is empty
    assert list(described(plan)) == lines
