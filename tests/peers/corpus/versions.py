"""Time travel, RESTORE, the change data feed, OPTIMIZE, VACUUM, CLONE, CONVERT, GENERATE."""

from __future__ import annotations

from differ.programs import Corpus

corpus = Corpus("versions")

MADE = """
    CREATE TABLE {t} (id INT, v STRING) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');
    INSERT INTO {t} VALUES (1, 'a'), (2, 'b');
    UPDATE {t} SET v = 'c' WHERE id = 2;
    DELETE FROM {t} WHERE id = 1;
    INSERT INTO {t} VALUES (3, 'd');
"""
NO_TIME = "SELECT id, v, _change_type, _commit_version FROM "
for name, text in {
    "version as of": "SELECT * FROM {t} VERSION AS OF 1",
    "for version as of": "SELECT * FROM {t} FOR VERSION AS OF 2",
    "at sign": "SELECT * FROM {t}@v1",
    "version as of a text": "SELECT * FROM {t} VERSION AS OF '1'",
    "version of the future": "SELECT * FROM {t} VERSION AS OF 99",
    "version below zero": "SELECT * FROM {t} VERSION AS OF -1",
    "timestamp of the past": "SELECT * FROM {t} TIMESTAMP AS OF '2001-01-01'",
    "timestamp of the future": "SELECT * FROM {t} TIMESTAMP AS OF '2999-01-01'",
    "timestamp of no time": "SELECT * FROM {t} TIMESTAMP AS OF 'yesterday'",
    "timestamp by an expression": "SELECT count(*) > 0 FROM {t} TIMESTAMP AS OF current_timestamp() + INTERVAL 0 SECONDS",
    "timestamp by a subquery": "SELECT count(*) FROM {t} TIMESTAMP AS OF (SELECT max(TIMESTAMP'2001-01-01'))",
    "two versions joined": "SELECT a.id, b.id FROM {t} VERSION AS OF 1 a JOIN {t} VERSION AS OF 4 b ON a.id = b.id",
    "restore": "--nothing RESTORE TABLE {t} TO VERSION AS OF 1",
    "restore again": "--nothing RESTORE TABLE {t} TO VERSION AS OF 1;\n --nothing RESTORE {t} VERSION AS OF 4",
    "restore to the version it has": "RESTORE TABLE {t} TO VERSION AS OF 4",
    "restore to the future": "RESTORE TABLE {t} TO VERSION AS OF 99",
    "restore to a time of the future": "RESTORE TABLE {t} TO TIMESTAMP AS OF '2999-01-01'",
    "restore to a time of the past": "RESTORE TABLE {t} TO TIMESTAMP AS OF '2001-01-01'",
    "restore what is not there": "RESTORE TABLE nope_table TO VERSION AS OF 1",
    "feed": NO_TIME + "table_changes('{t}', 1)",
    "feed of a range": NO_TIME + "table_changes('{t}', 2, 3)",
    "feed of one version": NO_TIME + "table_changes('{t}', 2, 2)",
    "feed from the future": NO_TIME + "table_changes('{t}', 99)",
    "feed to the future": NO_TIME + "table_changes('{t}', 1, 99)",
    "feed backwards": NO_TIME + "table_changes('{t}', 3, 1)",
    "feed from the first version": NO_TIME + "table_changes('{t}', 0)",
    "feed from a time of the past": NO_TIME + "table_changes('{t}', '2001-01-01')",
    "feed of what is not there": NO_TIME + "table_changes('nope_table', 0)",
    "feed schema": "--schema SELECT * FROM table_changes('{t}', 1)",
    "optimize": "--schema OPTIMIZE {t}",
    "optimize with zorder": "--schema OPTIMIZE {t} ZORDER BY (id)",
    "zorder by what is not there": "OPTIMIZE {t} ZORDER BY (nope)",
    "optimize where": "OPTIMIZE {t} WHERE id = 1",
    "optimize full": "OPTIMIZE {t} FULL",
    "optimize what is not there": "OPTIMIZE nope_table",
    "vacuum dry run": "--schema VACUUM {t} DRY RUN",
    "vacuum": "--nothing VACUUM {t}",
    "vacuum retain": "--nothing VACUUM {t} RETAIN 200 HOURS",
    "vacuum retain too few": "VACUUM {t} RETAIN 1 HOURS",
    "vacuum lite": "--nothing VACUUM {t} LITE",
    "vacuum what is not there": "VACUUM nope_table",
    "generate": "GENERATE symlink_format_manifest FOR TABLE {t}",
    "generate in another case": "GENERATE SYMLINK_FORMAT_MANIFEST FOR TABLE {t}",
    "generate something else": "GENERATE nope FOR TABLE {t}",
    "shallow clone": "--nothing CREATE TABLE {t}2 SHALLOW CLONE {t};\n SELECT * FROM {t}2;\n DROP TABLE {t}2",
    "shallow clone of a version": "--nothing CREATE TABLE {t}2 SHALLOW CLONE {t} VERSION AS OF 1;\n SELECT * FROM {t}2;\n DROP TABLE {t}2",
    "shallow clone over one": "CREATE TABLE {t}2 (id INT) USING delta;\n CREATE TABLE {t}2 SHALLOW CLONE {t}",
    "shallow clone replaces": "CREATE TABLE {t}2 (id INT) USING delta;\n --nothing CREATE OR REPLACE TABLE {t}2 SHALLOW CLONE {t};\n SELECT * FROM {t}2",
    "shallow clone if not exists": "CREATE TABLE {t}2 (id INT) USING delta;\n --nothing CREATE TABLE IF NOT EXISTS {t}2 SHALLOW CLONE {t};\n SELECT * FROM {t}2",
    "shallow clone metrics": "--schema CREATE TABLE {t}2 SHALLOW CLONE {t}",
    "clone of what is not there": "CREATE TABLE {t}2 SHALLOW CLONE nope_table",
    "clone with properties": "--nothing CREATE TABLE {t}2 SHALLOW CLONE {t} TBLPROPERTIES ('own' = '1');\n SHOW TBLPROPERTIES {t}2 ('own')",
    "append only": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true');\n DELETE FROM {t};\n UPDATE {t} SET v = 'q';\n INSERT OVERWRITE {t} VALUES (9, 'z');\n INSERT INTO {t} VALUES (10, 'ok')",
    "reorg": "--schema REORG TABLE {t} APPLY (PURGE)",
    "convert": "CREATE TABLE {t}p (id INT, g STRING) USING parquet PARTITIONED BY (g) LOCATION '{d}/pq';\n INSERT INTO {t}p VALUES (1, 'a'), (2, NULL);\n CONVERT TO DELTA parquet.`{d}/pq` PARTITIONED BY (g STRING);\n SELECT * FROM delta.`{d}/pq`",
    "convert without partitions": "CREATE TABLE {t}p (id INT, g STRING) USING parquet PARTITIONED BY (g) LOCATION '{d}/pq';\n INSERT INTO {t}p VALUES (1, 'a');\n CONVERT TO DELTA parquet.`{d}/pq`",
    "convert a table": "CREATE TABLE {t}p (id INT, g STRING) USING parquet PARTITIONED BY (g);\n INSERT INTO {t}p VALUES (1, 'a');\n CONVERT TO DELTA {t}p;\n SELECT * FROM {t}p",
    "convert what is delta": "CONVERT TO DELTA {t}",
    "convert nothing": "CONVERT TO DELTA parquet.`{d}/nope`",
    "clone a parquet folder": "CREATE TABLE {t}p (id INT) USING parquet LOCATION '{d}/pq';\n INSERT INTO {t}p VALUES (1);\n --nothing CREATE TABLE {t}2 SHALLOW CLONE parquet.`{d}/pq`;\n SELECT * FROM {t}2",
}.items():
    corpus.sql(name, MADE + text)

for name, build in {
    "versionAsOf": lambda at: at.spark.read.format("delta").option("versionAsOf", 1).table(at.t),
    "versionAsOf of the future": lambda at: (
        at.spark.read.format("delta").option("versionAsOf", 99).table(at.t).collect()
    ),
    "both options": lambda at: (
        at.spark.read.format("delta")
        .option("versionAsOf", 1)
        .option("timestampAsOf", "2024-01-01")
        .table(at.t)
        .collect()
    ),
    "versionAsOf a word": lambda at: at.spark.read.format("delta").option("versionAsOf", "x").table(at.t).collect(),
    "feed by options": lambda at: (
        at.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 1)
        .table(at.t)
        .drop("_commit_timestamp")
    ),
    "feed without a start": lambda at: (
        at.spark.read.format("delta").option("readChangeFeed", "true").table(at.t).collect()
    ),
    "feed with an end": lambda at: (
        at.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 1)
        .option("endingVersion", 2)
        .table(at.t)
        .drop("_commit_timestamp")
    ),
    "feed with both starts": lambda at: (
        at.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 1)
        .option("startingTimestamp", "2024-01-01")
        .table(at.t)
        .collect()
    ),
    "history": lambda at: at.DeltaTable.forName(at.spark, at.t).history().select("version", "operation"),
    "history of two": lambda at: at.DeltaTable.forName(at.spark, at.t).history(2).select("version", "operation"),
    "detail": lambda at: (
        at.DeltaTable.forName(at.spark, at.t).detail().select("format", "partitionColumns", "numFiles")
    ),
    "restoreToVersion": lambda at: at.DeltaTable.forName(at.spark, at.t).restoreToVersion(1),
    "restoreToVersion of the future": lambda at: at.DeltaTable.forName(at.spark, at.t).restoreToVersion(99),
    "restoreToTimestamp": lambda at: at.DeltaTable.forName(at.spark, at.t).restoreToTimestamp("2001-01-01"),
    "vacuum": lambda at: at.DeltaTable.forName(at.spark, at.t).vacuum(),
    "vacuum too few": lambda at: at.DeltaTable.forName(at.spark, at.t).vacuum(1),
    "optimize": lambda at: at.DeltaTable.forName(at.spark, at.t).optimize().executeCompaction().schema.simpleString(),
    "zorder": lambda at: at.DeltaTable.forName(at.spark, at.t).optimize().executeZOrderBy("id").count(),
    "zorder by nothing": lambda at: at.DeltaTable.forName(at.spark, at.t).optimize().executeZOrderBy(),
    "generate": lambda at: at.DeltaTable.forName(at.spark, at.t).generate("symlink_format_manifest"),
    "generate nope": lambda at: at.DeltaTable.forName(at.spark, at.t).generate("nope"),
    "isDeltaTable": lambda at: [at.DeltaTable.isDeltaTable(at.spark, at.d), at.DeltaTable.isDeltaTable(at.spark, at.p)],
    "forPath of nothing": lambda at: at.DeltaTable.forPath(at.spark, at.d),
    "forName of nothing": lambda at: at.DeltaTable.forName(at.spark, "nope_table"),
    "toDF": lambda at: at.DeltaTable.forName(at.spark, at.t).toDF(),
    "delete": lambda at: at.DeltaTable.forName(at.spark, at.t).delete("id = 3"),
    "delete all": lambda at: at.DeltaTable.forName(at.spark, at.t).delete(),
    "delete by a number": lambda at: at.DeltaTable.forName(at.spark, at.t).delete(1),
    "update": lambda at: at.DeltaTable.forName(at.spark, at.t).update("id = 3", {"v": "'q'"}),
    "update by keyword": lambda at: at.DeltaTable.forName(at.spark, at.t).update(condition="id = 3", set={"v": "'q'"}),
    "update of nothing": lambda at: at.DeltaTable.forName(at.spark, at.t).update("id = 3"),
    "update by a list": lambda at: at.DeltaTable.forName(at.spark, at.t).update("id = 3", ["v"]),
    "upgradeTableProtocol": lambda at: at.DeltaTable.forName(at.spark, at.t).upgradeTableProtocol(1, 4),
    "upgradeTableProtocol by text": lambda at: at.DeltaTable.forName(at.spark, at.t).upgradeTableProtocol("1", 4),
    "addFeatureSupport": lambda at: at.DeltaTable.forName(at.spark, at.t).addFeatureSupport("deletionVectors"),
    "addFeatureSupport of nothing": lambda at: at.DeltaTable.forName(at.spark, at.t).addFeatureSupport("nope"),
    "dropFeatureSupport": lambda at: at.DeltaTable.forName(at.spark, at.t).dropFeatureSupport("nope"),
}.items():

    def add(name=name, build=build):
        @corpus.python(f"by the API, {name}")
        def program(at):
            for statement in MADE.replace("\n", " ").split(";"):
                if statement.strip():
                    at.sql(statement)
            return build(at)

    add()
