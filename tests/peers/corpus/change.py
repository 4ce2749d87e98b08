"""DELETE and UPDATE: conditions, values, names, errors."""

from __future__ import annotations

from differ.programs import Corpus

corpus = Corpus("change")

MADE = """
    CREATE TABLE {t} (id INT, g STRING, n DOUBLE, day DATE, s STRUCT<a: INT, b: STRING>, l ARRAY<INT>, m MAP<STRING, INT>)
    USING delta;
    INSERT INTO {t} VALUES
      (1, 'a', 1.5D, DATE'2024-01-01', named_struct('a', 1, 'b', 'x'), array(1, 2), map('k', 1)),
      (2, 'b', 2.5D, DATE'2024-01-02', named_struct('a', 2, 'b', NULL), array(), map()),
      (3, 'a', NULL, NULL, NULL, NULL, NULL),
      (4, NULL, CAST('NaN' AS DOUBLE), DATE'2024-02-01', named_struct('a', NULL, 'b', 'y'), array(3, NULL), map('k', NULL));
"""
CONDITIONS = {
    "equal": "g = 'a'",
    "not equal": "g <> 'a'",
    "null-safe": "g <=> NULL",
    "in": "id IN (1, 3, 99)",
    "in with a null": "g IN ('a', NULL)",
    "not in with a null": "g NOT IN ('a', NULL)",
    "between": "id BETWEEN 2 AND 3",
    "like": "g LIKE 'a%'",
    "rlike": "g RLIKE '^a$'",
    "is null": "s IS NULL",
    "a field": "s.a > 1",
    "an element": "l[0] = 1",
    "a key": "m['k'] = 1",
    "nan": "n = CAST('NaN' AS DOUBLE)",
    "nan is greater": "n > 2",
    "case": "CASE WHEN g = 'a' THEN id > 1 ELSE false END",
    "exists": "exists(l, x -> x > 2)",
    "size": "size(l) = 0",
    "extract": "extract(MONTH FROM day) = 2",
    "interval": "day + INTERVAL 1 MONTH > DATE'2024-02-15'",
    "cast": "CAST(id AS STRING) = '2'",
    "null literal": "NULL",
    "true": "true",
    "false": "false",
    "and or not": "NOT (g = 'a' AND id > 1) OR n IS NULL",
    "arithmetic": "id % 2 = 0",
    "json": "get_json_object(to_json(s), '$.b') = 'x'",
    "from_json": "from_json('{\"q\":2}', 'q INT').q = id",
    "coalesce": "coalesce(n, 0) = 0",
    "upper": "upper(g) = 'A'",
    "qualified": "t.id = 1",
    "another case": "ID = 1",
    "quoted": "`id` = 1",
    "subquery in": "id IN (SELECT max(id) FROM {t})",
    "subquery scalar": "id = (SELECT min(id) FROM {t})",
    "subquery exists": "EXISTS (SELECT 1 FROM {t} WHERE id = 99)",
    "current date": "day < current_date()",
    "a number": "1",
    "a text": "'x'",
    "a column that is not there": "nope = 1",
    "a field that is not there": "s.nope = 1",
    "two types": "id = 'x'",
    "an aggregate": "max(id) = 1",
    "a window": "row_number() OVER (ORDER BY id) = 1",
    "rand": "rand() < 2",
    "division by zero": "1 / (id - 1) > 0",
    "a generator": "explode(l) = 1",
    "unknown function": "no_such_function(id) = 1",
    "overflow": "id + 2147483647 > 0",
}
for name, condition in CONDITIONS.items():
    source = condition.replace("t.id", "{t}.id") if name == "qualified" else condition
    history = name != "current date"  # The recorded history would name the day on which it was recorded.
    corpus.sql(f"delete where {name}", f"{MADE} DELETE FROM {{t}} WHERE {source}", history=history)
    corpus.sql(f"update where {name}", f"{MADE} UPDATE {{t}} SET g = 'new' WHERE {source}", history=history)

VALUES = {
    "a literal": "g = 'z'",
    "another column": "n = id",
    "itself": "id = id + 1",
    "two that trade places": "id = CAST(n AS INT), n = id",
    "a field": "s.a = 9",
    "two fields": "s.a = 9, s.b = 'q'",
    "a struct and its field": "s = named_struct('a', 1, 'b', 'x'), s.a = 2",
    "a column twice": "id = 1, id = 2",
    "a column twice in two cases": "id = 1, ID = 2",
    "a struct by position": "s = struct(5, 'z')",
    "an array": "l = array(id)",
    "an element": "l[0] = 1",
    "a map": "m = map('z', id)",
    "a null": "g = NULL",
    "a column that is not there": "nope = 1",
    "a field that is not there": "s.nope = 1",
    "a text for a number": "id = 'x'",
    "a number as text": "id = '12'",
    "too large a number": "id = 99999999999",
    "a date as text": "day = '2024-05-05'",
    "a double for an int": "id = 1.9D",
    "a subquery": "id = (SELECT max(id) FROM {t})",
    "an aggregate": "id = max(id)",
    "an array for a number": "id = array(1)",
    "quoted name": "`g` = 'q'",
    "a case expression": "g = CASE id WHEN 1 THEN 'one' ELSE g END",
    "a division by zero": "n = 1 / (id - id)",
    "an interval": "day = day + INTERVAL 1 DAY",
    "a transform": "l = transform(l, x -> x + 1)",
    "default": "g = DEFAULT",
}
for name, sets in VALUES.items():
    corpus.sql(f"update set {name}", f"{MADE} UPDATE {{t}} SET {sets}")
    corpus.sql(f"update some set {name}", f"{MADE} UPDATE {{t}} SET {sets} WHERE id <= 2")

for name, text in {
    "delete everything": "DELETE FROM {t}",
    "delete from an alias": "DELETE FROM {t} AS x WHERE x.id = 1",
    "delete by path": "DELETE FROM delta.`{p}` WHERE id = 1",
    "update an alias": "UPDATE {t} AS x SET x.g = 'q' WHERE x.id = 1",
    "delete nothing": "DELETE FROM {t} WHERE id = 99",
    "update nothing": "UPDATE {t} SET g = 'q' WHERE id = 99",
    "delete from what is not there": "DELETE FROM db_nope.t WHERE id = 1",
    "update what is not there": "UPDATE db_nope.t SET id = 1",
    "truncate": "TRUNCATE TABLE {t}",
    "delete without from": "DELETE {t} WHERE id = 1",
    "update without set": "UPDATE {t} WHERE id = 1",
}.items():
    corpus.sql(name, f"{MADE} {text}")

for name, property_ in {
    "vectors": "delta.enableDeletionVectors",
    "a feed": "delta.enableChangeDataFeed",
    "row tracking": "delta.enableRowTracking",
}.items():
    made = f"{MADE} ALTER TABLE {{t}} SET TBLPROPERTIES ('{property_}' = 'true'); "
    corpus.sql(f"delete with {name}", f"{made} DELETE FROM {{t}} WHERE id IN (1, 4)")
    corpus.sql(f"update with {name}", f"{made} UPDATE {{t}} SET n = 0 WHERE id IN (1, 4)")
    corpus.sql(f"delete all with {name}", f"{made} DELETE FROM {{t}}")

VIEWED = f"{MADE} CREATE OR REPLACE TEMP VIEW over_t AS SELECT id, g FROM {{t}}; "
for name, text in {
    "delete through a view": "DELETE FROM over_t WHERE id = 1",
    "update through a view": "UPDATE over_t SET g = 'q' WHERE id = 1",
    "insert through a view": "INSERT INTO over_t VALUES (9, 'q')",
    "merge through a view": "MERGE INTO over_t t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
}.items():
    corpus.sql(name, f"{VIEWED} {text}; DROP VIEW over_t")
    whole = f"{MADE} CREATE OR REPLACE TEMP VIEW over_t AS SELECT * FROM {{t}}; "
    corpus.sql(f"{name} of all columns", f"{whole} {text}; DROP VIEW over_t")

for name, condition in {
    "correlated exists": "EXISTS (SELECT 1 FROM o WHERE o.k = {t}.id)",
    "not exists": "NOT EXISTS (SELECT 1 FROM o WHERE o.k = {t}.id)",
    "not in a subquery": "id NOT IN (SELECT k FROM o)",
    "in a subquery or": "id IN (SELECT k FROM o) OR g IS NULL",
    "in a subquery of two columns": "(id, g) IN (SELECT k, 'a' FROM o)",
    "a correlated scalar": "n > (SELECT max(k) FROM o WHERE o.k = {t}.id)",
    "a filter of an array": "size(filter(l, x -> x > 1)) > 0",
    "an aggregate of an array": "aggregate(l, 0, (a, x) -> a + coalesce(x, 0)) = 3",
    "a transform": "transform(l, x -> x + 1)[0] = 2",
    "a map filter": "size(map_filter(m, (k, v) -> v = 1)) = 1",
    "an interval of days": "day > DATE'2024-03-01' - INTERVAL '30' DAY",
    "make_interval": "day + make_interval(0, 1) > DATE'2024-02-05'",
    "extract a year": "extract(YEAR FROM day) = 2024 AND date_part('DAY', day) = 1",
    "try_cast": "try_cast(g AS INT) IS NULL",
    "a variant": "variant_get(parse_json('{\"a\":1}'), '$.a', 'int') = id",
}.items():
    view = "CREATE OR REPLACE TEMP VIEW o AS SELECT * FROM VALUES (1), (3) AS o(k);\n"
    corpus.sql(f"delete where {name}", f"{MADE} {view} DELETE FROM {{t}} WHERE {condition}", history=False)
    corpus.sql(f"update where {name}", f"{MADE} {view} UPDATE {{t}} SET g = 'new' WHERE {condition}", history=False)
    if "{t}" not in condition and "SELECT" not in condition:
        corpus.sql(
            f"merge where {name}",
            f"{MADE} MERGE INTO {{t}} t USING (SELECT 1 AS k UNION ALL SELECT 4) q ON t.id = q.k "
            f"WHEN MATCHED AND {condition} THEN UPDATE SET g = 'hit' WHEN MATCHED THEN DELETE",
            history=False,
        )
for name, text in {
    "update set a subquery": "UPDATE {t} SET n = (SELECT max(k) FROM o)",
    "update set a correlated subquery": "UPDATE {t} SET n = (SELECT max(k) FROM o WHERE o.k = {t}.id)",
    "update set by in": "UPDATE {t} SET g = CASE WHEN id IN (SELECT k FROM o) THEN 'in' ELSE 'out' END",
    "merge with a subquery in a clause": "MERGE INTO {t} t USING o ON t.id = o.k WHEN MATCHED AND o.k IN (SELECT k FROM o) THEN DELETE",
    "merge set a subquery": "MERGE INTO {t} t USING o ON t.id = o.k WHEN MATCHED THEN UPDATE SET n = (SELECT max(k) FROM o)",
    "merge with exists": "MERGE INTO {t} t USING o ON t.id = o.k AND EXISTS (SELECT 1 FROM o) WHEN MATCHED THEN DELETE",
}.items():
    view = "CREATE OR REPLACE TEMP VIEW o AS SELECT * FROM VALUES (1), (3) AS o(k);\n"
    corpus.sql(f"by subquery, {name}", f"{MADE} {view} {text}", history=False)
