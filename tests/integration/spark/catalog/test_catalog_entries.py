"""Tables by name in Spark's own catalog: what the entry says, that it follows the log, how it is moved and dropped."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from pydelta.api.sql.targets import log_for_name
from pydelta.engines.spark.catalog import entries as catalog_entries
from pydelta.engines.spark.catalog import lookup as catalog
from pydelta.engines.spark.catalog.entries import (
    create_entry,
    drop_table,
    entry_differs,
    follow,
    rename_table,
    set_location,
)
from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up
from pydelta.errors import (
    DeltaEnvironmentError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsafeOperationError,
    UnsupportedFeatureError,
)
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark
_numbers = itertools.count()


@pytest.fixture
def name(spark):
    made = f"entry_{next(_numbers)}"
    yield made
    for table in (made, f"{made}_b"):
        entry = look_up(spark, (table,))
        if isinstance(entry, DeltaEntry):
            drop_table(spark, (table,))
        else:
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def entry_of(spark, name: str) -> DeltaEntry:
    found = look_up(spark, (name,))
    assert isinstance(found, DeltaEntry)
    return found


def columns_of(entry: DeltaEntry) -> str:
    return str(entry.table.schema().simpleString())


def local(entry: DeltaEntry) -> Path:
    return Path(entry.location.removeprefix("file:"))


def test_a_managed_table_has_an_entry_with_real_columns_and_the_partition_columns_last(spark, name):
    builder = DeltaTable.create(spark).tableName(name).comment("what it is").property("delta.appendOnly", "true")
    builder.addColumn("Day", "date", comment="when").addColumn("id", "bigint", nullable=False).addColumn(
        "s", "struct<a:int,b:array<string>>"
    ).partitionedBy("Day").execute()
    entry = entry_of(spark, name)
    table = entry.table
    assert columns_of(entry) == "struct<id:bigint,s:struct<a:int,b:array<string>>,Day:date>"
    assert str(table.provider().get()) == "delta"
    assert (entry.managed, local(entry).name) == (True, name)
    assert str(table.comment().get()) == "what it is"
    assert str(table.properties().get("delta.appendOnly").get()) == "true"
    assert [field.name for field in spark.table(name).schema.fields] == ["Day", "id", "s"], "users see the log's order"
    assert DeltaTable.forName(spark, name).detail().first()["location"].endswith(name)


def test_the_four_builders_by_name(spark, name):
    def build(how):
        return how(spark).tableName(name)

    with pytest.raises(TableNotFoundError, match="to replace"):
        build(DeltaTable.replace).addColumn("id", "int").execute()
    build(DeltaTable.createIfNotExists).addColumn("id", "int").execute()
    build(DeltaTable.createIfNotExists).addColumn("other", "string").execute()
    assert spark.table(name).columns == ["id"]
    with pytest.raises(TableAlreadyExistsError, match="already exists") as caught:
        build(DeltaTable.create).addColumn("id", "int").execute()
    assert isinstance(caught.value, AnalysisException)
    build(DeltaTable.replace).addColumn("a", "string").addColumn("b", "int").execute()
    assert columns_of(entry_of(spark, name)) == "struct<a:string,b:int>", "the entry follows a replace"
    build(DeltaTable.createOrReplace).addColumn("c", "date").comment("new").execute()
    entry = entry_of(spark, name)
    assert (columns_of(entry), str(entry.table.comment().get()), entry.managed) == ("struct<c:date>", "new", True)
    with pytest.raises(UnsafeOperationError, match="the new definition says"):
        build(DeltaTable.createOrReplace).location("/elsewhere/t").addColumn("c", "date").execute()


def test_an_external_name_for_a_table_that_is_there(spark, name, tmp_path):
    target = str(tmp_path / "there")
    spark.range(4).withColumnRenamed("id", "Id").write.format("delta").save(target)
    create = DeltaTable.create(spark).tableName(name).location(target)
    with pytest.raises(SchemaMismatchError, match=r"other columns(.|\n)*Id"):
        create.addColumn("Id", "string").execute()
    with pytest.raises(InvalidArgumentError, match=r"does not have delta\.appendOnly=true"):
        DeltaTable.create(spark).tableName(name).location(target).property("delta.appendOnly", "true").execute()
    assert look_up(spark, (name,)) is None
    DeltaTable.create(spark).tableName(name).location(target).execute()
    assert spark.table(name).count() == 4
    assert log_for_name(spark, name).update().version == 0, "no commit is made for a name"
    DeltaTable.create(spark).tableName(f"{name}_b").location(target).addColumn("id", "bigint").execute()
    drop_table(spark, (name,))
    assert spark.table(f"{name}_b").count() == 4, "the files of an external table stay"


def test_a_location_where_nothing_is_gets_a_table_without_columns_and_one_with_files_is_refused(spark, name, tmp_path):
    none, files = str(tmp_path / "none"), str(tmp_path / "files")
    DeltaTable.create(spark).tableName(name).location(none).property("delta.appendOnly", "true").execute()
    spark.range(2).write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(name)
    assert spark.read.format("delta").load(none).count() == 2
    assert DeltaTable.forName(spark, name).detail().first().properties["delta.appendOnly"] == "true"
    spark.range(1).write.parquet(files)
    for make in (
        lambda: spark.sql(f"CREATE TABLE {name}_b USING delta LOCATION '{files}'"),
        lambda: DeltaTable.create(spark).location(files).execute(),
        lambda: spark.catalog.createTable(f"{name}_b", files, source="delta"),
    ):
        with pytest.raises(TableNotFoundError, match="no columns were given"):
            make()
    assert look_up(spark, (f"{name}_b",)) is None and not (tmp_path / "files" / "_delta_log").exists()


def test_a_managed_name_is_not_given_to_files_that_lie_in_its_place(spark, name):
    DeltaTable.create(spark).tableName(name).addColumn("id", "int").execute()
    place = str(local(entry_of(spark, name)))
    drop_table(spark, (name,))
    assert not Path(place).exists()
    spark.range(2).write.format("delta").save(place)
    with pytest.raises(TableAlreadyExistsError, match="no entry names it"):
        DeltaTable.create(spark).tableName(name).addColumn("id", "bigint").execute()
    DeltaTable.createOrReplace(spark).tableName(name).addColumn("x", "int").execute()
    assert spark.table(name).columns == ["x"]


def test_the_entry_follows_the_log_however_the_table_is_written(spark, name, tmp_path):
    target = str(tmp_path / "t")
    spark.range(2).write.format("delta").option("path", target).saveAsTable(name)
    more = spark.range(1).selectExpr("id", "'x' AS name")
    more.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(name)
    assert columns_of(entry_of(spark, name)) == "struct<id:bigint,name:string>"
    wider = more.selectExpr("*", "1.5 AS price")
    wider.writeTo(name).option("mergeSchema", "true").append()
    assert columns_of(entry_of(spark, name)).endswith("price:decimal(2,1)>")
    renewed = spark.range(1).selectExpr("id AS Key")
    renewed.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(target)
    assert columns_of(entry_of(spark, name)) == "struct<Key:bigint>", "by its path, too: this process knows the name"
    assert entry_differs(entry_of(spark, name), log_for_name(spark, name).update()) == []
    assert not follow(spark, (name,), log_for_name(spark, name).update()), "nothing to do"


def test_where_entry_and_log_disagree_the_log_wins_and_it_is_said_once(spark, name, tmp_path, caplog):
    target = str(tmp_path / "t")
    spark.range(2).write.format("delta").option("path", target).saveAsTable(name)
    catalog._names.clear()  # as if another process wrote
    spark.range(1).selectExpr("id", "2 AS two").write.format("delta").mode("append").option("mergeSchema", "true").save(
        target
    )
    with caplog.at_level(logging.WARNING, logger="pydelta.engines.spark.catalog.entries"):
        assert spark.table(name).columns == ["id", "two"]
        assert spark.sql(f"SELECT two FROM {name} WHERE two IS NOT NULL").collect() == [(2,)]
        spark.range(1).write.format("delta").mode("append").save(str(tmp_path / "other"))
        DeltaTable.forName(spark, name)
    said = [record.getMessage() for record in caplog.records if "log, which counts" in record.getMessage()]
    assert len(said) == 1
    assert "two is missing in the catalog" in said[0]
    assert follow(spark, (name,), log_for_name(spark, name).update())
    assert entry_differs(entry_of(spark, name), log_for_name(spark, name).update()) == []


def test_a_catalog_that_fails_fails_no_commit(spark, name, tmp_path, caplog, monkeypatch):
    spark.range(2).write.format("delta").option("path", str(tmp_path / "t")).saveAsTable(name)

    def broken(*_, **__):
        raise DeltaEnvironmentError("the catalog is away")

    monkeypatch.setattr(catalog_entries, "session_table", broken)
    more = spark.range(1).selectExpr("id", "'x' AS name")
    with caplog.at_level(logging.WARNING, logger="pydelta.engines.spark.catalog.entries"):
        more.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(name)
    assert "the catalog is away" in caplog.text
    assert spark.table(name).columns == ["id", "name"]


def test_renaming(spark, name, tmp_path):
    new = f"{name}_b"
    spark.range(3).write.format("delta").saveAsTable(name)
    before = local(entry_of(spark, name))
    rename_table(spark, (name,), ("default", new))
    after = entry_of(spark, new)
    assert look_up(spark, (name,)) is None
    assert (local(after).name, before.exists(), after.managed) == (new, False, True), "managed files move along"
    assert spark.table(new).count() == 3
    assert entry_differs(after, log_for_name(spark, new).update()) == []
    spark.range(1).write.format("delta").option("path", str(tmp_path / "t")).saveAsTable(name)
    with pytest.raises(TableAlreadyExistsError):
        rename_table(spark, (name,), (new,))
    with pytest.raises(InvalidArgumentError, match="leave its database"):
        rename_table(spark, (name,), ("elsewhere", "t"))
    drop_table(spark, (new,))
    rename_table(spark, (name,), (new,))
    assert local(entry_of(spark, new)) == tmp_path / "t", "external files stay"


def test_another_location(spark, name, tmp_path):
    spark.range(3).write.format("delta").saveAsTable(name)
    old = local(entry_of(spark, name))
    for table, frame in {"same": spark.range(5), "other": spark.range(1).selectExpr("id AS x")}.items():
        frame.write.format("delta").save(str(tmp_path / table))
    with pytest.raises(TableNotFoundError, match="is not a Delta table"):
        set_location(spark, (name,), str(tmp_path / "none"))
    with pytest.raises(SchemaMismatchError, match="other columns"):
        set_location(spark, (name,), str(tmp_path / "other"))
    assert spark.table(name).count() == 3
    set_location(spark, (name,), str(tmp_path / "same"))
    assert (spark.table(name).count(), old.exists()) == (5, True)
    assert not entry_of(spark, name).managed, "DROP TABLE is not to delete what the catalog never made"
    drop_table(spark, (name,))
    assert (tmp_path / "same").exists()


def test_what_has_no_entry_of_its_own_is_refused(spark, name, tmp_path):
    target = str(tmp_path / "t")
    spark.range(1).write.format("delta").save(target)
    assert not drop_table(spark, (name,), if_exists=True)
    with pytest.raises(TableNotFoundError, match="no table"):
        drop_table(spark, (name,))
    with pytest.raises(UnsafeOperationError, match="is a path"):
        drop_table(spark, ("delta", target))
    with pytest.raises(UnsupportedFeatureError, match="in the catalog other"):
        create_entry(spark, ("other", "db", name), log_for_name(spark, f"delta.`{target}`").update())
    with pytest.raises(TableNotFoundError, match="no database"):
        create_entry(spark, ("no_such_db", name), log_for_name(spark, f"delta.`{target}`").update())
    spark.range(1).write.format("parquet").saveAsTable(name)
    with pytest.raises(InvalidArgumentError, match="not a Delta table"):
        drop_table(spark, (name,))
    with pytest.raises(TableAlreadyExistsError, match="is not a Delta table"):
        DeltaTable.createOrReplace(spark).tableName(name).addColumn("id", "int").execute()
    spark.sql(f"CREATE OR REPLACE TEMP VIEW {name}_view AS SELECT 1 AS x")
    with pytest.raises(InvalidArgumentError, match="is a view"):
        drop_table(spark, (f"{name}_view",))
    spark.catalog.dropTempView(f"{name}_view")


def test_a_cached_table_is_forgotten_with_its_name(spark, name):
    spark.range(3).write.format("delta").saveAsTable(name)
    spark.catalog.cacheTable(name)
    drop_table(spark, (name,))
    spark.range(9).write.format("delta").saveAsTable(name)
    assert not spark.catalog.isCached(name)
    assert spark.table(name).count() == 9


def test_for_name_takes_views_that_show_a_whole_table(spark, name, tmp_path):
    target = str(tmp_path / "t")
    spark.range(6).write.format("delta").option("path", target).saveAsTable(name)
    views = {
        "frame": spark.table(name),
        "path": spark.read.format("delta").load(target),
        "sql": spark.sql(f"SELECT * FROM {name}"),
    }
    for kind, frame in views.items():
        frame.createOrReplaceTempView(f"{name}_{kind}")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW {name}_text AS SELECT * FROM {name}")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW {name}_nested AS SELECT * FROM {name}_text")
    for kind in ("frame", "path", "text", "nested"):
        assert DeltaTable.forName(spark, f"{name}_{kind}").toDF().count() == 6, kind
    DeltaTable.forName(spark, f"{name}_frame").delete("id = 0")
    assert spark.table(name).count() == 5
    spark.table(name).where("id > 2").createOrReplaceTempView(f"{name}_part")
    spark.read.format("delta").option("versionAsOf", 0).load(target).createOrReplaceTempView(f"{name}_old")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW {name}_some AS SELECT id + 1 AS id FROM {name}")
    for kind in ("part", "old", "some"):
        with pytest.raises(TableNotFoundError, match="is a view"):
            DeltaTable.forName(spark, f"{name}_{kind}")
    for kind in ("frame", "path", "sql", "text", "nested", "part", "old", "some"):
        spark.catalog.dropTempView(f"{name}_{kind}")
    assert DeltaTable.forName(spark, f"delta.`{target}`").toDF().count() == 5
    with pytest.raises(TableNotFoundError, match="where there is no Delta table"):
        DeltaTable.forName(spark, f"delta.`{target}_none`")


def test_a_catalog_that_refuses_a_new_entry_says_what_to_do(spark, name, tmp_path, monkeypatch):
    def refuses(*_, **__):
        raise AnalysisException("the metastore is away", messageParameters={})

    target = str(tmp_path / "t")
    with monkeypatch.context() as patched:
        patched.setattr(catalog_entries, "session_table", refuses)
        with pytest.raises(DeltaEnvironmentError, match=r"created at .*/t, but the catalog refused") as caught:
            spark.range(3).write.format("delta").option("path", target).saveAsTable(name)
    assert look_up(spark, (name,)) is None
    statement = caught.value.hint.partition(": ")[2].rstrip(".")
    spark.sql(statement)
    assert spark.table(name).count() == 3, "what the error says to do makes it good"


def test_a_path_that_contradicts_the_entry_is_refused(spark, name, tmp_path):
    write = spark.range(2).write.format("delta").mode("append")
    write.option("path", str(tmp_path / "a")).saveAsTable(name)
    write.option("path", str(tmp_path / "a")).saveAsTable(name)
    with pytest.raises(UnsafeOperationError, match="the option path says"):
        write.option("path", str(tmp_path / "b")).saveAsTable(name)
    assert (spark.table(name).count(), (tmp_path / "b").exists()) == (4, False)


def test_a_location_with_odd_characters(spark, name, tmp_path):
    target = str(tmp_path / "50% of a+b é")
    spark.range(2).write.format("delta").option("path", target).saveAsTable(name)
    assert spark.table(name).count() == 2
    spark.range(1).write.format("delta").mode("append").saveAsTable(name)
    rename_table(spark, (name,), (f"{name}_b",))
    assert DeltaTable.forName(spark, f"{name}_b").toDF().count() == 3
    assert f"LOCATION 'file:{target}'" in spark.sql(f"SHOW CREATE TABLE {name}_b").first()[0]


def test_what_sparks_catalog_says_of_a_table(spark, name):
    DeltaTable.create(spark).tableName(name).comment("why").addColumn("Day", "date").addColumn(
        "id", "bigint", comment="which"
    ).partitionedBy("Day").execute()
    found = spark.catalog.getTable(name)
    assert (found.tableType, found.isTemporary) == ("MANAGED", False)
    assert name in [item.name for item in spark.catalog.listTables()]
