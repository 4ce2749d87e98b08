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

MADE = """
    CREATE TABLE {t} (id INT, c INT, d DATE, s STRUCT<a: INT, b: STRING>) USING delta;
    INSERT INTO {t} VALUES (1, 1, DATE'2024-01-01', named_struct('a', 1, 'b', 'x'));
"""
COMMANDS = {
    "insert by name": "INSERT INTO {{t}} BY NAME SELECT 2 AS id, {value} AS c",
    "insert of columns": "INSERT INTO {{t}} (c, id) SELECT {value}, 2",
    "insert overwrite": "INSERT OVERWRITE {{t}} SELECT 2, {value}, NULL, NULL",
    "insert replace where": "INSERT INTO {{t}} REPLACE WHERE id = 1 SELECT 1 AS id, {value} AS c, NULL AS d, NULL AS s",
    "update": "UPDATE {{t}} SET c = {value} WHERE id = 1",
    "update of a field": "UPDATE {{t}} SET s.a = {value} WHERE id = 1",
    "merge update": "MERGE INTO {{t}} t USING (SELECT 1 AS id, {value} AS v) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET c = q.v",
    "merge update all": "MERGE INTO {{t}} t USING (SELECT id, {value} AS c, d, s FROM {{t}}) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET *",
    "merge insert": "MERGE INTO {{t}} t USING (SELECT 9 AS id, {value} AS v) q ON t.id = q.id WHEN NOT MATCHED THEN INSERT (id, c) VALUES (q.id, q.v)",
    "merge by source": "MERGE INTO {{t}} t USING (SELECT 9 AS id) q ON t.id = q.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET c = {value}",
}
for policy in ("ANSI", "LEGACY", "STRICT"):
    for command, text in COMMANDS.items():
        statements = ";\n".join(
            text.format(value=value) for value in ("'7'", "'x'", "8L", "3000000000L", "1.9D", "true")
        )
        corpus.sql(
            f"{policy}, {command}",
            f"{MADE} {statements}",
            history=False,
            spark__sql__storeAssignmentPolicy=policy,
        )
for command in ("insert of columns", "update", "merge update", "merge insert"):
    statements = ";\n".join(COMMANDS[command].format(value=value) for value in ("'7'", "'x'", "3000000000L", "1 / 0"))
    corpus.sql(
        f"without ANSI mode, {command}", f"{MADE} {statements}", history=False, spark__sql__ansi__enabled="false"
    )

STRUCTS = {
    "fields in another order": "named_struct('b', 'q', 'a', 5)",
    "fields of other names": "named_struct('x', 5, 'y', 'q')",
    "fewer fields": "named_struct('a', 5)",
    "more fields": "named_struct('a', 5, 'b', 'q', 'c', 1)",
    "fields of other types": "named_struct('a', '5', 'b', 6)",
    "a field that does not fit": "named_struct('a', 'x', 'b', 'q')",
    "a null": "CAST(NULL AS STRUCT<a: BIGINT, b: STRING>)",
    "a text": "'x'",
}
for name, value in STRUCTS.items():
    corpus.sql(
        f"a struct with {name}",
        f"""{MADE}
        INSERT INTO {{t}} (id, s) SELECT 2, {value};
        INSERT INTO {{t}} BY NAME SELECT 3 AS id, {value} AS s;
        UPDATE {{t}} SET s = {value} WHERE id = 1;
        MERGE INTO {{t}} t USING (SELECT 4 AS id, {value} AS s) q ON t.id = q.id WHEN NOT MATCHED THEN INSERT (id, s) VALUES (q.id, q.s);
        """,
        history=False,
    )
PARTS = """
    CREATE TABLE {t} (id INT, l ARRAY<INT>, m MAP<STRING, INT>, o ARRAY<STRUCT<a: INT, b: STRING>>, p MAP<STRING, STRUCT<a: INT>>)
    USING delta;
"""
for name, column, value in (
    ("an array of text", "l", "array('1', '2')"),
    ("an array of text that does not fit", "l", "array('x')"),
    ("an array of large numbers", "l", "array(3000000000L)"),
    ("a map of text", "m", "map(1, '2')"),
    ("a map of large numbers", "m", "map('a', 3000000000L)"),
    ("an array of structs of other types", "o", "array(named_struct('a', '1', 'b', 2))"),
    ("an array of structs in another order", "o", "array(named_struct('b', 'q', 'a', 1))"),
    ("a map of structs of other types", "p", "map('k', named_struct('a', '5'))"),
    ("a map of structs of other names", "p", "map('k', named_struct('z', 5))"),
):
    corpus.sql(
        f"{name} into parts",
        f"""{PARTS}
        INSERT INTO {{t}} (id, {column}) SELECT 1, {value};
        INSERT INTO {{t}} (id) VALUES (2);
        UPDATE {{t}} SET {column} = {value} WHERE id = 2;
        MERGE INTO {{t}} t USING (SELECT 3 AS id, {value} AS v) q ON t.id = q.id WHEN NOT MATCHED THEN INSERT (id, {column}) VALUES (q.id, q.v);
        """,
        history=False,
    )
for name, text in {
    "text into a partition": "CREATE TABLE {t} (id INT, p INT) USING delta PARTITIONED BY (p);\n INSERT INTO {t} VALUES (1, '7');\n"
    "INSERT INTO {t} PARTITION (p = '8') VALUES (2);\n INSERT INTO {t} PARTITION (p = 'x') VALUES (3)",
    "a default of another type": "CREATE TABLE {t} (id INT, c INT DEFAULT '7') USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported');\n"
    "INSERT INTO {t} (id) VALUES (1);\n INSERT INTO {t} VALUES (2, DEFAULT)",
    "a default without its feature": "CREATE TABLE {t} (id INT, c INT DEFAULT 7) USING delta;\n CREATE TABLE {t} (id INT) USING delta;\n"
    "ALTER TABLE {t} ADD COLUMN c INT DEFAULT 7;\n ALTER TABLE {t} ADD COLUMN d INT;\n ALTER TABLE {t} ALTER COLUMN d SET DEFAULT 5",
    "defaults in every command": "CREATE TABLE {t} (id INT, c INT DEFAULT 7, d STRING) USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported');\n"
    "INSERT INTO {t} VALUES (1, DEFAULT, DEFAULT), (2, 5, 'x');\n UPDATE {t} SET d = DEFAULT, c = DEFAULT WHERE id = 2;\n"
    "MERGE INTO {t} t USING (SELECT 3 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, c) VALUES (s.id, DEFAULT);\n"
    "MERGE INTO {t} t USING (SELECT 4 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);\n"
    "MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET c = DEFAULT;\n"
    "INSERT INTO {t} SELECT 5, DEFAULT, 'y';\n INSERT INTO {t} VALUES (6, DEFAULT + 1, 'z')",
    "from the table itself": "CREATE TABLE {t} (id INT, c STRING) USING delta;\n INSERT INTO {t} VALUES (1, 'a'), (2, 'b');\n"
    "INSERT INTO {t} SELECT id + 10, c FROM {t};\n INSERT OVERWRITE {t} SELECT id, upper(c) FROM {t} WHERE id > 1;\n"
    "INSERT INTO {t} REPLACE WHERE id = 2 SELECT id, 'again' FROM {t} WHERE id = 2;\n INSERT INTO {t} TABLE {t}",
    "too long a text": "CREATE TABLE {t} (id INT, c VARCHAR(3), d CHAR(3)) USING delta;\n INSERT INTO {t} VALUES (1, 'abcd', 'a');\n"
    "INSERT INTO {t} VALUES (1, 12345, 'a');\n INSERT INTO {t} VALUES (1, 'abc  ', 'a');\n UPDATE {t} SET c = 'abcd';\n UPDATE {t} SET d = 'abcd'",
}.items():
    corpus.sql(name, text, history=False)


@corpus.python("writers under STRICT", history=False, spark__sql__storeAssignmentPolicy="STRICT")
def writers_strict(at):
    at.sql("CREATE TABLE {t} (id INT, c INT) USING delta")
    for value in ("'7'", "8L", "CAST(9 AS TINYINT)"):
        frame = at.spark.sql(f"SELECT 1 AS id, {value} AS c")
        at.attempt(lambda frame=frame: frame.write.insertInto(at.t))
        at.attempt(lambda frame=frame: frame.writeTo(at.t).append())
        at.attempt(lambda frame=frame: frame.write.format("delta").mode("append").saveAsTable(at.t))


@corpus.python("writers under LEGACY", history=False, spark__sql__storeAssignmentPolicy="LEGACY")
def writers_legacy(at):
    at.sql("CREATE TABLE {t} (id INT, c INT) USING delta")
    for value in ("'7'", "'x'", "3000000000L", "array(1)"):
        frame = at.spark.sql(f"SELECT 1 AS id, {value} AS c")
        at.attempt(lambda frame=frame: frame.write.insertInto(at.t))
        at.attempt(lambda frame=frame: frame.writeTo(at.t).append())


@corpus.python("updates by the API", history=False)
def updates(at):
    from pyspark.sql import functions as F

    at.sql("CREATE TABLE {t} (id INT, d DATE, s STRUCT<a: INT, b: STRING>) USING delta")
    at.sql("INSERT INTO {t} VALUES (1, DATE'2024-01-01', named_struct('a', 1, 'b', 'x'))")
    table = at.DeltaTable.forName(at.spark, at.t)
    at.attempt(lambda: table.update(set={"id": "'7'"}))
    at.attempt(lambda: table.update(set={"d": F.lit("2024-02-02")}))
    at.attempt(lambda: table.update(set={"id": F.lit("x")}))
    at.attempt(lambda: table.update(set={"s": F.struct(F.lit("q").alias("b"), F.lit(5).alias("a"))}))
    at.attempt(lambda: table.update(set={"s": F.struct(F.lit(5).alias("x"), F.lit("q").alias("y"))}))
