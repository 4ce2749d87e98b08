"""Odd names: tables that are not there by every spelling, and names that a catalog refuses."""

from __future__ import annotations

import os
from typing import Any

from differ.programs import Corpus, Place

corpus = Corpus("paths")

ABSENT = ("no such", "not%here", "a.b", "10:00", "/no/such", "no/such", "`tick`", "é?#")
for statement in (
    "VACUUM {}", "VACUUM {} DRY RUN", "DESCRIBE DETAIL {}", "DESCRIBE HISTORY {}", "OPTIMIZE {}",
    "RESTORE TABLE {} TO VERSION AS OF 0", "GENERATE symlink_format_manifest FOR TABLE {}", "REORG TABLE {} APPLY (PURGE)",
):  # fmt: skip
    quotes = ("'{}'", "delta.`{}`") if statement.split()[0] in ("VACUUM", "DESCRIBE", "OPTIMIZE") else ("delta.`{}`",)
    corpus.sql(
        f"{statement.replace(' {}', '')}, absent",
        ";\n".join(
            statement.format(quote.format(name.replace("`", "``") if "`" in quote else name))
            for quote in quotes
            for name in ABSENT
        ),
    )

REFUSED = ("odd name", "a-b", "50%", "a.b", "é", "x=1", "a:b", "_", "9")
for name in REFUSED:

    @corpus.python(f"create {name!r} by every way", history=False)
    def _create(at: Place, name: str = name) -> Any:
        named, folder = f"`{name.replace('`', '``')}`", f"{at.d}/db"
        database = at.t.partition(".")[0]
        for text in (
            f"CREATE TABLE {database}.{named} (id BIGINT) USING delta",
            f"CREATE TABLE {database}.{named} USING delta AS SELECT 1 AS id",
            f"CREATE OR REPLACE TABLE {database}.{named} USING delta AS SELECT 2 AS id",
            f"CREATE TABLE {database}.{named} (id BIGINT) USING delta LOCATION '{at.d}/elsewhere'",
        ):
            at.attempt(lambda text=text: at.spark.sql(text))
            at.spark.sql(f"DROP TABLE IF EXISTS {database}.plain")
        at.spark.sql(f"CREATE TABLE {at.t} (id BIGINT) USING delta")
        for text in (
            f"ALTER TABLE {at.t} RENAME TO {database}.{named}",
            f"CREATE TABLE {database}.{named} SHALLOW CLONE {at.t}",
            f"CREATE TABLE {database}.{named} LIKE {at.t}",
        ):
            at.attempt(lambda text=text: at.spark.sql(text).count())
        if not at.spark.catalog.tableExists(f"{database}.{named}"):
            at.tell(sorted(os.listdir(folder)))


for mode in ("append", "overwrite", "error", "ignore"):

    @corpus.python(f"save a table of an odd name, {mode}", history=False)
    def _save(at: Place, mode: str = mode) -> Any:
        database = at.t.partition(".")[0]
        at.attempt(lambda: at.spark.range(1).write.format("delta").mode(mode).saveAsTable(f"{database}.`odd name`"))
        at.attempt(lambda: at.spark.range(1).write.format("delta").mode(mode).saveAsTable("no_db.t"))
