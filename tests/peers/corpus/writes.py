"""INSERT in all its forms, and the writers of DataFrames with their options."""

from __future__ import annotations

from differ.programs import Corpus

corpus = Corpus("writes")

MADE = """
    CREATE TABLE {t} (id INT, v STRING, g STRING) USING delta PARTITIONED BY (g);
    INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', NULL);
"""
for name, text in {
    "values": "INSERT INTO {t} VALUES (4, 'd', 'x')",
    "into table": "INSERT INTO TABLE {t} VALUES (4, 'd', 'x')",
    "columns": "INSERT INTO {t} (g, id) VALUES ('z', 4)",
    "columns twice": "INSERT INTO {t} (id, id) VALUES (1, 2)",
    "a column that is not there": "INSERT INTO {t} (id, nope) VALUES (1, 2)",
    "too few values": "INSERT INTO {t} VALUES (4, 'd')",
    "too many values": "INSERT INTO {t} VALUES (4, 'd', 'x', 5)",
    "select": "INSERT INTO {t} SELECT id + 10, v, g FROM {t}",
    "by name": "INSERT INTO {t} BY NAME SELECT 'x' AS g, 4 AS id, 'd' AS v",
    "by name with fewer": "INSERT INTO {t} BY NAME SELECT 'x' AS g, 4 AS id",
    "by name with more": "INSERT INTO {t} BY NAME SELECT 'x' AS g, 4 AS id, 'd' AS v, 1 AS extra",
    "table": "INSERT INTO {t} TABLE {t}",
    "overwrite": "INSERT OVERWRITE {t} VALUES (9, 'z', 'x')",
    "overwrite with columns": "INSERT OVERWRITE {t} (id) VALUES (9)",
    "overwrite a partition": "INSERT OVERWRITE {t} PARTITION (g = 'x') VALUES (9, 'z')",
    "overwrite a dynamic partition": "INSERT OVERWRITE {t} PARTITION (g) VALUES (9, 'z', 'x')",
    "into a partition": "INSERT INTO {t} PARTITION (g = 'q') VALUES (9, 'z')",
    "replace where": "INSERT INTO {t} REPLACE WHERE g = 'x' VALUES (9, 'z', 'x')",
    "replace where with others": "INSERT INTO {t} REPLACE WHERE g = 'x' VALUES (9, 'z', 'y')",
    "replace where data": "INSERT INTO {t} REPLACE WHERE id > 1 VALUES (9, 'z', 'y')",
    "replace where nothing": "INSERT INTO {t} REPLACE WHERE nope = 1 VALUES (9, 'z', 'y')",
    "into what is not there": "INSERT INTO nope_table VALUES (1)",
    "with": "WITH q AS (SELECT 5 AS id, 'q' AS v, 'x' AS g) INSERT INTO {t} SELECT * FROM q",
    "default": "INSERT INTO {t} VALUES (4, DEFAULT, 'x')",
    "the default partition by its name": "INSERT INTO {t} VALUES (4, 'd', '__HIVE_DEFAULT_PARTITION__');\n SELECT * FROM {t} WHERE g IS NULL",
    "an empty partition value": "INSERT INTO {t} VALUES (4, 'd', '');\n SELECT * FROM {t} WHERE g IS NULL",
    "a strange partition value": "INSERT INTO {t} VALUES (4, 'd', 'a/b=c%d é');\n SELECT id FROM {t} WHERE g = 'a/b=c%d é'",
    "nothing": "INSERT INTO {t} SELECT * FROM {t} WHERE false",
    "from values with names": "INSERT INTO {t} SELECT * FROM VALUES (7, 'q', 'x') AS q(a, b, c)",
    "schema evolution": "INSERT WITH SCHEMA EVOLUTION INTO {t} BY NAME SELECT 1 AS id, 'x' AS g, 5 AS extra",
}.items():
    corpus.sql(f"insert {name}", MADE + text)
    if name in ("overwrite", "overwrite a dynamic partition", "overwrite with columns", "overwrite a partition"):
        corpus.sql(f"dynamic insert {name}", MADE + text, spark__sql__sources__partitionOverwriteMode="dynamic")
    if name in ("too many values", "by name with more", "schema evolution"):
        corpus.sql(f"evolving insert {name}", MADE + text, spark__databricks__delta__schema__autoMerge__enabled="true")

RULES = {
    "not null": ("CREATE TABLE {t} (id INT NOT NULL, v STRING) USING delta", ["(NULL, 'a')", "(1, NULL)"]),
    "a check": (
        "CREATE TABLE {t} (id INT, v STRING) USING delta;\n ALTER TABLE {t} ADD CONSTRAINT pos CHECK (id > 0)",
        ["(0, 'a')", "(1, 'a')", "(NULL, 'a')"],
    ),
    "varchar": ("CREATE TABLE {t} (id INT, v VARCHAR(3)) USING delta", ["(1, 'abcd')", "(2, 'abc   ')", "(3, 'ab')"]),
    "char": ("CREATE TABLE {t} (id INT, v CHAR(3)) USING delta", ["(1, 'abcd')", "(2, 'ab')"]),
    "a nested not null": (
        "CREATE TABLE {t} (id INT, s STRUCT<a: INT NOT NULL>) USING delta",
        ["(1, named_struct('a', CAST(NULL AS INT)))", "(2, NULL)", "(3, named_struct('a', 1))"],
    ),
}
for name, (made, rows) in RULES.items():
    corpus.sql(f"rule {name}", f"{made};\n" + ";\n".join(f"INSERT INTO {{t}} VALUES {row}" for row in rows))
    first = rows[-1]
    corpus.sql(
        f"rule {name} in update",
        f"{made};\n INSERT INTO {{t}} VALUES {rows[-1]};\n UPDATE {{t}} SET id = -1;\n UPDATE {{t}} SET id = NULL",
    )

GENERATED = "CREATE TABLE {t} (a INT, b INT GENERATED ALWAYS AS (a * 2), day DATE, y INT GENERATED ALWAYS AS (year(day))) USING delta PARTITIONED BY (y);\n"
for name, text in {
    "left out": "INSERT INTO {t} (a, day) VALUES (1, DATE'2024-05-05')",
    "given right": "INSERT INTO {t} VALUES (1, 2, DATE'2024-05-05', 2024)",
    "given wrong": "INSERT INTO {t} VALUES (1, 3, DATE'2024-05-05', 2024)",
    "updated": "INSERT INTO {t} (a, day) VALUES (1, DATE'2024-05-05');\n UPDATE {t} SET a = 5, day = DATE'2023-01-01'",
    "updated wrong": "INSERT INTO {t} (a, day) VALUES (1, DATE'2024-05-05');\n UPDATE {t} SET b = 5",
    "merged": "MERGE INTO {t} t USING (SELECT 1 AS a, DATE'2024-01-01' AS day) s ON t.a = s.a WHEN NOT MATCHED THEN INSERT (a, day) VALUES (s.a, s.day)",
    "pruned": "INSERT INTO {t} (a, day) VALUES (1, DATE'2024-05-05');\n SELECT a FROM {t} WHERE day = DATE'2024-05-05'",
}.items():
    corpus.sql(f"generated {name}", GENERATED + text)
for kind in ("ALWAYS", "BY DEFAULT"):
    made = f"CREATE TABLE {{t}} (id BIGINT GENERATED {kind} AS IDENTITY, v STRING) USING delta;\n"
    corpus.sql(
        f"identity {kind} left out", made + "INSERT INTO {t} (v) VALUES ('a');\n SELECT count(DISTINCT id) FROM {t}"
    )
    corpus.sql(f"identity {kind} given", made + "INSERT INTO {t} VALUES (7, 'a')")
    corpus.sql(f"identity {kind} updated", made + "INSERT INTO {t} (v) VALUES ('a');\n UPDATE {t} SET id = 5")


def frame(at, text="SELECT * FROM VALUES (1, 'a', 'x'), (2, 'b', 'y') AS q(id, v, g)"):
    return at.spark.sql(text)


MORE = "SELECT 5 AS id, 'e' AS v, 'x' AS g, 1.5D AS extra"
LESS = "SELECT 5 AS id, 'x' AS g"
OTHER = "SELECT 'five' AS id, 'e' AS v, 'x' AS g"
TURNED = "SELECT 'x' AS g, 5 AS id, 'e' AS v"
for name, write in {
    "save": lambda at, f: f(at).write.format("delta").save(at.p),
    "save twice": lambda at, f: [f(at).write.format("delta").save(at.p), f(at).write.format("delta").save(at.p)][0],
    "append": lambda at, f: [f(at).write.format("delta").mode("append").save(at.p) for _ in range(2)][0],
    "ignore": lambda at, f: [f(at).write.format("delta").mode("ignore").save(at.p) for _ in range(2)][0],
    "overwrite": lambda at, f: [f(at).write.format("delta").mode("overwrite").save(at.p) for _ in range(2)][0],
    "a mode that is none": lambda at, f: f(at).write.format("delta").mode("nope").save(at.p),
    "partitioned": lambda at, f: f(at).write.format("delta").partitionBy("g").save(at.p),
    "partitioned by nothing": lambda at, f: f(at).write.format("delta").partitionBy("nope").save(at.p),
    "partitioned by all": lambda at, f: f(at).write.format("delta").partitionBy("id", "v", "g").save(at.p),
    "another partitioning": lambda at, f: [
        f(at).write.format("delta").partitionBy("g").save(at.p),
        f(at).write.format("delta").mode("append").partitionBy("v").save(at.p),
    ][0],
    "bucketed": lambda at, f: f(at).write.format("delta").bucketBy(2, "id").saveAsTable(at.t),
    "sorted": lambda at, f: f(at).write.format("delta").sortBy("id").saveAsTable(at.t),
    "clustered": lambda at, f: f(at).write.format("delta").clusterBy("id").saveAsTable(at.t),
    "a table": lambda at, f: f(at).write.format("delta").saveAsTable(at.t),
    "a table twice": lambda at, f: [f(at).write.format("delta").saveAsTable(at.t) for _ in range(2)][0],
    "a table by append": lambda at, f: [f(at).write.format("delta").mode("append").saveAsTable(at.t) for _ in range(2)][
        0
    ],
    "a table by overwrite": lambda at, f: [
        f(at).write.format("delta").mode("overwrite").saveAsTable(at.t) for _ in range(2)
    ][0],
    "a table with a path": lambda at, f: f(at).write.format("delta").option("path", at.p).saveAsTable(at.t),
    "a table with properties": lambda at, f: (
        f(at).write.format("delta").option("delta.appendOnly", "true").saveAsTable(at.t)
    ),
    "a path with properties": lambda at, f: (
        f(at).write.format("delta").option("delta.enableChangeDataFeed", "true").save(at.p)
    ),
    "insertInto": lambda at, f: [f(at).write.format("delta").saveAsTable(at.t), f(at).write.insertInto(at.t)][0],
    "insertInto overwrite": lambda at, f: [
        f(at).write.format("delta").saveAsTable(at.t),
        f(at).write.insertInto(at.t, overwrite=True),
    ][0],
    "insertInto nothing": lambda at, f: f(at).write.insertInto("nope_table"),
    "writeTo create": lambda at, f: f(at).writeTo(at.t).using("delta").create(),
    "writeTo create twice": lambda at, f: [f(at).writeTo(at.t).using("delta").create() for _ in range(2)][0],
    "writeTo createOrReplace": lambda at, f: [f(at).writeTo(at.t).using("delta").createOrReplace() for _ in range(2)][
        0
    ],
    "writeTo replace": lambda at, f: f(at).writeTo(at.t).using("delta").replace(),
    "writeTo append": lambda at, f: [f(at).writeTo(at.t).using("delta").create(), f(at).writeTo(at.t).append()][0],
    "writeTo append to nothing": lambda at, f: f(at).writeTo("nope_table").append(),
    "writeTo partitioned": lambda at, f: f(at).writeTo(at.t).using("delta").partitionedBy(f(at)["g"]).create(),
    "writeTo properties": lambda at, f: f(at).writeTo(at.t).using("delta").tableProperty("own", "1").create(),
    "mergeSchema": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, MORE).write.format("delta").mode("append").option("mergeSchema", "true").save(at.p),
    ][0],
    "no mergeSchema": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, MORE).write.format("delta").mode("append").save(at.p),
    ][0],
    "fewer columns": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, LESS).write.format("delta").mode("append").save(at.p),
    ][0],
    "another type": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, OTHER).write.format("delta").mode("append").save(at.p),
    ][0],
    "another order": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, TURNED).write.format("delta").mode("append").save(at.p),
    ][0],
    "another order into a table": lambda at, f: [
        f(at).write.format("delta").saveAsTable(at.t),
        f(at, TURNED).write.insertInto(at.t),
    ][0],
    "overwriteSchema": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, OTHER).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(at.p),
    ][0],
    "overwrite with another schema": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, OTHER).write.format("delta").mode("overwrite").save(at.p),
    ][0],
    "overwriteSchema in append": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, OTHER).write.format("delta").mode("append").option("overwriteSchema", "true").save(at.p),
    ][0],
    "replaceWhere": lambda at, f: [
        f(at).write.format("delta").partitionBy("g").save(at.p),
        f(at, "SELECT 9 AS id, 'n' AS v, 'x' AS g")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "g = 'x'")
        .save(at.p),
    ][0],
    "replaceWhere with others": lambda at, f: [
        f(at).write.format("delta").partitionBy("g").save(at.p),
        f(at).write.format("delta").mode("overwrite").option("replaceWhere", "g = 'x'").save(at.p),
    ][0],
    "replaceWhere of data": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at, "SELECT 9 AS id, 'n' AS v, 'x' AS g")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "id >= 2")
        .save(at.p),
    ][0],
    "replaceWhere and overwriteSchema": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at)
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "id = 1")
        .option("overwriteSchema", "true")
        .save(at.p),
    ][0],
    "replaceWhere in append": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at).write.format("delta").mode("append").option("replaceWhere", "id = 1").save(at.p),
    ][0],
    "replaceWhere that does not parse": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at).write.format("delta").mode("overwrite").option("replaceWhere", "id = = 1").save(at.p),
    ][0],
    "dynamic partitions": lambda at, f: [
        f(at).write.format("delta").partitionBy("g").save(at.p),
        f(at, "SELECT 9 AS id, 'n' AS v, 'x' AS g")
        .write.format("delta")
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .save(at.p),
    ][0],
    "dynamic and replaceWhere": lambda at, f: [
        f(at).write.format("delta").partitionBy("g").save(at.p),
        f(at)
        .write.format("delta")
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .option("replaceWhere", "g = 'x'")
        .save(at.p),
    ][0],
    "txn": lambda at, f: [
        f(at).write.format("delta").mode("append").option("txnAppId", "a").option("txnVersion", 1).save(at.p)
        for _ in range(2)
    ][0],
    "txn without a version": lambda at, f: (
        f(at).write.format("delta").mode("append").option("txnAppId", "a").save(at.p)
    ),
    "userMetadata": lambda at, f: [
        f(at).write.format("delta").option("userMetadata", "why").save(at.p),
        at.DeltaTable.forPath(at.spark, at.p).history().select("userMetadata"),
    ][1],
    "dataChange": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        f(at).write.format("delta").mode("overwrite").option("dataChange", "false").save(at.p),
    ][0],
    "maxRecordsPerFile": lambda at, f: [
        f(at).coalesce(1).write.format("delta").option("maxRecordsPerFile", 1).save(at.p),
        len(at.spark.read.format("delta").load(at.p).inputFiles()),
    ][1],
    "compression": lambda at, f: f(at).write.format("delta").option("compression", "gzip").save(at.p),
    "an unknown option": lambda at, f: f(at).write.format("delta").option("nope", "1").save(at.p),
    "no path": lambda at, f: f(at).write.format("delta").save(),
    "two columns of one name": lambda at, f: f(at, "SELECT 1 AS a, 2 AS A").write.format("delta").save(at.p),
    "a void column": lambda at, f: f(at, "SELECT 1 AS a, NULL AS n").write.format("delta").save(at.p),
    "no columns": lambda at, f: at.spark.range(1).select().write.format("delta").save(at.p),
    "an empty frame": lambda at, f: f(at).filter("false").write.format("delta").save(at.p),
    "a name with a space": lambda at, f: f(at, "SELECT 1 AS `a b`").write.format("delta").save(at.p),
    "an interval": lambda at, f: f(at, "SELECT 1 AS a, INTERVAL 1 DAY AS i").write.format("delta").save(at.p),
    "from itself": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        at.spark.read.format("delta").load(at.p).filter("id = 1").write.format("delta").mode("overwrite").save(at.p),
    ][0],
    "a stream of its schema": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        at.spark.readStream.format("delta").load(at.p).isStreaming,
    ][1],
    "input files": lambda at, f: [
        f(at).write.format("delta").partitionBy("g").save(at.p),
        len(at.spark.read.format("delta").load(at.p).filter("g = 'x'").inputFiles()),
    ][1],
    "read with a schema": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        at.spark.read.schema("id INT").format("delta").load(at.p).collect(),
    ][1],
    "read two paths": lambda at, f: [
        f(at).write.format("delta").save(at.p),
        at.spark.read.format("delta").load([at.p, at.p]).collect(),
    ][1],
    "read nothing": lambda at, f: at.spark.read.format("delta").load(at.p).collect(),
    "read no path": lambda at, f: at.spark.read.format("delta").load().collect(),
    "read a partition's folder": lambda at, f: [
        f(at).write.format("delta").partitionBy("g").save(at.p),
        at.spark.read.format("delta").load(at.p + "/g=x"),
    ][1],
    "read by delta in sql": lambda at, f: [f(at).write.format("delta").save(at.p), at.sql("SELECT * FROM delta.`{p}`")][
        1
    ],
    "read a format in capitals": lambda at, f: [
        f(at).write.format("DELTA").save(at.p),
        at.spark.read.format("Delta").load(at.p),
    ][1],
}.items():

    def add(name=name, write=write):
        @corpus.python(f"writer: {name}")
        def program(at):
            return write(at, frame)

    add()

for name, build in {
    "create": lambda b, at: (
        b.tableName(at.t).addColumn("id", "INT").addColumn("v", "STRING", comment="c").execute() and None
    ),
    "all of a column": lambda b, at: (
        b.tableName(at.t).addColumn("id", dataType="BIGINT", nullable=False, comment="k").execute() and None
    ),
    "generated": lambda b, at: (
        b.tableName(at.t).addColumn("a", "INT").addColumn("b", "INT", generatedAlwaysAs="a + 1").execute() and None
    ),
    "identity": lambda b, at: (
        b.tableName(at.t)
        .addColumn("id", "BIGINT", generatedByDefaultAs=at.engine.IdentityGenerator(start=5, step=2))
        .addColumn("v", "STRING")
        .execute()
        and None
    ),
    "addColumns": lambda b, at: b.tableName(at.t).addColumns(at.spark.range(1).schema).execute() and None,
    "location": lambda b, at: b.location(at.p).addColumn("id", "INT").execute() and None,
    "both": lambda b, at: (
        b.tableName(at.t)
        .location(at.p)
        .addColumn("id", "INT")
        .comment("words")
        .property("own", "1")
        .partitionedBy("id")
        .execute()
        and None
    ),
    "clusterBy": lambda b, at: (
        b.tableName(at.t).addColumn("id", "INT").addColumn("v", "STRING").clusterBy("id").execute() and None
    ),
    "neither": lambda b, at: b.addColumn("id", "INT").execute(),
    "a type that is none": lambda b, at: b.tableName(at.t).addColumn("id", "nope").execute(),
    "a number as type": lambda b, at: b.tableName(at.t).addColumn("id", 5).execute(),
    "a number as name": lambda b, at: b.tableName(5),
    "a number as location": lambda b, at: b.location(5),
    "a number as comment": lambda b, at: b.comment(5),
    "a number as property": lambda b, at: b.property("a", 5),
    "a number as partition": lambda b, at: b.partitionedBy(5),
    "a nullable of text": lambda b, at: b.addColumn("id", "INT", nullable="no"),
    "a number as generation": lambda b, at: b.addColumn("id", "INT", generatedAlwaysAs=5),
}.items():
    for how in ("create", "createIfNotExists", "replace", "createOrReplace"):
        if how != "create" and name not in ("create", "location"):
            continue

        def add(name=name, build=build, how=how):
            @corpus.python(f"builder: {how}, {name}")
            def program(at):
                build(getattr(at.DeltaTable, how)(at.spark), at)

        add()
        if name == "create":

            def again(build=build, how=how):
                @corpus.python(f"builder: {how}, a second time")
                def program(at):
                    at.sql("CREATE TABLE {t} (other INT) USING delta")
                    build(getattr(at.DeltaTable, how)(at.spark), at)

            again()
