"""List what can be done to a table, and by which interfaces: one row per verb, with the reason where one is missing.

A test compares the rows with the interfaces, and ``docs/reference/interfaces.md`` is generated from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["VERBS", "Verb", "interfaces_page"]

_SPARK: Final = "needs Spark"
_LOG: Final = "a view of the log, without rows"
_LATER: Final = "not yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb.

    Args:
        what: What it does, in a few words.
        sql: Statement. Here and below, a reason in brackets stands for a missing one.
        python: Methods of ``DeltaTable``, or what else a session calls; or the reason why there are none.
        connect: Whether a session of Spark Connect has ``python`` too, or the reason why not.
        local: Methods of the object that ``pydelta.open`` returns.
        cli: Commands of ``pydelta``.
        job: Jobs of a stack that do the same.
    """

    what: str
    sql: str
    python: tuple[str, ...] | str = ()
    connect: str = "yes"
    local: tuple[str, ...] | str = ()
    cli: tuple[str, ...] | str = ()
    job: tuple[str, ...] = ()


VERBS: Final = (
    Verb(what="read", sql="SELECT", python=("toDF",), local=("scan", "version", "schema"), cli=("files",)),
    Verb(
        what="read with the ids of rows",
        sql="_metadata.row_id",
        python=("toDFWithRowTracking",),
        connect=_LATER,
        local=_LATER,
        cli=_LOG,
    ),
    Verb(
        what="open",
        sql="a name, delta.`path`",
        python=("forPath", "forName", "isDeltaTable", "alias"),
        local="pydelta.open",
        cli="the argument PATH",
    ),
    Verb(
        what="append",
        sql="INSERT INTO",
        python=("df.write",),
        local=("append",),
        cli=("append",),
        job=("ingest", "ingest_stream", "stream_copy"),
    ),
    Verb(
        what="overwrite, replaceWhere",
        sql="INSERT OVERWRITE, REPLACE WHERE",
        python=("df.write",),
        local=("overwrite",),
        cli=("overwrite",),
    ),
    Verb(
        what="create, replace",
        sql="CREATE TABLE, REPLACE TABLE",
        python=("create", "createIfNotExists", "replace", "createOrReplace"),
        local=("create",),
        cli=("create",),
    ),
    Verb(
        what="delete", sql="DELETE, TRUNCATE", python=("delete",), local=("delete",), cli=("delete",), job=("delete",)
    ),
    Verb(what="update", sql="UPDATE", python=("update",), local=("update",), cli=("update",)),
    Verb(what="merge", sql="MERGE", python=("merge",), local=("merge",), cli=("merge",)),
    Verb(
        what="index records by key",
        sql=_LATER,
        python=_LATER,
        connect=_LATER,
        local=("index_records", "drop_record_index"),
        cli=("index",),
    ),
    Verb(
        what="optimize", sql="OPTIMIZE", python=("optimize",), local=("optimize",), cli=("optimize",), job=("compact",)
    ),
    Verb(what="purge", sql="REORG", python=("purge",), local=("purge",), cli="--purge of optimize"),
    Verb(what="vacuum", sql="VACUUM", python=("vacuum",), local=("vacuum",), cli=("vacuum",), job=("vacuum",)),
    Verb(
        what="erase keys for good",
        sql="(keys do not belong into texts)",
        python=("erase",),
        local=("erase",),
        cli=("erase",),
        job=("erase",),
    ),
    Verb(what="history", sql="DESCRIBE HISTORY", python=("history",), local=("history",), cli=("history",)),
    Verb(what="detail", sql="DESCRIBE DETAIL", python=("detail",), local=("detail",), cli=("detail",)),
    Verb(
        what="restore",
        sql="RESTORE",
        python=("restoreToVersion", "restoreToTimestamp"),
        local=("restore",),
        cli=("restore",),
    ),
    Verb(
        what="clone",
        sql="CREATE TABLE … CLONE",
        python=("clone", "cloneAtVersion", "cloneAtTimestamp"),
        local=("clone",),
        cli=("clone",),
    ),
    Verb(what="convert", sql="CONVERT TO DELTA", python=("convertToDelta",), local=_SPARK, cli=_SPARK),
    Verb(what="alter", sql="ALTER TABLE", python=("the statement",), local=_LATER, cli=_LATER),
    Verb(
        what="raise the protocol",
        sql="(properties of ALTER TABLE)",
        python=("upgradeTableProtocol",),
        local=_LATER,
        cli=_LATER,
    ),
    Verb(
        what="add a feature", sql="(properties of ALTER TABLE)", python=("addFeatureSupport",), local=_LATER, cli=_LATER
    ),
    Verb(
        what="drop a feature",
        sql="ALTER TABLE … DROP FEATURE",
        python=("dropFeatureSupport",),
        local=_SPARK,
        cli=_SPARK,
    ),
    Verb(what="track rows", sql="(a property of ALTER TABLE)", python=("enableRowTracking",), local=_LATER, cli=_LATER),
    Verb(
        what="sync an identity column",
        sql="ALTER TABLE … SYNC IDENTITY",
        python=("the statement",),
        local=_SPARK,
        cli=_SPARK,
    ),
    Verb(
        what="generate manifests",
        sql="GENERATE",
        python=("generate",),
        local=("generate",),
        cli=("generate",),
        job=("manifests",),
    ),
    Verb(what="check, repair", sql="FSCK REPAIR TABLE", python=("fsck",), local=("fsck",), cli=("fsck",)),
    Verb(
        what="checkpoint",
        sql="(written every tenth commit)",
        python=("checkpoint",),
        local=("checkpoint",),
        cli=("checkpoint",),
    ),
    Verb(
        what="clean the log up",
        sql="(follows a checkpoint)",
        python=("cleanup",),
        local=("cleanup",),
        cli=("cleanup",),
    ),
    Verb(what="explain", sql="EXPLAIN OPTIMIZE, EXPLAIN MERGE …", python=("the statement",), local=_SPARK, cli=_SPARK),
)


def interfaces_page() -> str:
    """Format the page of the documentation."""
    rows = []
    for verb in VERBS:
        names = [_names(cell) for cell in (verb.python, verb.connect, verb.local, verb.cli, verb.job)]
        rows.append("| " + " | ".join([verb.what, _sql(verb.sql), *names]) + " |")
    return "\n".join(
        [
            "# Which interface has which verb",
            "",
            "Generated from `pydelta/api/verbs.py`; a test compares the rows with the interfaces.",
            "Cells without a name have a reason.",
            "",
            "| verb | SQL | Python, in a session | by Spark Connect | `pydelta.open` | `pydelta` | job |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _sql(text: str) -> str:
    return text if text.startswith("(") else f"`{text}`" if "`" not in text else text


def _names(names: tuple[str, ...] | str) -> str:
    return names if isinstance(names, str) else ", ".join(f"`{name}`" for name in names)
