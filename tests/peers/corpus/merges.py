"""MERGE: clauses, conditions, sources, evolution, errors."""

from __future__ import annotations

import itertools

from differ.programs import Corpus
from pyspark.sql import functions as F

corpus = Corpus("merge")

MADE = """
    CREATE TABLE {t} (id INT, v STRING, n INT) USING delta;
    INSERT INTO {t} VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, NULL);
    CREATE OR REPLACE TEMP VIEW s AS SELECT * FROM VALUES (2, 'B', 200), (3, 'C', 300), (4, 'D', 400) AS s(id, v, n);
"""
MATCHED = (
    "",
    "WHEN MATCHED THEN UPDATE SET *",
    "WHEN MATCHED AND s.id = 2 THEN DELETE",
    "WHEN MATCHED AND t.v IS NULL THEN UPDATE SET v = s.v WHEN MATCHED THEN DELETE",
    "WHEN MATCHED THEN UPDATE SET n = t.n + s.n, v = concat(t.v, s.v)",
)
NOT_MATCHED = (
    "",
    "WHEN NOT MATCHED THEN INSERT *",
    "WHEN NOT MATCHED AND s.n > 1000 THEN INSERT (id) VALUES (s.id)",
    "WHEN NOT MATCHED BY TARGET THEN INSERT (id, v) VALUES (s.id + 10, 'new')",
)
BY_SOURCE = (
    "",
    "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "WHEN NOT MATCHED BY SOURCE AND t.n > 100 THEN UPDATE SET v = 'alone'",
)
for number, clauses in enumerate(itertools.product(MATCHED, NOT_MATCHED, BY_SOURCE)):
    if any(clauses):
        corpus.sql(f"clauses {number}", f"{MADE} MERGE INTO {{t}} t USING s ON t.id = s.id {' '.join(clauses)}")

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
for name, text in {
    "two source rows for one": "MERGE INTO {t} t USING (SELECT 2 AS id, v, n FROM s) s ON t.id = s.id " + UPSERT,
    "two source rows for one delete": "MERGE INTO {t} t USING (SELECT 2 AS id FROM s) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "two source rows, one passes": "MERGE INTO {t} t USING (SELECT 2 AS id, v, n FROM s) s ON t.id = s.id "
    "WHEN MATCHED AND s.v = 'B' THEN UPDATE SET *",
    "no clause": "MERGE INTO {t} t USING s ON t.id = s.id",
    "a clause behind one without a condition": "MERGE INTO {t} t USING s ON t.id = s.id WHEN MATCHED THEN DELETE "
    "WHEN MATCHED AND s.id = 2 THEN UPDATE SET *",
    "insert without all columns": "MERGE INTO {t} t USING (SELECT 9 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "update of a column that is not there": "MERGE INTO {t} t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nope = 1",
    "insert of a column that is not there": "MERGE INTO {t} t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (nope) VALUES (1)",
    "a column twice in update": "MERGE INTO {t} t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'a', v = 'b'",
    "a column twice in insert": "MERGE INTO {t} t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, id) VALUES (1, 2)",
    "more values than columns": "MERGE INTO {t} t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2)",
    "an ambiguous name": "MERGE INTO {t} t USING s ON id = s.id WHEN MATCHED THEN DELETE",
    "an unknown name": "MERGE INTO {t} t USING s ON t.id = s.nope WHEN MATCHED THEN DELETE",
    "a source that is not there": "MERGE INTO {t} t USING nope_source s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "a table that is not there": "MERGE INTO nope_table t USING s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "a source column in not matched by source": "MERGE INTO {t} t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND s.id = 1 THEN DELETE",
    "a target column in an insert": "MERGE INTO {t} t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)",
    "an aggregate in a condition": "MERGE INTO {t} t USING s ON max(t.id) = s.id WHEN MATCHED THEN DELETE",
    "a subquery in a condition": "MERGE INTO {t} t USING s ON t.id = (SELECT max(id) FROM s) WHEN MATCHED THEN DELETE",
    "rand in a condition": "MERGE INTO {t} t USING s ON t.id = s.id AND rand() < 2 WHEN MATCHED THEN DELETE",
    "true": "MERGE INTO {t} t USING (SELECT 5 AS k) s ON true WHEN MATCHED THEN UPDATE SET n = s.k",
    "false": "MERGE INTO {t} t USING s ON false WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    "null": "MERGE INTO {t} t USING s ON NULL WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    "null-safe keys": "MERGE INTO {t} t USING (SELECT CAST(NULL AS STRING) AS v) s ON t.v <=> s.v WHEN MATCHED THEN DELETE",
    "null keys": "MERGE INTO {t} t USING (SELECT CAST(NULL AS STRING) AS v) s ON t.v = s.v WHEN MATCHED THEN DELETE",
    "an empty source": "MERGE INTO {t} t USING (SELECT * FROM s WHERE false) s ON t.id = s.id " + UPSERT,
    "itself": "MERGE INTO {t} t USING {t} s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET v = s.v",
    "a key as text": "MERGE INTO {t} t USING (SELECT '2' AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "except": "MERGE INTO {t} t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * EXCEPT (v)",
    "no alias": "MERGE INTO {t} USING s ON {t}.id = s.id WHEN MATCHED THEN DELETE",
    "a with clause": "WITH c AS (SELECT * FROM s) MERGE INTO {t} t USING c ON t.id = c.id WHEN MATCHED THEN DELETE",
    "insert default": "MERGE INTO {t} t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, DEFAULT)",
    "values as source": "MERGE INTO {t} t USING (VALUES (1, 'q')) AS s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v",
    "a range": "MERGE INTO {t} t USING s ON t.id < s.id AND s.id = 4 WHEN MATCHED THEN UPDATE SET n = s.n",
    "other types in insert": "MERGE INTO {t} t USING (SELECT 9L AS id, 8 AS v, '7' AS n) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "text into a number": "MERGE INTO {t} t USING (SELECT 9 AS id, 'v' AS v, 'x' AS n) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
}.items():
    corpus.sql(name, f"{MADE} {text}")

EVOLVED = {
    "a new column": "SELECT 2 AS id, 'B' AS v, 5 AS n, 1.5D AS extra UNION ALL SELECT 9, 'Z', 6, 2.5D",
    "a new struct": "SELECT 2 AS id, 'B' AS v, 5 AS n, named_struct('a', 1) AS extra",
    "columns in another order": "SELECT 1.5D AS extra, 5 AS n, 2 AS id, 'B' AS v",
    "fewer columns": "SELECT 2 AS id, 'B' AS v",
    "fewer and new": "SELECT 2 AS id, 1 AS extra UNION ALL SELECT 9, 2",
    "another type": "SELECT 2 AS id, 'B' AS v, 5L AS n",
    "another case": "SELECT 2 AS ID, 'B' AS V, 5 AS N, 1 AS Extra",
}
for name, source in EVOLVED.items():
    for how, clauses in {
        "upsert": UPSERT,
        "update": "WHEN MATCHED THEN UPDATE SET *",
        "insert": "WHEN NOT MATCHED THEN INSERT *",
        "named": "WHEN MATCHED THEN UPDATE SET extra = s.extra WHEN NOT MATCHED THEN INSERT (id, extra) VALUES (s.id, s.extra)",
    }.items():
        corpus.sql(
            f"evolution, {name}, {how}",
            f"{MADE} MERGE WITH SCHEMA EVOLUTION INTO {{t}} t USING ({source}) s ON t.id = s.id {clauses}",
        )
    corpus.sql(
        f"evolution by setting, {name}",
        f"{MADE} MERGE INTO {{t}} t USING ({source}) s ON t.id = s.id {UPSERT}",
        spark__databricks__delta__schema__autoMerge__enabled="true",
    )
    corpus.sql(f"no evolution, {name}", f"{MADE} MERGE INTO {{t}} t USING ({source}) s ON t.id = s.id {UPSERT}")

NESTED = """
    CREATE TABLE {t} (id INT, s STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<a: INT>>) USING delta;
    INSERT INTO {t} VALUES (1, named_struct('a', 1, 'b', 'x'), array(named_struct('a', 1)));
"""
for name, source in {
    "a new field": "SELECT 1 AS id, named_struct('a', 5, 'b', 'y', 'c', 2) AS s, array(named_struct('a', 3)) AS l",
    "fewer fields": "SELECT 1 AS id, named_struct('a', 5) AS s, array(named_struct('a', 3)) AS l",
    "fields in another order": "SELECT 1 AS id, named_struct('b', 'y', 'a', 5) AS s, array(named_struct('a', 3)) AS l",
    "a new field in an array": "SELECT 1 AS id, named_struct('a', 5, 'b', 'y') AS s, array(named_struct('a', 3, 'z', 1)) AS l",
    "a null struct": "SELECT 1 AS id, CAST(NULL AS STRUCT<a: INT, b: STRING>) AS s, array(named_struct('a', 3)) AS l",
}.items():
    corpus.sql(
        f"nested, {name}, evolution",
        f"{NESTED} MERGE WITH SCHEMA EVOLUTION INTO {{t}} t USING ({source}) s ON t.id = s.id {UPSERT}",
    )
    corpus.sql(f"nested, {name}", f"{NESTED} MERGE INTO {{t}} t USING ({source}) s ON t.id = s.id {UPSERT}")
corpus.sql(
    "nested, one field set",
    f"{NESTED} MERGE INTO {{t}} t USING (SELECT 1 AS id, 7 AS k) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET t.s.a = q.k",
)

for name, property_ in {
    "vectors": "enableDeletionVectors",
    "a feed": "enableChangeDataFeed",
    "tracking": "enableRowTracking",
}.items():
    made = MADE.replace("USING delta;", f"USING delta TBLPROPERTIES ('delta.{property_}' = 'true');", 1)
    for number, clauses in enumerate(
        (
            UPSERT,
            "WHEN MATCHED AND s.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'u' WHEN NOT MATCHED THEN INSERT *",
            "WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "WHEN MATCHED THEN UPDATE SET n = 1 WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = 2",
        )
    ):
        corpus.sql(f"{name} {number}", f"{made} MERGE INTO {{t}} t USING s ON t.id = s.id {clauses}")


@corpus.python("by the API, every clause")
def every_clause(at):
    at.sql("CREATE TABLE {t} (id INT, v STRING) USING delta")
    at.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    source = at.spark.sql("SELECT * FROM VALUES (1, 'x'), (2, 'y'), (9, 'z') AS s(id, v)")
    table = at.DeltaTable.forName(at.spark, at.t)
    return (
        table.alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedUpdate("s.id = 1", {"v": "s.v"})
        .whenMatchedDelete("s.id = 2")
        .whenNotMatchedInsert("s.id > 5", {"id": "s.id", "v": "'in'"})
        .whenNotMatchedBySourceUpdate("t.id = 3", {"v": "'alone'"})
        .whenNotMatchedBySourceDelete("t.id = 4")
        .execute()
    )


@corpus.python("by the API, columns")
def columns(at):

    at.sql("CREATE TABLE {t} (id INT, v STRING) USING delta")
    at.sql("INSERT INTO {t} VALUES (1, 'a')")
    source = at.spark.sql("SELECT 1 AS id, 'x' AS v UNION ALL SELECT 2, 'y'")
    table = at.DeltaTable.forName(at.spark, at.t)
    return (
        table.alias("t")
        .merge(source.alias("s"), F.col("t.id") == F.col("s.id"))
        .whenMatchedUpdate(set={"v": F.concat(F.col("t.v"), F.col("s.v"))})
        .whenNotMatchedInsert(values={"id": F.col("s.id"), "v": F.lit("n")})
        .execute()
    )


def refused(name, build):
    @corpus.python(f"by the API, {name}")
    def program(at):
        at.sql("CREATE TABLE {t} (id INT, v STRING) USING delta")
        source = at.spark.sql("SELECT 1 AS id, 'x' AS v")
        return build(at.DeltaTable.forName(at.spark, at.t).alias("t"), source.alias("s"))


refused("no clause", lambda table, source: table.merge(source, "t.id = s.id").execute())
refused("a number as condition", lambda table, source: table.merge(source, 1))
refused("a text as source", lambda table, source: table.merge("source", "t.id = s.id"))
refused("a list to set", lambda table, source: table.merge(source, "t.id = s.id").whenMatchedUpdate(set=["v"]))
refused("a number to set", lambda table, source: table.merge(source, "t.id = s.id").whenMatchedUpdate(set={"v": 1}))
refused("a number as column", lambda table, source: table.merge(source, "t.id = s.id").whenMatchedUpdate(set={1: "v"}))
refused("nothing to set", lambda table, source: table.merge(source, "t.id = s.id").whenMatchedUpdate())
refused("no values", lambda table, source: table.merge(source, "t.id = s.id").whenNotMatchedInsert())
refused("a number as clause's condition", lambda table, source: table.merge(source, "t.id = s.id").whenMatchedDelete(5))


def merge_into(at, build, source="SELECT * FROM VALUES (1, 'z'), (9, 'n') AS s(id, v)"):
    at.sql("CREATE TABLE {t} (id INT, v STRING) USING delta")
    at.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    frame = at.spark.sql(source).alias("s")
    return build(frame.mergeInto(at.t, F.expr(f"{at.t}.id = s.id"))).merge()


for name, build in {
    "all": lambda merge: merge.whenMatched().updateAll().whenNotMatched().insertAll(),
    "columns": lambda merge: (
        merge.whenMatched().update({"v": F.expr("s.v")}).whenNotMatched().insert({"id": F.expr("s.id")})
    ),
    "conditions": lambda merge: (
        merge.whenMatched(F.expr("s.v = 'z'")).delete().whenNotMatched(F.expr("s.id > 10")).insertAll()
    ),
    "by source": lambda merge: merge.whenNotMatchedBySource().delete().whenMatched().updateAll(),
    "nothing": lambda merge: merge,
    "a column that is not there": lambda merge: merge.whenMatched().update({"nope": F.expr("s.v")}),
    "evolution": lambda merge: merge.withSchemaEvolution().whenNotMatched().insertAll(),
}.items():
    corpus.python(f"mergeInto {name}")(lambda at, build=build: merge_into(at, build))
MORE = "SELECT 9 AS id, 'n' AS v, 1.5D AS extra"
corpus.python("mergeInto more columns")(
    lambda at: merge_into(at, lambda merge: merge.withSchemaEvolution().whenNotMatched().insertAll(), MORE)
)
