"""Statements with parameters, with aggregates where no row has one, over folders of other files, with collations."""

from __future__ import annotations

import os

from differ.programs import Corpus, Place

corpus = Corpus("statements")

MADE = "CREATE TABLE {t} (a INT, b INT, c INT) USING delta;\n INSERT INTO {t} VALUES (1, 2, 3), (2, 3, 4);\n"
for name, value in {
    "max": "max({q}c)",
    "count": "count(*)",
    "sum": "sum({q}c) + 1",
    "window": "row_number() OVER (ORDER BY {q}a)",
    "generator": "explode(array(1, 2))",
}.items():
    plain, both = value.replace("{q}", ""), value.replace("{q}", "t.")
    steps = [
        f"UPDATE {{t}} SET b = {plain}",
        f"UPDATE {{t}} SET b = {plain} WHERE a = 1",
        f"UPDATE {{t}} SET b = 1 WHERE {plain} = 1",
        f"DELETE FROM {{t}} WHERE {plain} = 1",
        f"MERGE INTO {{t}} t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = {both}",
        f"MERGE INTO {{t}} t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED AND {both} = 1 THEN UPDATE SET b = 1",
        f"MERGE INTO {{t}} t USING (SELECT 1 AS a) s ON t.a = s.a AND {both} = 1 WHEN MATCHED THEN DELETE",
        f"MERGE INTO {{t}} t USING (SELECT 1 AS a) s ON t.a = s.a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET b = {both}",
        f"MERGE INTO {{t}} t USING {{t}} s ON t.a = s.a + 9 WHEN NOT MATCHED THEN INSERT (a) VALUES ({both.replace('t.', 's.')})",
    ]
    corpus.sql(f"an aggregate, {name}", MADE + ";\n".join(steps))

PARAMETERS = {
    "a column": ("ALTER TABLE {t} ADD COLUMN IDENTIFIER(:n) INT", {"n": "d"}),
    "a property": ("ALTER TABLE {t} SET TBLPROPERTIES ('k' = :v)", {"v": "w"}),
    "a comment": ("ALTER TABLE {t} ADD COLUMN d INT COMMENT :c", {"c": "note"}),
    "a comment on the table": ("COMMENT ON TABLE {t} IS :c", {"c": "note"}),
    "a type": ("ALTER TABLE {t} ADD COLUMN d DECIMAL(:p, :s)", {"p": 10, "s": 2}),
    "a joined literal": ("ALTER TABLE {t} ADD COLUMN d INT COMMENT 'a' :c", {"c": "note"}),
    "the table": ("ALTER TABLE IDENTIFIER(:t) ADD COLUMN d INT", {"t": "{t}"}),
    "a new table": (
        "CREATE TABLE {t}_m (IDENTIFIER(:n) INT, b DECIMAL(:p, 2)) USING delta COMMENT :c TBLPROPERTIES ('z' = :z)",
        {"n": "q", "p": 12, "c": "note", "z": "five"},
    ),
    "a default": ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = :v)", {"v": "true"}),
    "a renamed column": ("ALTER TABLE {t} RENAME COLUMN a TO IDENTIFIER(:n)", {"n": "z"}),
    "a constraint": ("ALTER TABLE {t} ADD CONSTRAINT k CHECK (a > :v)", {"v": 0}),
    "a partition": ("INSERT OVERWRITE {t} VALUES (:v, :v, :v)", {"v": 7}),
    "one too few": ("ALTER TABLE {t} SET TBLPROPERTIES ('k' = :v, 'l' = :w)", {"v": "w"}),
}


def _parameters(name: str, text: str, values: dict[str, object]) -> None:
    @corpus.python(f"parameters, {name}")
    def run(at: Place) -> None:
        for statement in MADE.strip().rstrip(";").split(";\n"):
            at.sql(statement)
        given = {key: at.named(value) if isinstance(value, str) else value for key, value in values.items()}
        at.attempt(lambda: at.spark.sql(at.named(text), args=given))
        at.tell(at.sql("DESCRIBE TABLE {t}"))
        if name == "a new table":
            at.tell(at.sql("DESCRIBE TABLE {t}_m"))
            at.tell(at.sql("SELECT * FROM {t}_m"))
        at.sql("DROP TABLE {t}")
        for statement in MADE.strip().rstrip(";").split(";\n"):
            at.sql(statement)
        if name != "a new table":
            using = ", ".join(f"{value!r} AS {key}" for key, value in given.items())
            quoted = at.named(text).replace("'", "\\'")
            at.attempt(lambda: at.spark.sql(f"EXECUTE IMMEDIATE '{quoted}' USING {using}"))
            at.tell(at.sql("DESCRIBE TABLE {t}"))


for name, (text, values) in PARAMETERS.items():
    _parameters(name, text, values)

TAKES = {
    "created": lambda at, path: at.spark.sql(f"CREATE TABLE {at.t} (a INT) USING delta LOCATION '{path}'"),
    "created as": lambda at, path: at.spark.sql(f"CREATE TABLE {at.t} USING delta LOCATION '{path}' AS SELECT 1 AS a"),
    "replaced": lambda at, path: at.spark.sql(f"CREATE OR REPLACE TABLE {at.t} (a INT) USING delta LOCATION '{path}'"),
    "replaced as": lambda at, path: at.spark.sql(
        f"CREATE OR REPLACE TABLE {at.t} USING delta LOCATION '{path}' AS SELECT 1 AS a"
    ),
    "created as by path": lambda at, path: at.spark.sql(f"CREATE TABLE delta.`{path}` USING delta AS SELECT 1 AS a"),
    "saved": lambda at, path: at.spark.range(2).write.format("delta").option("path", path).saveAsTable(at.t),
    "appended": lambda at, path: (
        at.spark.range(2).write.format("delta").mode("append").option("path", path).saveAsTable(at.t)
    ),
    "written": lambda at, path: at.spark.range(2).writeTo(at.t).using("delta").option("path", path).create(),
    "saved to a path": lambda at, path: at.spark.range(2).write.format("delta").save(path),
}


def _taken(name: str) -> None:
    @corpus.python(f"other files, {name}")
    def run(at: Place) -> None:
        at.spark.range(3).write.parquet(f"{at.d}/lake")
        at.attempt(lambda: TAKES[name](at, f"{at.d}/lake"))
        at.tell(sorted(item for item in os.listdir(f"{at.d}/lake") if item.startswith("_")))
        at.tell(at.spark.catalog.tableExists(at.t))


for name in TAKES:
    _taken(name)
