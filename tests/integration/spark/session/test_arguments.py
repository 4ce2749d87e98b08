"""Wrong arguments of the Python API, classic and remote: each wrong value, for each argument of each method."""

from __future__ import annotations

import inspect
from datetime import datetime

import pytest
from pyspark.sql import functions as F

from pydelta.api.python.builder import DeltaTableBuilder, IdentityGenerator, RemoteTableBuilder
from pydelta.api.python.merge import DeltaMergeBuilder, RemoteMergeBuilder
from pydelta.api.python.optimize import DeltaOptimizeBuilder, RemoteOptimizeBuilder
from pydelta.api.python.remote_calls import Chain
from pydelta.api.python.table import RemoteDeltaTable
from pydelta.commands.create import CreateMode
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

TEXT = {"str"}
TAKEN = {
    "sparkSession": set(),
    "spark": set(),
    "path": TEXT,
    "tableOrViewName": TEXT,
    "identifier": TEXT,
    "aliasName": TEXT,
    "mode": TEXT,
    "target": TEXT,
    "featureName": TEXT,
    "partitionFilter": TEXT,
    "location": TEXT,
    "colName": TEXT,
    "dataType": TEXT,
    "key": TEXT,
    "value": TEXT,
    "timestamp": {"str", "datetime"},
    "comment": TEXT,
    "hadoopConf": {"None", "dict"},
    "partitionSchema": {"None", "str"},
    "condition": {"None", "str", "Column"},
    "set": {"dict"},
    "values": {"dict"},
    "source": set(),
    "retentionHours": {"None", "int", "float", "bool"},
    "dryRun": {"bool"},
    "inventory": {"None", "str"},
    "where": {"None", "str"},
    "limit": {"None", "int"},
    "version": {"int"},
    "isShallow": {"bool"},
    "replace": {"bool"},
    "repair": {"bool"},
    "properties": {"None", "dict"},
    "readerVersion": {"int"},
    "writerVersion": {"int"},
    "truncateHistory": {"None", "bool"},
    "full": {"bool"},
    "nullable": {"bool"},
    "generatedAlwaysAs": {"None", "str"},
    "generatedByDefaultAs": {"None"},
    "cols": {"str", "list"},
    "keys": set(),
    "history": {"None"},
    "objectVersions": set(),
}
"""What an argument of a name takes, of the values below; another argument is not known here, and fails the test."""
OWN = {
    ("create", "sparkSession"): {"None"},
    ("createIfNotExists", "sparkSession"): {"None"},
    ("replace", "sparkSession"): {"None"},
    ("createOrReplace", "sparkSession"): {"None"},
    ("merge", "condition"): {"str", "Column"},
    ("addColumn", "comment"): {"None", "str"},
    ("addColumns", "cols"): set(),
}
VALUE_ERRORS = {"version", "timestamp", "target", "isShallow", "replace", "properties", "featureName"} | {
    "readerVersion",
    "writerVersion",
    "truncateHistory",
}


def values_of(spark):
    return {
        "None": None,
        "int": 5,
        "float": 1.5,
        "bool": True,
        "str": "a",
        "bytes": b"a",
        "list": ["a"],
        "dict": {"a": "1"},
        "datetime": datetime(2024, 1, 1),
        "Column": F.col("a"),
        "object": object(),
    }


def right(name, spark, source):
    """A value that an argument takes, so that the wrong one beside it is met."""
    if name in ("sparkSession", "spark"):
        return spark
    if name == "source":
        return source
    if name == "keys":
        return {"a": ["1"]}
    return {"str": "a", "dict": {"a": "1"}, "int": 1}[min(TAKEN[name] & {"str", "dict", "int"})]


def methods_of(owner):
    named = inspect.getmembers(owner, lambda it: inspect.isfunction(it) or inspect.ismethod(it))
    return sorted(name for name, _ in named if not name.startswith("_"))


def wrong_calls(owner, name, spark, source):
    method = getattr(owner, name)
    parameters = inspect.signature(method).parameters
    for wrong, parameter in parameters.items():
        for kind, value in values_of(spark).items():
            if kind in OWN.get((name, wrong), TAKEN[wrong]):
                continue
            needed = (it for it, other in parameters.items() if other.default is other.empty and it != wrong)
            given = {it: right(it, spark, source) for it in needed if it != "cols"}
            if parameter.kind is parameter.VAR_POSITIONAL:
                yield wrong, kind, lambda value=value: method(value)
            else:
                yield wrong, kind, lambda given={**given, wrong: value}: method(**given)


def refused(call, method, argument, kind):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    error, shown = caught.value, f"{method}({argument}={kind}): {caught.value}"
    assert isinstance(error, DeltaError), shown
    words = ("must be", "must contain only", "needs to be", "cannot be None")
    assert any(word in str(error) for word in words), shown
    if argument in VALUE_ERRORS and method not in ("create", "createOrReplace", "createIfNotExists"):
        assert isinstance(error, ValueError), shown
    assert error.hint, shown


class Unreachable:
    """A session of a client, of which nothing may be asked."""

    def __getattr__(self, name):
        raise AssertionError(f"a wrong argument reached the server: {name}")


Unreachable.__name__ = "SparkSession"


@pytest.fixture
def opened(spark, tmp_path):
    spark.range(2).write.format("delta").save(str(tmp_path / "t"))
    table = DeltaTable.forPath(spark, str(tmp_path / "t"))
    source = spark.range(1)
    return table, source, DeltaLog.for_table(str(tmp_path / "t"))


CLASSIC = (DeltaTable, DeltaMergeBuilder, DeltaOptimizeBuilder, DeltaTableBuilder)


@pytest.mark.parametrize("kind", CLASSIC, ids=lambda kind: kind.__name__)
def test_a_wrong_argument_of_any_method_is_named_and_nothing_is_written(spark, opened, kind):
    table, source, log = opened
    owners = {
        DeltaTable: lambda: table,
        DeltaMergeBuilder: lambda: table.merge(source, "true"),
        DeltaOptimizeBuilder: table.optimize,
        DeltaTableBuilder: lambda: DeltaTableBuilder(spark, CreateMode.CREATE, DeltaTable),
    }
    calls = 0
    for name in methods_of(kind):
        for argument, value, call in wrong_calls(owners[kind](), name, spark, source):
            refused(call, name, argument, value)
            calls += 1
    assert calls > (5 if kind is DeltaOptimizeBuilder else 50)
    assert log.update().version == 0


@pytest.mark.parametrize(
    ("remote", "classic"),
    [*zip((RemoteDeltaTable, RemoteMergeBuilder, RemoteOptimizeBuilder, RemoteTableBuilder), CLASSIC, strict=True)],
    ids=lambda kind: kind.__name__,
)
def test_a_wrong_argument_of_any_remote_method_is_named_before_anything_is_sent(spark, remote, classic):
    source, away = spark.range(1), Unreachable()
    owner = RemoteTableBuilder(away, "create", DeltaTable) if remote is RemoteTableBuilder else remote(Chain(away))
    missing = set(methods_of(classic)) - set(methods_of(remote))
    assert missing <= {"run", "toDFWithRowTracking", "create", "createIfNotExists", "replace", "createOrReplace"}
    for name in methods_of(remote):
        for argument, value, call in wrong_calls(owner, name, away, source):
            if argument != "spark":
                refused(call, name, argument, value)


def test_what_is_missing_or_inside_a_dict_is_named(spark, opened):
    table, source, log = opened
    merge, build = table.alias("t").merge(source.alias("s"), "t.id = s.id"), DeltaTable.create(spark)
    for error, words, call in (
        (ValueError, "'set' cannot be None", lambda: table.update({"id": "1"})),
        (ValueError, "'set' cannot be None", lambda: table.update("id = 1")),
        (TypeError, "Keys of dict in 'set' must contain only strings", lambda: table.update(set={1: "1"})),
        (TypeError, "Values of dict in 'set' must contain only", lambda: table.update(set={"id": 1})),
        (ValueError, "'source' in merge cannot be None", lambda: table.merge(None, "true")),
        (ValueError, "'condition' in merge cannot be None", lambda: table.merge(source, None)),
        (ValueError, "'set' in whenMatchedUpdate cannot be None", lambda: merge.whenMatchedUpdate("true")),
        (ValueError, "'values' in whenNotMatchedInsert", lambda: merge.whenNotMatchedInsert()),
        (TypeError, "must contain only", lambda: merge.whenNotMatchedInsert(values={"id": None})),
        (TypeError, "must be a dict", lambda: merge.whenNotMatchedBySourceUpdate(set=[("id", "1")])),
        (
            ValueError,
            "All property keys including 1 needs to be a string",
            lambda: table.clone("a", properties={1: "b"}),
        ),
        (ValueError, "must be a number of hours", lambda: table.vacuum("a")),
        (ValueError, "must be a number of hours", lambda: table.vacuum(float("nan"))),
        (TypeError, "Value of fs.x in hadoopConf must be str", lambda: DeltaTable.forPath(spark, "/t", {"fs.x": 1})),
        (TypeError, "Column in existing schema must be StructField", lambda: build.addColumns([1])),
        (ValueError, "cannot both be set", lambda: build.addColumn("a", "long", True, "1", IdentityGenerator())),
        (ValueError, "step to be non-zero", lambda: build.addColumn("a", "long", True, IdentityGenerator(step=0))),
        (
            TypeError,
            "start of an IdentityGenerator must be",
            lambda: build.addColumn("a", "long", True, IdentityGenerator("1")),
        ),
        (TypeError, "Z-order column must be str", lambda: table.optimize().executeZOrderBy(["id", 5])),
        (TypeError, "Partitioning column must be str", lambda: build.partitionedBy(["id", None])),
    ):
        with pytest.raises(error, match=words) as caught:
            call()
        assert isinstance(caught.value, DeltaError)
    assert log.update().version == 0


def test_hours_of_a_vacuum_may_be_text(spark, opened):
    table, _, _ = opened
    assert table.vacuum("168").count() == 0
