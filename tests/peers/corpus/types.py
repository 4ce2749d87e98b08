"""Each type, in each command."""

from __future__ import annotations

from differ.programs import Corpus

corpus = Corpus("types")

VALUES = {  # two values of each type, and one that the second becomes
    "BOOLEAN": ("true", "false", "NULL"),
    "TINYINT": ("CAST(1 AS TINYINT)", "CAST(-128 AS TINYINT)", "CAST(7 AS TINYINT)"),
    "SMALLINT": ("CAST(1 AS SMALLINT)", "CAST(-32768 AS SMALLINT)", "CAST(7 AS SMALLINT)"),
    "INT": ("1", "-2147483648", "7"),
    "BIGINT": ("1L", "9223372036854775807L", "7L"),
    "FLOAT": ("CAST(1.5 AS FLOAT)", "CAST('NaN' AS FLOAT)", "CAST('-Infinity' AS FLOAT)"),
    "DOUBLE": ("1.5D", "CAST('NaN' AS DOUBLE)", "CAST('-0.0' AS DOUBLE)"),
    "DECIMAL(10,2)": ("1.50BD", "-99999999.99BD", "0.00BD"),
    "DECIMAL(38,18)": ("1.5BD", "-12345678901234567890.123456789012345678BD", "0.1BD"),
    "STRING": ("'a'", "'é中 \\'q\\''", "''"),
    "CHAR(5)": ("'a'", "'abcde'", "'b'"),
    "VARCHAR(5)": ("'a'", "'abcde'", "'b'"),
    "BINARY": ("X'01'", "X'FF00'", "X''"),
    "DATE": ("DATE'2024-01-01'", "DATE'0001-01-01'", "DATE'9999-12-31'"),
    "TIMESTAMP": (
        "TIMESTAMP'2024-03-10 02:30:00.123456'",
        "TIMESTAMP'1900-01-01 00:00:00'",
        "TIMESTAMP'2024-11-03 01:30:00 America/New_York'",
    ),
    "TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ'2024-03-10 02:30:00.123456'",
        "TIMESTAMP_NTZ'1900-01-01 00:00:00'",
        "TIMESTAMP_NTZ'2024-11-03 01:30:00'",
    ),
    "ARRAY<INT>": ("array(1, NULL)", "array()", "array(7)"),
    "MAP<STRING,INT>": ("map('a', 1)", "map()", "map('b', NULL)"),
    "STRUCT<a:INT,b:STRING>": (
        "named_struct('a', 1, 'b', 'x')",
        "named_struct('a', CAST(NULL AS INT), 'b', 'y')",
        "named_struct('a', 7, 'b', 'z')",
    ),
    "ARRAY<STRUCT<a:INT>>": (
        "array(named_struct('a', 1))",
        "array(named_struct('a', 2), NULL)",
        "array(named_struct('a', 7))",
    ),
    "VARIANT": ("parse_json('{\"a\":1}')", "parse_json('[1,2]')", "parse_json('7')"),
}
COMPARED = [kind for kind in VALUES if not kind.startswith(("MAP", "VARIANT"))]
PARTITIONS = [kind for kind in VALUES if not kind.startswith(("MAP", "VARIANT", "ARRAY", "STRUCT"))]

for kind, (one, two, three) in VALUES.items():
    made = f"""
        CREATE TABLE {{t}} (id INT, c {kind}) USING delta;
        INSERT INTO {{t}} VALUES (1, {one}), (2, {two}), (3, NULL);
    """
    corpus.sql(f"{kind}: create, insert, read", f"{made} SELECT id, c FROM {{t}} WHERE c IS NOT NULL")
    corpus.sql(f"{kind}: delete its nulls", f"{made} DELETE FROM {{t}} WHERE c IS NULL")
    corpus.sql(f"{kind}: update", f"{made} UPDATE {{t}} SET c = {three} WHERE id = 2")
    corpus.sql(
        f"{kind}: merge",
        f"""{made}
        MERGE INTO {{t}} t USING (SELECT 2 AS id, {three} AS c UNION ALL SELECT 4 AS id, {one} AS c) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET c = s.c WHEN NOT MATCHED THEN INSERT *;
        """,
    )
    corpus.sql(
        f"{kind}: with a default",
        f"""
        CREATE TABLE {{t}} (id INT, c {kind} DEFAULT {one}) USING delta
        TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported');
        INSERT INTO {{t}} (id) VALUES (1);
        INSERT INTO {{t}} VALUES (2, DEFAULT);
        UPDATE {{t}} SET c = DEFAULT WHERE id = 2;
        """,
    )
    corpus.sql(f"{kind}: create table as select", f"CREATE TABLE {{t}} USING delta AS SELECT 1 AS id, {one} AS c")
    corpus.sql(
        f"{kind}: added as a column",
        f"""
        CREATE TABLE {{t}} (id INT) USING delta;
        INSERT INTO {{t}} VALUES (1);
        ALTER TABLE {{t}} ADD COLUMN c {kind};
        INSERT INTO {{t}} VALUES (2, {one});
        """,
    )
    corpus.sql(
        f"{kind}: dropped under column mapping",
        f"""
        CREATE TABLE {{t}} (id INT, c {kind}, d {kind}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
        INSERT INTO {{t}} VALUES (1, {one}, {two});
        ALTER TABLE {{t}} RENAME COLUMN c TO e;
        ALTER TABLE {{t}} DROP COLUMN d;
        SELECT id, e FROM {{t}};
        """,
    )

for kind in COMPARED:
    one, two, three = VALUES[kind]
    made = f"""
        CREATE TABLE {{t}} (id INT, c {kind}) USING delta;
        INSERT INTO {{t}} VALUES (1, {one}), (2, {two}), (3, NULL);
    """
    corpus.sql(f"{kind}: delete one value", f"{made} DELETE FROM {{t}} WHERE c = {one}")
    corpus.sql(f"{kind}: delete all others", f"{made} DELETE FROM {{t}} WHERE c <> {two}")
    corpus.sql(
        f"{kind}: as a merge key",
        f"""{made}
        MERGE INTO {{t}} t USING (SELECT 9 AS id, {two} AS c) s ON t.c = s.c
        WHEN MATCHED THEN UPDATE SET id = s.id WHEN NOT MATCHED THEN INSERT *
    """,
    )

for kind in PARTITIONS:
    one, two, three = VALUES[kind]
    made = f"""
        CREATE TABLE {{t}} (id INT, c {kind}) USING delta PARTITIONED BY (c);
        INSERT INTO {{t}} VALUES (1, {one}), (2, {two}), (3, NULL);
    """
    corpus.sql(
        f"{kind}: a partition read and deleted",
        f"""{made}
        SELECT id FROM {{t}} WHERE c = {one};
        DELETE FROM {{t}} WHERE c = {one};
    """,
    )
    corpus.sql(
        f"{kind}: a partition replaced",
        f"""{made}
        INSERT INTO {{t}} REPLACE WHERE c = {one} SELECT 8 AS id, {one} AS c;
    """,
    )
