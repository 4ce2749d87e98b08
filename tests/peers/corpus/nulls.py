"""NULL at each level of nested values, in every clause that writes one, with and without evolution."""

from __future__ import annotations

from differ.programs import Corpus, Place

corpus = Corpus("nulls")

TYPES = {
    "struct": ("STRUCT<a: INT, b: INT>", "STRUCT<a: INT, c: INT>", "named_struct('a', 1, 'b', 2)", "named_struct('a', 9, 'c', 8)"),
    "struct of struct": (
        "STRUCT<s: STRUCT<a: INT, b: INT>, k: INT>",
        "STRUCT<s: STRUCT<a: INT, c: INT>, k: INT>",
        "named_struct('s', named_struct('a', 1, 'b', 2), 'k', 3)",
        "named_struct('s', named_struct('a', 9, 'c', 8), 'k', 7)",
    ),
    "array": (
        "ARRAY<STRUCT<a: INT, b: INT>>",
        "ARRAY<STRUCT<a: INT, c: INT>>",
        "array(named_struct('a', 1, 'b', 2), NULL)",
        "array(named_struct('a', 9, 'c', 8), NULL)",
    ),
    "map": (
        "MAP<STRING, STRUCT<a: INT, b: INT>>",
        "MAP<STRING, STRUCT<a: INT, c: INT>>",
        "map('k', named_struct('a', 1, 'b', 2), 'n', NULL)",
        "map('k', named_struct('a', 9, 'c', 8), 'n', NULL)",
    ),
    "struct of array": (
        "STRUCT<l: ARRAY<STRUCT<a: INT, b: INT>>, k: INT>",
        "STRUCT<l: ARRAY<STRUCT<a: INT, c: INT>>, k: INT>",
        "named_struct('l', array(named_struct('a', 1, 'b', 2), NULL), 'k', 3)",
        "named_struct('l', array(named_struct('a', 9, 'c', 8), NULL), 'k', 7)",
    ),
}  # fmt: skip
CLAUSES = {
    "both stars": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "set": "WHEN MATCHED THEN UPDATE SET col = s.col WHEN NOT MATCHED THEN INSERT (id, col) VALUES (s.id, s.col)",
    "by source": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN UPDATE SET col = NULL",
}
READ = "SELECT id, col, col IS NULL AS nothing FROM {t}"


def rows_of(kind: str, value: str, first: int = 1) -> str:
    """A whole value, one that is NULL, and one whose parts are NULL."""
    parts = {
        "struct": ["CAST(NULL AS INT)"],
        "struct of struct": ["named_struct('s', NULL, 'k', NULL)"],
        "array": ["array()", "array(NULL)"],
        "map": ["map()", "map('n', NULL)"],
        "struct of array": ["named_struct('l', NULL, 'k', NULL)"],
    }
    values = [value, "NULL"]
    if kind == "struct":
        names = ("a", "c") if "'c'" in value else ("a", "b")
        values.append(f"named_struct('{names[0]}', CAST(NULL AS INT), '{names[1]}', CAST(NULL AS INT))")
    else:
        values += parts[kind]
    return values


def cases(kind: str, old: str, new: str) -> tuple[list[str], list[str]]:
    """Rows of the table and of the source: each value of one beside each of the other."""
    before, after = rows_of(kind, old), rows_of(kind, new)
    table, source, number = [], [], 0
    for mine in before:
        for yours in after:
            number += 1
            table.append(f"({number}, {mine})")
            source.append(f"({number}, {yours})")
    for yours in after:
        number += 1
        source.append(f"({number}, {yours})")
    for mine in before:
        number += 1
        table.append(f"({number}, {mine})")
    return table, source


def cast(rows: list[str], kind: str) -> str:
    """A query of rows, the second column of a type."""
    selects = [
        f"SELECT {row[1 : row.index(',')]} AS id, CAST({row[row.index(',') + 1 : -1]} AS {kind}) AS col" for row in rows
    ]
    return " UNION ALL ".join(selects)


for name, (kept, brought, old, new) in TYPES.items():
    table, source = cases(name, old, new)
    made = f"CREATE TABLE {{t}} (id INT, col {kept}) USING delta;\n INSERT INTO {{t}} {cast(table, kept)};\n"
    for clause, text in CLAUSES.items():
        for how, word, settings in (
            ("evolving", "MERGE WITH SCHEMA EVOLUTION", {}),
            ("automatic", "MERGE", {"spark__databricks__delta__schema__autoMerge__enabled": "true"}),
            ("plain", "MERGE", {}),
        ):
            if how == "automatic" and clause != "both stars":
                continue
            merge = f"{word} INTO {{t}} t USING ({cast(source, brought)}) s ON t.id = s.id {text};\n {READ}"
            corpus.sql(f"{name}, merge {clause}, {how}", made + merge, history=False, **settings)
    same = [row.replace("'c'", "'b'") for row in source]
    merge = f"MERGE INTO {{t}} t USING ({cast(same, kept)}) s ON t.id = s.id {CLAUSES['both stars']};\n {READ}"
    corpus.sql(f"{name}, merge both stars, of one type", made + merge, history=False)
    wider = kept.replace("a: INT", "a: SMALLINT")
    narrow = f"MERGE INTO {{t}} t USING ({cast(same, wider)}) s ON t.id = s.id {CLAUSES['both stars']};\n {READ}"
    corpus.sql(f"{name}, merge both stars, of a narrower type", made + narrow, history=False)
    fewer = kept.replace(", b: INT", "")
    short = f"({cast([row.replace(', ' + chr(39) + 'b' + chr(39) + ', 8', '') for row in source], brought)})"
    for how in ("MERGE", "MERGE WITH SCHEMA EVOLUTION"):
        less = f"(SELECT id, CAST(CAST(col AS STRING) AS STRING) AS shown, from_json(to_json(named_struct('v', col)), 'v {fewer}').v AS col FROM {short})"
        merge = (
            f"{how} INTO {{t}} t USING (SELECT id, col FROM {less}) s ON t.id = s.id {CLAUSES['both stars']};\n {READ}"
        )
        corpus.sql(f"{name}, {how.lower()} both stars, of fewer fields", made + merge, history=False)
    corpus.sql(
        f"{name}, insert with evolution",
        made + f"INSERT WITH SCHEMA EVOLUTION INTO {{t}} BY NAME {cast(source, brought)};\n {READ}",
        history=False,
        spark__databricks__delta__schema__autoMerge__enabled="true",
    )
    corpus.sql(
        f"{name}, insert by position",
        made + f"INSERT INTO {{t}} {cast(same, kept)};\n INSERT INTO {{t}} {cast(same, wider)};\n {READ}",
        history=False,
    )
    corpus.sql(
        f"{name}, updated",
        made
        + f"UPDATE {{t}} SET col = NULL WHERE id % 2 = 0;\n {READ};\n UPDATE {{t}} SET col = CAST(col AS {wider});\n {READ};\n "
        f"UPDATE {{t}} SET id = id + 1;\n {READ}",
        history=False,
    )
    for deep in {"struct": ("col.a",), "struct of struct": ("col.s.a", "col.s"), "struct of array": ("col.k",)}.get(
        name, ()
    ):
        corpus.sql(f"{name}, {deep} set", made + f"UPDATE {{t}} SET {deep} = NULL;\n {READ}", history=False)
        merge = f"MERGE INTO {{t}} t USING ({cast(source, brought)}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {deep} = NULL;\n {READ}"
        corpus.sql(f"{name}, {deep} merged", made + merge, history=False)


def _frames(name: str, kept: str, brought: str, old: str, new: str) -> None:
    @corpus.python(f"{name}, frames", history=False)
    def run(at: Place) -> None:
        table, source = cases(name, old, new)
        frame = at.spark.sql(cast(table, kept))
        frame.write.format("delta").saveAsTable(at.t)
        more = at.spark.sql(cast(source, brought))
        at.attempt(lambda: more.write.format("delta").mode("append").saveAsTable(at.t))
        at.attempt(lambda: more.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(at.t))
        at.tell(at.sql(READ))
        at.attempt(lambda: more.writeTo(at.t).option("mergeSchema", "true").append())
        at.tell(at.sql(READ))
        at.attempt(lambda: more.write.format("delta").mode("overwrite").option("mergeSchema", "true").saveAsTable(at.t))
        at.tell(at.sql(READ))
        found = at.DeltaTable.forName(at.spark, at.t)
        at.attempt(
            lambda: (
                found.alias("t")
                .merge(more.alias("s"), "t.id = s.id")
                .withSchemaEvolution()
                .whenMatchedUpdateAll()
                .execute()
            )
        )
        at.tell(at.sql(READ))


for name, given in TYPES.items():
    _frames(name, *given)


MISSING = {
    "a list of columns": "INSERT INTO {t} (b) VALUES (2)",
    "a list of columns, from a query": "INSERT INTO {t} (b) SELECT 2",
    "an overwrite with a list": "INSERT OVERWRITE {t} (b) VALUES (2)",
    "by name": "INSERT INTO {t} BY NAME SELECT 2 AS b",
    "a NULL": "INSERT INTO {t} VALUES (NULL, 2)",
    "a NULL by a list": "INSERT INTO {t} (b, a) VALUES (2, NULL)",
    "DEFAULT": "INSERT INTO {t} (a, b) VALUES (DEFAULT, 2)",
    "a merge": "MERGE INTO {t} t USING (SELECT 2 AS b) s ON t.b = s.b WHEN NOT MATCHED THEN INSERT (b) VALUES (s.b)",
    "an update": "UPDATE {t} SET a = NULL",
    "an update to DEFAULT": "UPDATE {t} SET a = DEFAULT",
}
for name, statement in MISSING.items():
    made = "CREATE TABLE {t} (a INT NOT NULL, b INT) USING delta;\n INSERT INTO {t} VALUES (1, 1)"
    corpus.sql(f"a NOT NULL column without a value: {name}", f"{made};\n {statement};\n SELECT a, b FROM {{t}}")
