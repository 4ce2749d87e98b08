"""Store assignment: a value of each type put into a column of each other."""

from __future__ import annotations

from differ.programs import Corpus

corpus = Corpus("assignment")

SOURCES = {
    "tinyint": "CAST(7 AS TINYINT)",
    "int": "7",
    "a large int": "2147483647",
    "bigint": "7L",
    "a large bigint": "9223372036854775807L",
    "double": "7.9D",
    "a large double": "1e300D",
    "decimal": "7.95BD",
    "a number as text": "'7'",
    "a date as text": "'2024-02-29'",
    "text": "'seven'",
    "boolean": "true",
    "date": "DATE'2024-02-29'",
    "timestamp": "TIMESTAMP'2024-02-29 12:34:56.789'",
    "ntz": "TIMESTAMP_NTZ'2024-02-29 12:34:56.789'",
    "binary": "X'37'",
    "null": "NULL",
}
TARGETS = ("TINYINT", "INT", "BIGINT", "FLOAT", "DECIMAL(5,1)", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "BINARY")

for what, value in SOURCES.items():
    for target in TARGETS:
        corpus.sql(
            f"{what} into {target}",
            f"""
            CREATE TABLE {{t}} (id INT, c {target}) USING delta;
            INSERT INTO {{t}} VALUES (1, {value});
            INSERT INTO {{t}} (id) VALUES (2);
            UPDATE {{t}} SET c = {value} WHERE id = 2;
            MERGE INTO {{t}} t USING (SELECT 3 AS id, {value} AS c) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *;
            """,
            history=False,
        )


def appended(value: str, target: str) -> None:
    @corpus.python(f"append of {value} to {target}", history=False)
    def program(at):
        at.sql(f"CREATE TABLE {{t}} (id INT, c {target}) USING delta")
        frame = at.spark.sql(f"SELECT 1 AS id, {SOURCES[value]} AS c")
        at.attempt(lambda: frame.write.format("delta").mode("append").saveAsTable(at.t))
        at.attempt(lambda: frame.write.insertInto(at.t))
        at.attempt(lambda: frame.writeTo(at.t).append())


for value, target in (
    ("int", "BIGINT"),
    ("bigint", "INT"),
    ("a large bigint", "INT"),
    ("double", "INT"),
    ("decimal", "DECIMAL(5,1)"),
    ("a number as text", "INT"),
    ("a date as text", "DATE"),
    ("int", "STRING"),
    ("date", "TIMESTAMP"),
    ("timestamp", "DATE"),
    ("null", "INT"),
    ("text", "BINARY"),
):
    appended(value, target)

corpus.sql(
    "structs by position",
    """
    CREATE TABLE {t} (id INT, s STRUCT<a: INT, b: STRING>) USING delta;
    INSERT INTO {t} VALUES (1, named_struct('x', 1, 'y', 'q'));
    INSERT INTO {t} SELECT 2, named_struct('b', 'q', 'a', 1);
    INSERT INTO {t} (id, s) SELECT 3, struct(5, 'z');
    """,
)
corpus.sql(
    "arrays of structs by position",
    """
    CREATE TABLE {t} (id INT, s ARRAY<STRUCT<a: INT, b: STRING>>) USING delta;
    INSERT INTO {t} VALUES (1, array(named_struct('x', 1, 'y', 'q')));
    INSERT INTO {t} VALUES (2, array(struct(1L, 'q')));
    """,
)
for policy in ("ANSI", "LEGACY", "STRICT"):
    corpus.sql(
        f"policy {policy}",
        """
        CREATE TABLE {t} (id INT, c INT) USING delta;
        INSERT INTO {t} VALUES (1, '7');
        INSERT INTO {t} VALUES (2, 7.9D);
        INSERT INTO {t} VALUES (3, 9223372036854775807L);
        UPDATE {t} SET c = '8';
        UPDATE {t} SET c = 'x';
        """,
        spark__sql__storeAssignmentPolicy=policy,
    )
