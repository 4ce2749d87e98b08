"""Evolution of the schema: by writers, by INSERT, by MERGE; of columns, structs, arrays and maps."""

from __future__ import annotations

from differ.programs import Corpus

corpus = Corpus("evolution")

AUTO = {"spark__databricks__delta__schema__autoMerge__enabled": "true"}
FLAT = """
    CREATE TABLE {t} (id INT, v STRING) USING delta;
    INSERT INTO {t} VALUES (1, 'a'), (2, 'b');
"""
INSERTS = {
    "a value more": "INSERT INTO {t} SELECT 3, 'c', 1.5D AS extra",
    "a value more without a name": "INSERT INTO {t} VALUES (3, 'c', 1.5D)",
    "a value less": "INSERT INTO {t} SELECT 3",
    "a new column by name": "INSERT INTO {t} BY NAME SELECT 'c' AS v, 3 AS id, 1 AS extra",
    "fewer and new by name": "INSERT INTO {t} BY NAME SELECT 3 AS id, 1 AS extra",
    "a column that is named and new": "INSERT INTO {t} (id, extra) VALUES (3, 1)",
    "an overwrite with more": "INSERT OVERWRITE {t} SELECT 3, 'c', 1 AS extra",
    "other names by position": "INSERT INTO {t} SELECT 3 AS a, 'c' AS b, 1 AS extra",
    "names in another order": "INSERT INTO {t} SELECT 'c' AS v, 3 AS id, 1 AS extra",
    "replace where with more": "INSERT INTO {t} REPLACE WHERE id = 1 SELECT 1, 'c', 1 AS extra",
    "a larger type": "INSERT INTO {t} SELECT 3000000000L, 'c'",
}
for name, text in INSERTS.items():
    corpus.sql(f"insert by setting, {name}", f"{FLAT} {text}", **AUTO)
    corpus.sql(f"insert without setting, {name}", f"{FLAT} {text}")

NESTED = """
    CREATE TABLE {t} (id INT, s STRUCT<a: INT, n: STRUCT<x: INT>>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>) USING delta;
    INSERT INTO {t} VALUES (1, named_struct('a', 1, 'n', named_struct('x', 1)), array(named_struct('a', 1)), map('k', named_struct('a', 1))),
      (2, NULL, NULL, NULL);
"""
SOURCES = {
    "a field in a struct": "SELECT 1 AS id, named_struct('a', 5, 'n', named_struct('x', 2), 'c', 3) AS s, array(named_struct('a', 6)) AS l, map('k', named_struct('a', 7)) AS m",
    "a field in an inner struct": "SELECT 1 AS id, named_struct('a', 5, 'n', named_struct('x', 2, 'y', 3)) AS s, array(named_struct('a', 6)) AS l, map('k', named_struct('a', 7)) AS m",
    "a field in an array": "SELECT 1 AS id, named_struct('a', 5, 'n', named_struct('x', 2)) AS s, array(named_struct('a', 6, 'b', 4), NULL) AS l, map('k', named_struct('a', 7)) AS m",
    "a field in a map": "SELECT 1 AS id, named_struct('a', 5, 'n', named_struct('x', 2)) AS s, array(named_struct('a', 6)) AS l, map('k', named_struct('a', 7, 'b', 4)) AS m",
    "a field in front": "SELECT 1 AS id, named_struct('c', 3, 'a', 5, 'n', named_struct('y', 1, 'x', 2)) AS s, array(named_struct('b', 4, 'a', 6)) AS l, map('k', named_struct('b', 4, 'a', 7)) AS m",
    "fields missing": "SELECT 1 AS id, named_struct('a', 5) AS s, array(named_struct('b', 4)) AS l, map('k', named_struct('b', 4)) AS m",
    "another type inside": "SELECT 1 AS id, named_struct('a', '5', 'n', named_struct('x', 2L)) AS s, array(named_struct('a', '6')) AS l, map('k', named_struct('a', 7L)) AS m",
}
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
NAMED = "WHEN MATCHED THEN UPDATE SET s = q.s, l = q.l, m = q.m WHEN NOT MATCHED THEN INSERT (id, s, l, m) VALUES (q.id, q.s, q.l, q.m)"
for name, source in SOURCES.items():
    both = f"({source} UNION ALL SELECT 9, s, l, m FROM ({source}))"
    merge = f"INTO {{t}} t USING {both} q ON t.id = q.id"
    corpus.sql(f"merge, {name}, all", f"{NESTED} MERGE WITH SCHEMA EVOLUTION {merge} {UPSERT}")
    corpus.sql(f"merge, {name}, named", f"{NESTED} MERGE WITH SCHEMA EVOLUTION {merge} {NAMED}")
    corpus.sql(f"merge, {name}, by setting", f"{NESTED} MERGE {merge} {UPSERT}", **AUTO)
    corpus.sql(f"merge, {name}, without", f"{NESTED} MERGE {merge} {UPSERT}")
    corpus.sql(f"insert, {name}, by setting", f"{NESTED} INSERT INTO {{t}} {source}", **AUTO)
    corpus.sql(f"insert, {name}, without", f"{NESTED} INSERT INTO {{t}} {source}")

FLAT_SOURCE = "(SELECT 2 AS id, 'B' AS v, 1.5D AS extra, 7 AS other UNION ALL SELECT 9, 'Z', 2.5D, 8)"
for name, clauses in {
    "one new set, one new inserted": "WHEN MATCHED THEN UPDATE SET extra = q.extra WHEN NOT MATCHED THEN INSERT (id, other) VALUES (q.id, q.other)",
    "a new column set from another": "WHEN MATCHED THEN UPDATE SET extra = q.other",
    "a new column set to a constant": "WHEN MATCHED THEN UPDATE SET extra = 5",
    "a new column set to an expression": "WHEN MATCHED THEN UPDATE SET extra = q.extra + 1",
    "a new column with the table's name": "WHEN MATCHED THEN UPDATE SET t.extra = q.extra",
    "a column that nobody has": "WHEN MATCHED THEN UPDATE SET nope = q.extra",
    "a new column by source": "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET extra = 1D",
    "a new column in another case": "WHEN MATCHED THEN UPDATE SET EXTRA = q.Extra",
    "delete only": "WHEN MATCHED THEN DELETE",
    "known columns alone": "WHEN MATCHED THEN UPDATE SET v = q.v",
    "all for update, named for insert": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (id, v) VALUES (q.id, q.v)",
    "named for update, all for insert": "WHEN MATCHED THEN UPDATE SET v = q.v WHEN NOT MATCHED THEN INSERT *",
    "a condition": "WHEN MATCHED AND q.extra > 100 THEN UPDATE SET * WHEN NOT MATCHED AND q.other > 100 THEN INSERT *",
    "all and by source": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 'alone'",
    "all and deletes": "WHEN MATCHED AND q.id = 2 THEN DELETE WHEN NOT MATCHED THEN INSERT *",
}.items():
    text = f"INTO {{t}} t USING {FLAT_SOURCE} q ON t.id = q.id {clauses}"
    corpus.sql(f"merge of columns, {name}", f"{FLAT} MERGE WITH SCHEMA EVOLUTION {text}")
    corpus.sql(f"merge of columns, {name}, without", f"{FLAT} MERGE {text}")
for name, properties in {
    "a feed": "'delta.enableChangeDataFeed' = 'true'",
    "vectors": "'delta.enableDeletionVectors' = 'true'",
    "column mapping": "'delta.columnMapping.mode' = 'name'",
    "wider types": "'delta.enableTypeWidening' = 'true'",
}.items():
    made = FLAT.replace("USING delta;", f"USING delta TBLPROPERTIES ({properties});", 1)
    text = f"INTO {{t}} t USING {FLAT_SOURCE} q ON t.id = q.id"
    corpus.sql(f"merge with {name}", f"{made} MERGE WITH SCHEMA EVOLUTION {text} {UPSERT}", history=False)
    corpus.sql(
        f"merge with {name}, named",
        f"{made} MERGE WITH SCHEMA EVOLUTION {text} WHEN MATCHED THEN UPDATE SET extra = q.extra",
        history=False,
    )
corpus.sql(
    "merge, wider types, set to a larger one",
    FLAT.replace("USING delta;", "USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true');", 1)
    + f"MERGE WITH SCHEMA EVOLUTION INTO {{t}} t USING (SELECT 3000000000L AS id, 'v' AS v) q ON t.id = q.id {UPSERT}",
    history=False,
)
corpus.sql(
    "merge, a new field set by its path",
    f"{NESTED} MERGE WITH SCHEMA EVOLUTION INTO {{t}} t USING ({SOURCES['a field in a struct']}) q ON t.id = q.id "
    "WHEN MATCHED THEN UPDATE SET s.c = q.s.c",
)

MORE = "SELECT 3 AS id, 'c' AS v, 1.5D AS extra"
INNER = "SELECT 3 AS id, named_struct('a', 5, 'n', named_struct('x', 2), 'c', 3) AS s"
for name, made, rows in (("more columns", FLAT, MORE), ("a field more", NESTED, INNER)):
    for how, write in {
        "append": lambda frame, at: frame.write.format("delta").mode("append").saveAsTable(at.t),
        "writeTo": lambda frame, at: frame.writeTo(at.t).append(),
        "insertInto": lambda frame, at: frame.write.insertInto(at.t),
        "overwrite": lambda frame, at: frame.write.format("delta").mode("overwrite").saveAsTable(at.t),
        "insertInto overwrite": lambda frame, at: frame.write.insertInto(at.t, overwrite=True),
        "append with the option": lambda frame, at: (
            frame.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(at.t)
        ),
        "insertInto with the option": lambda frame, at: frame.write.option("mergeSchema", "true").insertInto(at.t),
        "writeTo with the option": lambda frame, at: frame.writeTo(at.t).option("mergeSchema", "true").append(),
    }.items():

        def add(name=name, made=made, rows=rows, how=how, write=write):
            def program(at):
                for statement in made.strip().rstrip(";").split(";\n"):
                    at.sql(statement)
                return write(at.spark.sql(rows), at)

            corpus.python(f"writer by setting, {how}, {name}", history=False, **AUTO)(program)
            corpus.python(f"writer without setting, {how}, {name}", history=False)(program)

        add()
