"""Odd folders and odd columns: one program of every command over each."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from differ.programs import Corpus, Place

corpus = Corpus("odd")

FOLDERS = (
    "a b", "a%20b", "p%25q", "50%", "x=1", "é", "a#b", "a+b&c", "it's", "[x]", "{y}", "a;b,c", "~", "_hidden", ".dot", "a`b",
)  # fmt: skip
_FEW_TASKS = {"spark__sql__sources__parallelPartitionDiscovery__parallelism": "2"}
"""The reference's VACUUM lists a partitioned table with this many tasks, by default ten thousand."""
for folder in FOLDERS:

    @corpus.python(f"a table in the folder {folder!r}", **_FEW_TASKS)
    def _in_folder(at: Place, folder: str = folder) -> Any:
        path = f"{at.d}/{folder}"
        table, text = f"delta.`{path.replace('`', '``')}`", path.replace("'", "\\'")
        made = at.spark.sql("SELECT 1L AS id, 'a' AS p")
        at.attempt(lambda: made.write.format("delta").partitionBy("p").save(path))
        for statement in (
            f"INSERT INTO {table} VALUES (2, 'b c'), (3, 'x%2Fy')",
            f"DELETE FROM {table} WHERE p = 'a'",
            f"CREATE TABLE {at.t} USING delta LOCATION '{text}'",
            f"MERGE INTO {at.t} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET p = 'é=1'",
            f"CREATE TABLE {at.t}_c SHALLOW CLONE {table}",
            f"SELECT id, p FROM {at.t}_c",
            f"SELECT id, p FROM {table} VERSION AS OF 1",
            f"VACUUM '{text}' RETAIN 999 HOURS DRY RUN",
        ):
            at.attempt(
                lambda statement=statement: at.spark.sql(statement).drop("source_table_size", "copied_files_size")
            )
        at.attempt(lambda: at.spark.read.format("delta").load(path))
        at.attempt(lambda: at.DeltaTable.forPath(at.spark, path).toDF().count())
        at.attempt(lambda: at.spark.sql(f"DESCRIBE DETAIL {at.t}").select("location"))
        at.tell(os.path.isdir(f"{path}/_delta_log"))
        at.tell(quote(folder) != folder and os.path.isdir(f"{at.d}/{quote(folder)}"))


COLUMNS = (
    "a b",
    "a.b",
    "a`b",
    "a%b",
    "é",
    "a,b",
    "a=b",
    "a(b)",
    "a\tb",
    "{c}",
    '"q"',
    "a/b",
    "a:b",
    "_metadata",
    "count",
    "MATCHED",
)
for column in COLUMNS:
    for mapped in (False, True):

        @corpus.python(f"a column {column!r}{', mapped' if mapped else ''}")
        def _column(at: Place, column: str = column, mapped: bool = mapped) -> Any:
            name = f"`{column.replace('`', '``')}`"
            mode = " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')" if mapped else ""
            for statement in (
                f"CREATE TABLE {at.t} (id INT, {name} STRING) USING delta PARTITIONED BY ({name}){mode}",
                f"INSERT INTO {at.t} VALUES (1, 'a'), (2, NULL)",
                f"INSERT INTO {at.t} ({name}, id) VALUES ('c', 3)",
                f"UPDATE {at.t} SET {name} = 'u' WHERE {name} IS NULL",
                f"MERGE INTO {at.t} t USING (SELECT 3 AS id, 'm' AS {name}) s ON t.id = s.id AND t.{name} = 'c' "
                f"WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
                f"ALTER TABLE {at.t} ADD CONSTRAINT k CHECK ({name} <> 'no')",
                f"INSERT INTO {at.t} VALUES (9, 'no')",
                f"DELETE FROM {at.t} WHERE {name} = 'a'",
                f"INSERT OVERWRITE {at.t} PARTITION ({name} = 'm') SELECT 4",
                f"ALTER TABLE {at.t} RENAME COLUMN {name} TO plain",
                f"SELECT id, {name} FROM {at.t}",
            ):
                at.attempt(lambda statement=statement: at.spark.sql(statement))
