"""What the history and DESCRIBE DETAIL say of each operation, in chains of them on one table."""

from __future__ import annotations

from differ.programs import Corpus
from pyspark.sql import functions as F

corpus = Corpus("history")

ROWS = """
    CREATE TABLE {t} (id INT, v STRING, g STRING, s STRUCT<a: INT>) USING delta PARTITIONED BY (g);
    INSERT INTO {t} VALUES (1, 'a', 'x', named_struct('a', 1)), (2, 'b', 'x', NULL), (3, 'c', 'y', NULL), (4, NULL, NULL, NULL);
"""
for name, text in {
    "definitions": """
        CREATE TABLE {t} (id INT COMMENT 'k', v STRING) USING delta COMMENT 'words' TBLPROPERTIES ('own' = '1') CLUSTER BY (id);
        REPLACE TABLE {t} (id INT) USING delta COMMENT '';
        CREATE OR REPLACE TABLE {t} USING delta COMMENT 'more' AS SELECT 1 AS id, 'x' AS g;
        REPLACE TABLE {t} USING delta CLUSTER BY (id) AS SELECT 1 AS id, 2 AS n;
        CREATE TABLE IF NOT EXISTS delta.`{p}` (id INT) USING delta;
        INSERT INTO delta.`{p}` SELECT * FROM delta.`{p}`
    """,
    "conditions of delete": ROWS
    + """
        DELETE FROM {t} WHERE g = 'y' AND id > 2;
        DELETE FROM {t} WHERE s.a = 1 OR v LIKE 'q%' OR v LIKE '%q_' OR upper(v) = 'Q';
        DELETE FROM {t} WHERE g IS NULL;
        DELETE FROM {t} WHERE id IN (7, 8, 9) AND NOT (v <=> NULL);
        DELETE FROM {t} WHERE CAST(id AS BIGINT) >= 1 + 1 AND coalesce(v, 'b') <> 'z';
        DELETE FROM {t}
    """,
    "conditions of kinds": """
        CREATE TABLE {t} (id INT, d DATE, ts TIMESTAMP, n DECIMAL(10,2), l ARRAY<INT>, m MAP<STRING,INT>, b BOOLEAN, f DOUBLE) USING delta;
        INSERT INTO {t} SELECT id, DATE'2024-01-01', TIMESTAMP'2024-01-01 12:00:00', id, array(1), map('a', 1), true, 1.5 FROM range(0, 20, 1, 1);
        UPDATE {t} SET n = n + 1 WHERE d = '2024-01-01' AND id = 1;
        UPDATE {t} SET n = n + 1 WHERE ts > '2024-01-01' AND id BETWEEN 2 AND 3;
        UPDATE {t} SET n = 9 WHERE n > 2.5 AND n < 4;
        UPDATE {t} SET n = 9 WHERE l[0] = 1 AND m['a'] = 1 AND b AND f > 1 AND id = 5;
        UPDATE {t} SET n = 9 WHERE size(filter(l, x -> x > 0)) = 1 AND CASE WHEN id = 6 THEN true ELSE false END;
        UPDATE {t} SET n = 9 WHERE length(concat('a', id)) = 3 AND NOT b;
        UPDATE {t} SET n = 9 WHERE id % 7 = 0 AND if(id > 3, b, NOT b) AND year(d) = 2024;
        UPDATE {t} SET n = 9 WHERE true
    """,
    "vectors": """
        CREATE TABLE {t} (id INT, v STRING) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true');
        INSERT INTO {t} SELECT id, 'a' FROM range(0, 10, 1, 1);
        DELETE FROM {t} WHERE id < 2;
        DELETE FROM {t} WHERE id = 5;
        UPDATE {t} SET v = 'b' WHERE id = 3;
        MERGE INTO {t} USING (SELECT id FROM range(3, 12, 1, 1)) s ON {t}.id = s.id WHEN MATCHED AND s.id < 5 THEN DELETE WHEN MATCHED AND s.id < 7 THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) WHEN NOT MATCHED BY SOURCE THEN DELETE;
        --nothing OPTIMIZE {t};
        --nothing REORG TABLE {t} APPLY (PURGE);
        DELETE FROM {t} WHERE id > 8;
        DELETE FROM {t}
    """,
    "feed": """
        CREATE TABLE {t} (id INT, v STRING) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'false');
        INSERT INTO {t} SELECT id, 'a' FROM range(0, 10, 1, 1);
        DELETE FROM {t} WHERE id < 2;
        UPDATE {t} SET v = 'b' WHERE id = 3;
        MERGE INTO {t} AS t USING (SELECT CAST(id AS INT) AS id, 'm' AS v FROM range(3, 12, 1, 1)) s ON t.id = s.id AND t.v <> 'q' WHEN MATCHED AND s.id < 5 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.id > 10 THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN UPDATE SET v = 'n';
        MERGE INTO {t} AS t USING (SELECT 1 AS id, 'z' AS v WHERE false) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *;
        MERGE INTO {t} AS t USING (SELECT 77 AS id, 'z' AS v) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *;
        MERGE INTO {t} AS t USING (SELECT 77 AS id, 'z' AS v) s ON t.id = s.id WHEN MATCHED THEN DELETE
    """,
    "columns": """
        CREATE TABLE {t} (id INT, v STRING, s STRUCT<a: INT>) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true');
        ALTER TABLE {t} ADD COLUMNS (c INT COMMENT 'x' AFTER id, d ARRAY<STRUCT<y: INT>> FIRST);
        ALTER TABLE {t} ADD COLUMN s.b DECIMAL(5,1) COMMENT 'in';
        ALTER TABLE {t} ALTER COLUMN v COMMENT 'new';
        ALTER TABLE {t} ALTER COLUMN v FIRST;
        ALTER TABLE {t} ALTER COLUMN s.b AFTER a;
        ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT;
        ALTER TABLE {t} ALTER COLUMN v DROP NOT NULL;
        ALTER TABLE {t} CHANGE COLUMN c c INT COMMENT 'again';
        ALTER TABLE {t} ALTER COLUMN id COMMENT 'one', v COMMENT 'two';
        ALTER TABLE {t} RENAME COLUMN s.a TO z;
        ALTER TABLE {t} DROP COLUMN s.b;
        ALTER TABLE {t} DROP COLUMNS (c, d);
        COMMENT ON TABLE {t} IS 'words'
    """,
    "properties": """
        CREATE TABLE {t} (id INT, v STRING) USING delta;
        INSERT INTO {t} VALUES (1, 'a');
        ALTER TABLE {t} SET TBLPROPERTIES ('own' = '1', 'delta.logRetentionDuration' = 'interval 60 days');
        ALTER TABLE {t} UNSET TBLPROPERTIES ('own');
        ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 0 AND v IS NOT NULL);
        ALTER TABLE {t} DROP CONSTRAINT c;
        ALTER TABLE {t} DROP CONSTRAINT IF EXISTS c;
        ALTER TABLE {t} CLUSTER BY (id, v);
        --nothing OPTIMIZE {t};
        --nothing OPTIMIZE {t} FULL;
        ALTER TABLE {t} CLUSTER BY NONE;
        ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true');
        ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.v2Checkpoint' = 'supported')
    """,
    "optimize": ROWS
    + """
        INSERT INTO {t} VALUES (5, 'a', 'x', NULL);
        INSERT INTO {t} VALUES (6, 'a', 'y', NULL), (7, 'a', 'z', NULL);
        --nothing OPTIMIZE {t} WHERE g = 'x';
        --nothing OPTIMIZE {t} WHERE g >= 'a' AND g < 'z';
        --nothing OPTIMIZE {t} ZORDER BY (id, v);
        --nothing OPTIMIZE {t};
        --schema REORG TABLE {t} WHERE g = 'x' APPLY (PURGE)
    """,
    "overwrites": ROWS
    + """
        INSERT OVERWRITE {t} VALUES (1, 'a', 'x', NULL);
        INSERT INTO {t} REPLACE WHERE g = 'x' VALUES (8, 'a', 'x', NULL);
        INSERT INTO {t} REPLACE WHERE id > 5 VALUES (9, 'a', 'z', NULL);
        INSERT INTO {t} BY NAME SELECT 3 AS id;
        INSERT OVERWRITE {t} PARTITION (g = 'x') SELECT 4, 'b', NULL;
        INSERT INTO {t} PARTITION (g = 'x') SELECT 4, 'b', NULL;
        INSERT INTO {t} SELECT * FROM {t};
        TRUNCATE TABLE {t}
    """,
    "restores": ROWS
    + """
        DELETE FROM {t} WHERE id = 1;
        --nothing RESTORE TABLE {t} TO VERSION AS OF 1;
        --schema RESTORE TABLE {t} TO VERSION AS OF 2;
        --schema CREATE TABLE {t}2 SHALLOW CLONE {t} VERSION AS OF 1;
        DELETE FROM {t}2 WHERE id = 2;
        DROP TABLE {t}2
    """,
    "vacuums": ROWS
    + """
        DELETE FROM {t};
        --nothing VACUUM {t};
        --nothing VACUUM {t} RETAIN 200 HOURS;
        --schema VACUUM {t} DRY RUN;
        --nothing VACUUM {t} LITE
    """,
    "a folder": """
        CREATE TABLE {t}p (id INT, g STRING) USING parquet PARTITIONED BY (g) LOCATION '{p}';
        INSERT INTO {t}p VALUES (1, 'a'), (2, NULL);
        CONVERT TO DELTA parquet.`{p}` PARTITIONED BY (g STRING);
        SELECT * FROM delta.`{p}` WHERE g IS NULL;
        SELECT * FROM delta.`{p}` WHERE g = '__HIVE_DEFAULT_PARTITION__';
        INSERT INTO delta.`{p}` VALUES (3, '__HIVE_DEFAULT_PARTITION__'), (4, '');
        SELECT * FROM delta.`{p}`;
        DELETE FROM delta.`{p}` WHERE g = '__HIVE_DEFAULT_PARTITION__';
        SELECT * FROM delta.`{p}`
    """,
}.items():
    corpus.sql(name, text)


@corpus.python("the API")
def by_the_api(at):
    (
        at.DeltaTable.create(at.spark)
        .tableName(at.t)
        .addColumn("id", "INT", comment="k")
        .addColumn("v", "STRING")
        .comment("words")
        .property("own", "1")
        .execute()
    )
    rows = at.spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "id int, v string").coalesce(1)
    rows.write.format("delta").mode("append").saveAsTable(at.t)
    rows.write.format("delta").mode("append").option("userMetadata", "note").insertInto(at.t)
    rows.where("id > 1").write.format("delta").mode("overwrite").option("replaceWhere", "id > 1").saveAsTable(at.t)
    rows.selectExpr("id", "v", "1 AS n").write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(
        at.t
    )
    table = at.DeltaTable.forName(at.spark, at.t)
    table.delete("id = 1 and v = 'a'")
    table.update("id = 2", {"v": "'q'"})
    table.update(set={"n": "n + 1"})
    target, source = table.alias("t"), rows.alias("s")
    clauses = target.merge(source, "t.id = s.id and t.n > 0").whenMatchedUpdate("s.v = 'c'", {"v": "s.v"})
    clauses.whenMatchedDelete("t.id < s.id").whenNotMatchedInsert(values={"id": "s.id"}).execute()
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("v").saveAsTable(at.t)
    rows.limit(1).write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").saveAsTable(at.t)
    rows.writeTo(at.t).overwritePartitions()
    rows.where("id > 1").writeTo(at.t).overwrite(F.col("id") > 1)
    rows.writeTo(at.t).using("delta").createOrReplace()
    table.optimize().executeCompaction()


@corpus.python("files of a frame")
def files_of_a_frame(at):
    rows = at.spark.range(0, 6, 1, 1).selectExpr("id", "id % 3 AS g")
    rows.write.format("delta").partitionBy("g").save(at.p)
    rows.selectExpr("id + 100 AS id", "g").write.format("delta").mode("append").save(at.p)
    frame = at.spark.read.format("delta").load(at.p)
    at.tell([len(frame.inputFiles()), len(frame.where("g = 1").inputFiles()), len(frame.where("id > 50").inputFiles())])
    at.tell([len(frame.where("g = 1 and id > 50").select("id").inputFiles()), len(frame.limit(1).inputFiles())])
    found = frame.where("g = 1 and id > 50").inputFiles()[0]
    at.tell([found.startswith("file:///"), "/g=1/part-" in found])


@corpus.python("a stream")
def a_stream(at):
    at.spark.range(0, 3, 1, 1).write.format("delta").save(at.p + "_source")
    stream = at.spark.readStream.format("delta").load(at.p + "_source")
    writer = stream.writeStream.format("delta").option("checkpointLocation", at.d + "/checkpoint")
    writer.trigger(availableNow=True).start(at.p).awaitTermination()


for name, text in {
    "by a subquery": "SELECT count(*) AS n FROM {t} TIMESTAMP AS OF (SELECT current_timestamp() + INTERVAL 0 SECONDS)",
    "row ids": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true');\n SELECT id, _metadata.row_id >= 0 AS r, _metadata.row_commit_version AS c FROM {t} WHERE _metadata.row_commit_version >= 0;\n UPDATE {t} SET v = 'z' WHERE id = 1;\n SELECT id, _metadata.row_commit_version AS c FROM {t}",
}.items():
    corpus.sql(name, ROWS + text)
