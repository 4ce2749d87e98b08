"""Columns to order rows by: which names are taken, which are refused, how a table keeps them."""

from __future__ import annotations

import itertools
import json

import pytest

from pydelta.commands.alter.clustering import (
    check_order_columns,
    check_still_clustered,
    clustering_domain,
    clustering_paths,
    path_text,
)
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.errors import BindError, InvalidArgumentError, SchemaError
from pydelta.log import DeltaLog
from pydelta.protocol.features import implied_features
from pydelta.protocol.schema import parse_schema
from pydelta.settings import Settings, TableProperties
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import create_table, restore

_NAMES = itertools.count()


def field(name, data_type="long", **metadata):
    return {"name": name, "type": data_type, "nullable": True, "metadata": metadata}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


SCHEMA = parse_schema(
    json.dumps(
        struct(
            field("a"),
            field("b", "string"),
            field("s", struct(field("x"), field("y-z"), field("deep", struct(field("w"))))),
            field("odd.name"),
            field("s.x"),
            field("flag", "boolean"),
            field("list", {"type": "array", "elementType": "long", "containsNull": True}),
            field("p"),
            field("late", "date"),
        )
    )
)


def check(*names, **properties):
    return check_order_columns(
        SCHEMA, names, partition_columns=["p"], properties=TableProperties(**properties), purpose="ZORDER BY"
    )


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", ("a",)),
        ("A", ("a",)),
        ("`a`", ("a",)),
        ("s.x", ("s", "x")),
        ("S.X", ("s", "x")),
        ("s.`y-z`", ("s", "y-z")),
        ("s.deep.w", ("s", "deep", "w")),
        ("odd.name", ("odd.name",)),
        ("`odd.name`", ("odd.name",)),
        ("`s.x`", ("s.x",)),
    ],
)
def test_names_are_found_ignoring_case_and_in_structs(name, path):
    assert check(name) == (path,)
    assert check(path_text(path)) == (path,)


@pytest.mark.parametrize(
    ("names", "error", "said"),
    [
        (["c"], BindError, "columns are: a, b"),
        (["s.z"], BindError, "s.z"),
        (["a.x"], BindError, "a.x"),
        (["s..x"], BindError, "s..x"),
        (["a."], BindError, "a."),
        ([""], BindError, "''"),
        (["`a"], BindError, "`a"),
        (["p"], InvalidArgumentError, "partition column"),
        (["a", "b", "A"], InvalidArgumentError, "twice"),
        (["s"], InvalidArgumentError, "no minimum"),
        (["flag"], InvalidArgumentError, "no minimum"),
        (["list"], InvalidArgumentError, "no minimum"),
    ],
)
def test_names_that_order_nothing_are_refused(names, error, said):
    with pytest.raises(error, match=said):
        check(*names)


def test_columns_beyond_the_statistics_are_refused():
    assert check("late")
    with pytest.raises(InvalidArgumentError, match="dataSkippingStatsColumns"):
        check("late", data_skipping_num_indexed_cols=3)
    assert check("late", data_skipping_stats_columns=("late",))
    with pytest.raises(InvalidArgumentError, match="no statistics"):
        check("a", data_skipping_stats_columns=("late",))


def test_the_domain_holds_physical_paths():
    mapped = parse_schema(
        json.dumps(struct(field("s", struct(field("x", **{"delta.columnMapping.physicalName": "col-2"})),
                                **{"delta.columnMapping.physicalName": "col-1"})))
    )  # fmt: skip
    domain = clustering_domain(mapped, [("s", "x")])
    assert domain.domain == "delta.clustering"
    assert json.loads(domain.configuration)["clusteringColumns"] == [["col-1", "col-2"]]


def make(store, mode=CreateMode.CREATE, **others):
    definition = TableDefinition(**{"schema": SCHEMA, **others})
    return create_table(DeltaLog(store), definition, mode=mode, settings=Settings())


@pytest.fixture
def store():
    return MemoryStore(f"memory://clustered{next(_NAMES)}/t")


def test_a_clustered_table_lists_the_features_and_says_its_columns(store):
    make(store, cluster_by=["S.x", "b"])
    snapshot = DeltaLog(store).update()
    assert clustering_paths(snapshot) == (("s", "x"), ("b",))
    assert snapshot.clustering_columns == ("s.x", "b")
    assert {"clustering", "domainMetadata"} <= implied_features(snapshot.protocol)
    assert snapshot.protocol.min_writer_version == 7
    assert snapshot.protocol.min_reader_version == 1
    assert "delta.feature.clustering" not in snapshot.metadata.configuration
    info = DeltaLog(store).history(1)[0].commit_info
    assert json.loads(info.fields["operationParameters"]["clusterBy"]) == ["S.x", "b"]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"cluster_by": ["a"], "partition_columns": ["p"]}, "partitioned by p"),
        ({"cluster_by": ["a", "b", "s.x", "late", "odd.name"]}, "5 columns; at most 4"),
        ({"cluster_by": ["late"], "properties": {"delta.dataSkippingNumIndexedCols": "2"}}, "no statistics"),
    ],
)
def test_what_cannot_be_clustered_is_refused_before_anything_is_made(store, others, said):
    with pytest.raises(InvalidArgumentError, match=said):
        make(store, **others)
    assert not DeltaLog(store).table_exists()


def test_a_replaced_table_is_clustered_as_it_says_now(store):
    make(store, cluster_by=["a"])
    make(store, CreateMode.REPLACE, cluster_by=["b"])
    assert clustering_paths(DeltaLog(store).update()) == (("b",),)
    assert make(store, CreateMode.REPLACE).num_removed_files == 0
    assert clustering_paths(DeltaLog(store).update()) == ()


def test_a_restore_brings_the_clustering_of_its_version_back(store):
    make(store, cluster_by=["a"])
    make(store, CreateMode.REPLACE, cluster_by=["b"])
    make(store, CreateMode.REPLACE)
    for version, expected in ((0, (("a",),)), (1, (("b",),)), (2, ()), (3, (("a",),))):
        restore(DeltaLog(store), version=version)
        assert clustering_paths(DeltaLog(store).update()) == expected


@pytest.mark.parametrize(
    ("schema", "partitions", "said"),
    [([field("b", "string")], [], "has no column a"), ([field("a"), field("p")], ["p"], "is partitioned")],
)
def test_a_definition_without_the_clustering_columns_is_refused(store, schema, partitions, said):
    make(store, cluster_by=["a"])
    snapshot = DeltaLog(store).update()
    changed = snapshot.metadata.replace(schema_string=json.dumps(struct(*schema)), partition_columns=tuple(partitions))
    with pytest.raises(SchemaError, match=said):
        check_still_clustered(snapshot, changed)
    check_still_clustered(snapshot, snapshot.metadata)
    check_still_clustered(snapshot, None)
