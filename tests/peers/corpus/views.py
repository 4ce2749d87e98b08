"""Views of every kind over a table, read before and after each change of its columns."""

from __future__ import annotations

from differ.programs import Corpus, Place

corpus = Corpus("views")

MADE = """
    CREATE TABLE {t} (a TINYINT, b STRING, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<m: INT, n: INT>>) USING delta
      TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true');
    INSERT INTO {t} VALUES (1, 'one', named_struct('x', 10, 'y', 'ten'), array(named_struct('m', 1, 'n', 2))), (2, NULL, NULL, NULL);
"""
KINDS = {
    "star": "CREATE VIEW {t}_star AS SELECT * FROM {t}",
    "named": "CREATE VIEW {t}_named AS SELECT b, a, s.x AS sx FROM {t}",
    "listed": "CREATE VIEW {t}_listed (p, q, r, u) AS SELECT * FROM {t}",
    "binding": "CREATE VIEW {t}_binding WITH SCHEMA BINDING AS SELECT * FROM {t}",
    "compensation": "CREATE VIEW {t}_compensation WITH SCHEMA COMPENSATION AS SELECT * FROM {t}",
    "types": "CREATE VIEW {t}_types WITH SCHEMA TYPE EVOLUTION AS SELECT * FROM {t}",
    "evolution": "CREATE VIEW {t}_evolution WITH SCHEMA EVOLUTION AS SELECT * FROM {t}",
    "nested": "CREATE VIEW {t}_nested AS SELECT * FROM {t}_star",
    "cte": "CREATE VIEW {t}_cte AS WITH q AS (SELECT * FROM {t}) SELECT q.*, 1 AS one FROM q",
    "joined": "CREATE VIEW {t}_joined AS SELECT l.*, r.b AS other FROM {t} l JOIN {t} r ON l.a = r.a WHERE l.a IN (SELECT a FROM {t})",
    "counted": "CREATE VIEW {t}_counted AS SELECT a, count(*) AS n, max(b) AS m FROM {t} GROUP BY a",
    "old": "CREATE VIEW {t}_old AS SELECT * FROM {t} VERSION AS OF 1",
}
TEMPORARY = {
    "tv_star": "CREATE OR REPLACE TEMP VIEW tv_star AS SELECT * FROM {t}",
    "tv_named": "CREATE OR REPLACE TEMP VIEW tv_named AS SELECT b, a FROM {t}",
    "tv_listed": "CREATE OR REPLACE TEMP VIEW tv_listed (p, q, r, u) AS SELECT * FROM {t}",
    "tv_nested": "CREATE OR REPLACE TEMP VIEW tv_nested AS SELECT * FROM tv_star",
    "tv_over": "CREATE OR REPLACE TEMP VIEW tv_over AS SELECT * FROM {t}_star",
}
CHANGES = {
    "nothing": "SELECT 1",
    "b first": "ALTER TABLE {t} ALTER COLUMN b FIRST",
    "a after s": "ALTER TABLE {t} ALTER COLUMN a AFTER s",
    "a renamed": "ALTER TABLE {t} RENAME COLUMN a TO z",
    "a renamed in case": "ALTER TABLE {t} RENAME COLUMN a TO a2; ALTER TABLE {t} RENAME COLUMN a2 TO A",
    "b dropped": "ALTER TABLE {t} DROP COLUMN b",
    "a and b swapped": "ALTER TABLE {t} RENAME COLUMN a TO z; ALTER TABLE {t} RENAME COLUMN b TO a; ALTER TABLE {t} RENAME COLUMN z TO b",
    "c added": "ALTER TABLE {t} ADD COLUMN c INT",
    "c added first": "ALTER TABLE {t} ADD COLUMN c INT FIRST",
    "c added after a": "ALTER TABLE {t} ADD COLUMNS (c INT AFTER a, d STRING)",
    "b dropped and added": "ALTER TABLE {t} DROP COLUMN b; ALTER TABLE {t} ADD COLUMN b STRING",
    "b dropped and added as a number": "ALTER TABLE {t} DROP COLUMN b; ALTER TABLE {t} ADD COLUMN b INT FIRST",
    "a widened": "ALTER TABLE {t} ALTER COLUMN a TYPE INT",
    "x widened": "ALTER TABLE {t} ALTER COLUMN s.x TYPE BIGINT",
    "s.z added": "ALTER TABLE {t} ADD COLUMN s.z INT",
    "s.z added first": "ALTER TABLE {t} ADD COLUMN s.z INT FIRST",
    "s.y first": "ALTER TABLE {t} ALTER COLUMN s.y FIRST",
    "s.x renamed": "ALTER TABLE {t} RENAME COLUMN s.x TO w",
    "s.y dropped": "ALTER TABLE {t} DROP COLUMN s.y",
    "l.n first": "ALTER TABLE {t} ALTER COLUMN l.element.n FIRST",
    "l.k added": "ALTER TABLE {t} ADD COLUMN l.element.k INT",
    "not null": "DELETE FROM {t} WHERE b IS NULL; ALTER TABLE {t} ADD CONSTRAINT c CHECK (a > 0)",
    "replaced": "CREATE OR REPLACE TABLE {t} (b STRING, a TINYINT) USING delta; INSERT INTO {t} VALUES ('new', 7)",
    "replaced by other types": "CREATE OR REPLACE TABLE {t} (a STRING, b INT, s INT, l INT) USING delta; INSERT INTO {t} VALUES ('new', 7, 8, 9)",
    "dropped": "DROP TABLE {t}",
    "made again": "DROP TABLE {t}; CREATE TABLE {t} (l INT, b STRING, a TINYINT) USING delta; INSERT INTO {t} VALUES (5, 'again', 3)",
    "rows": "INSERT INTO {t} VALUES (3, 'three', NULL, NULL); UPDATE {t} SET b = 'TWO' WHERE a = 2",
}
for name, change in CHANGES.items():
    steps = change.replace("; ", ";\n")
    views = [*KINDS.values(), *TEMPORARY.values()]
    shown = [f"SELECT * FROM {view}" for view in (*(f"{{t}}_{kind}" for kind in KINDS), *TEMPORARY)]
    corpus.sql(name, MADE + ";\n".join([*views, steps, *shown]), history=False)
    if name in ("b first", "b dropped", "c added first"):
        corpus.sql(
            f"parts, {name}",
            MADE
            + ";\n".join(
                [
                    *KINDS.values(),
                    steps,
                    "SELECT a FROM {t}_star",
                    "SELECT b, a FROM {t}_nested",
                    "SELECT count(*) FROM {t}_star WHERE b = 'one'",
                    "SELECT q FROM {t}_listed ORDER BY q",
                    "SELECT v.a, w.b FROM {t}_star v JOIN {t}_cte w ON v.a = w.a",
                    "SELECT * FROM {t}_star WHERE a IN (SELECT a FROM {t}_named)",
                    "WITH q AS (SELECT * FROM {t}_binding) SELECT a, b FROM q",
                    "INSERT INTO {t} (a) SELECT a + 10 FROM {t}_star",
                    "SELECT a FROM {t}_star",
                    "CREATE TABLE {t}_copy USING delta AS SELECT * FROM {t}_star",
                    "SELECT * FROM {t}_copy",
                    "MERGE INTO {t}_copy c USING {t}_star s ON c.a = s.a WHEN MATCHED THEN UPDATE SET c.b = 'm' WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)",
                    "SELECT * FROM {t}_copy",
                ]
            ),
            history=False,
        )


def _of_frames(name: str, change: str) -> None:
    @corpus.python(f"frames, {name}", history=False)
    def run(at: Place) -> None:
        for statement in MADE.strip().rstrip(";").split(";\n"):
            at.sql(statement)
        frame = at.spark.table(at.t)
        frame.createOrReplaceTempView("fv")
        frame.select("b", "a").createOrReplaceTempView("fv_parts")
        frame.filter("a = 1").createOrReplaceTempView("fv_some")
        at.spark.sql("SELECT * FROM fv").createOrReplaceTempView("fv_again")
        for statement in change.split("; "):
            at.sql(statement)
        for view in ("fv", "fv_parts", "fv_some", "fv_again"):
            at.attempt(lambda view=view: at.spark.sql(f"SELECT * FROM {view}"))
            at.attempt(lambda view=view: at.spark.table(view).select("a"))


for name in (
    "nothing",
    "b first",
    "a renamed",
    "b dropped",
    "c added",
    "c added first",
    "a widened",
    "replaced",
    "rows",
):
    _of_frames(name, CHANGES[name])

for name, text in {
    "more columns than names": "CREATE VIEW {t}_v (x, y) AS SELECT * FROM {t}",
    "fewer columns than names": "CREATE VIEW {t}_v (x, y, z, u, v) AS SELECT * FROM {t}",
    "twice the same column": "CREATE VIEW {t}_v AS SELECT a, a FROM {t}",
    "of itself": "CREATE VIEW {t}_v AS SELECT * FROM {t};\n CREATE OR REPLACE VIEW {t}_v AS SELECT * FROM {t}_v",
    "altered": "CREATE VIEW {t}_v AS SELECT a FROM {t};\n ALTER VIEW {t}_v AS SELECT b, a FROM {t};\n SELECT * FROM {t}_v",
    "altered schema": "CREATE VIEW {t}_v AS SELECT * FROM {t};\n ALTER VIEW {t}_v WITH SCHEMA EVOLUTION;\n ALTER TABLE {t} ADD COLUMN c INT FIRST;\n SELECT * FROM {t}_v;\n DESCRIBE TABLE {t}_v",
    "described": "CREATE VIEW {t}_v (x COMMENT 'an x', y, s, l) AS SELECT * FROM {t};\n DESCRIBE TABLE {t}_v;\n SHOW COLUMNS IN {t}_v",
    "evolving and described": "CREATE VIEW {t}_v WITH SCHEMA EVOLUTION AS SELECT * FROM {t};\n ALTER TABLE {t} RENAME COLUMN a TO z;\n SELECT * FROM {t}_v;\n DESCRIBE TABLE {t}_v",
    "types evolving and described": "CREATE VIEW {t}_v WITH SCHEMA TYPE EVOLUTION AS SELECT * FROM {t};\n ALTER TABLE {t} ALTER COLUMN a TYPE INT;\n SELECT * FROM {t}_v;\n DESCRIBE TABLE {t}_v",
    "expressions": "CREATE VIEW {t}_v AS SELECT a + 1, upper(b), s.x FROM {t};\n ALTER TABLE {t} ADD COLUMN c INT FIRST;\n SELECT * FROM {t}_v",
    "expressions widened": "CREATE VIEW {t}_v AS SELECT a + 1, CAST(a AS STRING) FROM {t};\n ALTER TABLE {t} ALTER COLUMN a TYPE INT;\n SELECT * FROM {t}_v",
    "names in another case": "CREATE VIEW {t}_v AS SELECT * FROM {t};\n ALTER TABLE {t} RENAME COLUMN a TO A2;\n ALTER TABLE {t} RENAME COLUMN A2 TO A;\n SELECT a FROM {t}_v",
    "columns that differ in case": "CREATE VIEW {t}_v (x, y) AS SELECT a AS k, b AS K FROM {t};\n SELECT * FROM {t}_v;\n ALTER TABLE {t} ADD COLUMN c INT FIRST;\n SELECT * FROM {t}_v",
    "columns of one name": "CREATE VIEW {t}_v (x, y) AS SELECT l.a, r.a FROM {t} l, {t} r;\n SELECT * FROM {t}_v;\n ALTER TABLE {t} ADD COLUMN c INT FIRST;\n SELECT * FROM {t}_v",
    "temporary columns of one name": "CREATE OR REPLACE TEMP VIEW tv_two (x, y) AS SELECT l.a, r.a FROM {t} l, {t} r;\n SELECT * FROM tv_two;\n ALTER TABLE {t} ADD COLUMN c INT FIRST;\n SELECT * FROM tv_two",
    "settings": "SET spark.sql.ansi.enabled = false;\n CREATE VIEW {t}_v AS SELECT a, CAST(b AS INT) AS n FROM {t};\n SET spark.sql.ansi.enabled = true;\n SELECT * FROM {t}_v",
    "global": "CREATE OR REPLACE GLOBAL TEMP VIEW gv_one AS SELECT * FROM {t};\n ALTER TABLE {t} ALTER COLUMN b FIRST;\n SELECT * FROM global_temp.gv_one",
    "a database of its own": "CREATE VIEW {t}_v AS SELECT * FROM {t};\n CREATE TABLE default.t_other (a INT) USING delta;\n USE default;\n SELECT * FROM {t}_v;\n DROP TABLE default.t_other",
    "a char": "CREATE TABLE {t}_c (c CHAR(5), v VARCHAR(5)) USING delta;\n INSERT INTO {t}_c VALUES ('a', 'b');\n CREATE VIEW {t}_v AS SELECT * FROM {t}_c;\n SELECT * FROM {t}_v;\n ALTER TABLE {t}_c ADD COLUMN n INT FIRST;\n SELECT * FROM {t}_v",
}.items():
    corpus.sql(f"a view, {name}", MADE + text, history=False)
