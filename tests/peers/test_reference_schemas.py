"""Schemas in both directions with the reference engine: mapping, identities, rules, wider types, and the history."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions as F

from pydelta.commands.alter.requests import (
    AddColumns,
    AddConstraint,
    After,
    ChangeColumn,
    ClusterBy,
    DropColumns,
    DropConstraint,
    First,
    NewColumn,
    RenameColumn,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from pydelta.engines.spark.engine import SparkEngine
from pydelta.log import DeltaLog
from pydelta.protocol.identity import identities
from pydelta.protocol.types import PrimitiveType
from pydelta.tables import DeltaTable, IdentityGenerator
from pydelta.testing.commands import alter_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

INT, LONG, STRING = (PrimitiveType(name) for name in ("integer", "long", "string"))

# Each as SQL for the reference engine and as the change that it is here.
CHANGES = (
    ("ALTER TABLE t ADD COLUMNS (a INT COMMENT 'one' AFTER id, at.z STRING FIRST, b STRING)", AddColumns(columns=(
        NewColumn(path=("a",), data_type=INT, comment="one", position=After("id")),
        NewColumn(path=("at", "z"), data_type=STRING, position=First()),
        NewColumn(path=("b",), data_type=STRING),
    ))),
    ("ALTER TABLE t RENAME COLUMN v TO `a name`", RenameColumn(path=("v",), name="a name")),
    ("ALTER TABLE t RENAME COLUMN at.x TO east", RenameColumn(path=("at", "x"), name="east")),
    ("ALTER TABLE t DROP COLUMNS (b, at.y)", DropColumns(paths=(("b",), ("at", "y")))),
    ("ALTER TABLE t ALTER COLUMN id TYPE BIGINT", ChangeColumn(path=("id",), data_type=LONG)),
    ("ALTER TABLE t ALTER COLUMN a COMMENT 'two'", ChangeColumn(path=("a",), comment="two")),
    ("ALTER TABLE t ALTER COLUMN day FIRST", ChangeColumn(path=("day",), position=First())),
    ("ALTER TABLE t ALTER COLUMN a SET DEFAULT 7", ChangeColumn(path=("a",), default="7")),
    ("ALTER TABLE t SET TBLPROPERTIES ('team' = 'me')", SetProperties(properties={"team": "me"})),
    ("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('team')", UnsetProperties(names=("team",), if_exists=True)),
    ("ALTER TABLE t ADD CONSTRAINT Few CHECK (id < 6000000000)", AddConstraint(
        name="Few", expression="id < 6000000000"
    )),
    ("ALTER TABLE t DROP CONSTRAINT few", DropConstraint(name="few")),
    ("ALTER TABLE t CLUSTER BY (id)", ClusterBy(columns=("id",))),
    ("COMMENT ON TABLE t IS 'text'", SetComment(text="text")),
)  # fmt: skip


def rows(spark, path):
    frame = spark.read.format("delta").load(str(path))
    texts = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return sorted((json.loads(row[0]) for row in texts), key=lambda row: json.dumps(row, sort_keys=True))


def alter(spark, path, change):
    return alter_table(DeltaLog.for_table(str(path)), change, engine=SparkEngine(spark))


def append(frame, path):
    frame.write.format("delta").mode("append").save(str(path))


def write_ours(spark, folder):
    nested = ("id", "'v' || id as v", "named_struct('x', id, 'y', array(named_struct('n', id))) as at", "id % 3 as p")
    for name in ("name", "id", None):
        path = str(folder / (f"mapped_{name}" if name else "upgraded"))
        writer = spark.range(60).selectExpr(*nested).write.format("delta").partitionBy("p")
        (writer.option("delta.columnMapping.mode", name) if name else writer).save(path)
        if name is None:
            alter(spark, path, SetProperties(properties={"delta.columnMapping.mode": "name"}))
        alter(spark, path, RenameColumn(path=("v",), name="new name"))
        alter(spark, path, RenameColumn(path=("p",), name="part"))
        alter(spark, path, RenameColumn(path=("at", "y", "element", "n"), name="m"))
        alter(spark, path, DropColumns(paths=(("at", "x"),)))
        alter(spark, path, AddColumns(columns=(NewColumn(path=("at", "x"), data_type=STRING),)))
        append(spark.range(60, 62).selectExpr("id", "'later' as `new name`", "1L as part"), path)
    path = str(folder / "wide")
    columns = ("cast(id as int) as n", "cast(id as float) as f", "map('k', cast(id as short)) as m")
    spark.range(60).selectExpr(*columns).write.format("delta").option("delta.enableTypeWidening", "true").save(path)
    alter(spark, path, ChangeColumn(path=("m", "value"), data_type=INT))
    wider = spark.range(1).selectExpr("5000000000L as n", "0.1d as f", "map('k', 100000) as m")
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    builder = DeltaTable.create(spark).location(str(folder / "numbered"))
    builder = builder.addColumn("key", "bigint", generatedAlwaysAs=IdentityGenerator(start=10, step=2))
    builder.addColumn("v", "string").execute()
    append(spark.range(60).repartition(3).selectExpr("'ours' || id as v"), folder / "numbered")
    path = str(folder / "ruled")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "long").addColumn("v", "string")
    builder = builder.addColumn("at", "timestamp").addColumn("day", "date", generatedAlwaysAs="CAST(at AS DATE)")
    builder.partitionedBy("day").execute()
    append(spark.range(60).selectExpr("id", "'v' || id as v", "timestamp '2024-03-05 00:00:00' as at"), path)
    alter(spark, path, AddConstraint(name="positive", expression="id >= 0"))
    alter(spark, path, ChangeColumn(path=("v",), nullable=False))
    alter(spark, path, ChangeColumn(path=("v",), default="'new'"))
    builder = DeltaTable.create(spark).location(str(folder / "kinds")).addColumn("c", "char(4)")
    builder = builder.addColumn("v", "varchar(3)").addColumn("t", "timestamp_ntz").addColumn("x", "variant")
    builder.execute()
    row = ("'ab' as c", "'abc' as v", "timestamp_ntz '2024-01-01 12:00:00' as t", "parse_json('[1]') as x")
    append(spark.range(60).selectExpr(*row), folder / "kinds")


@pytest.fixture(scope="module")
def exchange(spark, run_reference, tmp_path_factory):
    """Runs the reference engine once, over our tables and its own."""
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "ours").mkdir()
    (folder / "changes.json").write_text(json.dumps([statement for statement, _ in CHANGES]))
    write_ours(spark, folder / "ours")
    before = {path.name: rows(spark, path) for path in sorted((folder / "ours").iterdir())}
    (folder / "before.json").write_text(json.dumps(before))
    run_reference("reference_schemas.py", folder)
    return folder


@pytest.mark.timeout(1500)
def test_it_reads_our_schemas(exchange):
    read, before = (json.loads((exchange / name).read_text()) for name in ("read.json", "before.json"))
    assert len(before) == 7
    for name, expected in before.items():
        assert read[name] == expected, name
        assert len(expected) >= 60, name


@pytest.mark.timeout(1500)
def test_it_keeps_our_rules_and_we_go_on_behind_it(spark, exchange):
    said = json.loads((exchange / "said.json").read_text())
    assert all(said[name] for name in ("check", "not null", "always", "length")), said
    ruled = spark.read.format("delta").load(str(exchange / "ours" / "ruled")).filter("id = 70").first()
    assert (ruled["v"], str(ruled["day"])) == ("new", "2024-03-05")
    numbered = exchange / "ours" / "numbered"
    append(spark.range(5).selectExpr("'again' || id as v"), numbered)
    keys = [row["key"] for row in spark.read.format("delta").load(str(numbered)).collect()]
    assert len(keys) == len(set(keys)) == 75
    for name in ("mapped_name", "mapped_id", "upgraded"):
        path = exchange / "ours" / name
        append(spark.range(101, 102).selectExpr("id", "5 as more", "named_struct('x', 'text') as at"), path)
        frame = spark.read.format("delta").load(str(path))
        assert frame.filter("`new name` = 'theirs'").count() == frame.filter("more = 5 and at.x = 'text'").count() == 1


@pytest.mark.timeout(1500)
def test_we_read_its_schemas_and_go_on(spark, exchange):
    written = json.loads((exchange / "written.json").read_text())
    for name, expected in written.items():
        assert rows(spark, exchange / "theirs" / name) == expected, name
    numbered = exchange / "theirs" / "numbered"
    append(spark.range(10).repartition(2).selectExpr("'ours' || id as v"), numbered)
    keys = [row["key"] for row in spark.read.format("delta").load(str(numbered)).collect()]
    assert len(keys) == len(set(keys)) == 20
    assert all(key % 3 == 2 for key in keys)
    assert identities(DeltaLog.for_table(str(numbered)).update().schema)[0].mark == max(keys)


@pytest.mark.timeout(1500)
def test_the_same_changes_leave_the_same_history_and_schema(spark, exchange, tmp_path):
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).property("delta.columnMapping.mode", "name")
    builder = builder.property("delta.enableTypeWidening", "true")
    builder = builder.property("delta.feature.allowColumnDefaults", "supported")
    builder = builder.addColumn("id", "int").addColumn("v", "string").addColumn("at", "struct<x:int,y:int>")
    builder.addColumn("day", "date").execute()
    for _, change in CHANGES:
        alter(spark, path, change)
    records = sorted(DeltaLog.for_table(path).history(), key=lambda record: record.version)[1:]
    ours = [[item.commit_info.get("operation"), item.commit_info.get("operationParameters")] for item in records]
    theirs = json.loads((exchange / "said.json").read_text())["history"]
    for (statement, _), mine, other in zip(CHANGES, ours, theirs, strict=True):
        assert _comparable(mine) == _comparable(other), statement
    schemas = [DeltaLog.for_table(place).update().schema for place in (path, str(exchange / "theirs" / "changed"))]
    assert schemas[0].tree() == schemas[1].tree()
    assert [field.metadata.get("delta.typeChanges") for field in schemas[0]] == [
        field.metadata.get("delta.typeChanges") for field in schemas[1]
    ]


def _comparable(record):
    """An operation without ids and physical names, which are its own in each table."""
    operation, parameters = record

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if not key.startswith("delta.columnMapping.")}
        return [plain(item) for item in value] if isinstance(value, list) else value

    def decoded(text):
        try:
            return json.loads(text)
        except ValueError:
            return text

    return operation, {key: plain(decoded(text)) for key, text in parameters.items()}
