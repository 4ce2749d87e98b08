"""Make the data and the queries of TPC-H and TPC-DS, by DuckDB's generators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["generate", "queries", "write_both"]


def _connection(kind: str) -> Any:
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect()
    import_extension(kind, con=connection)
    return connection


def generate(kind: str, scale: float, folder: Path) -> list[str]:
    """Write each table as one Parquet file ``TABLE.parquet``, where it is not there yet.

    Args:
        kind: ``tpch`` or ``tpcds``.
        scale: 1 is a gigabyte of text.
        folder: Is made.

    Returns:
        The tables' names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    connection = _connection(kind)
    if not (folder / "done").exists():
        connection.sql(f"CALL {'dbgen' if kind == 'tpch' else 'dsdgen'}(sf={scale})")
        for (name,) in connection.sql("SHOW TABLES").fetchall():
            connection.sql(f"COPY {name} TO '{folder / name}.parquet' (FORMAT parquet)")
        (folder / "done").touch()
    return sorted(path.stem for path in folder.glob("*.parquet"))


def queries(kind: str) -> dict[int, str]:
    """Return the queries by number, in words that Spark knows."""
    found = _connection(kind).sql(f"SELECT query_nr, query FROM {kind}_queries()").fetchall()
    return {number: text.strip().rstrip(";") for number, text in found}


def write_both(spark: Any, source: Path, tables: list[str], parquet: str, delta: str) -> None:
    """Write the same rows as plain Parquet and as Delta tables, both by Spark, in as many files, if they are missing.

    Args:
        spark: An enabled session.
        source: What ``generate`` wrote.
        tables: Their names.
        parquet: Folder of the plain ones.
        delta: Folder of the tables.
    """
    for name in tables:
        if Path(delta, name, "_delta_log").exists():
            continue
        rows = spark.read.parquet(f"{source}/{name}.parquet")
        rows = rows.repartition(4) if (source / f"{name}.parquet").stat().st_size > 16 << 20 else rows.coalesce(1)
        rows.write.parquet(f"{parquet}/{name}")
        rows.write.format("delta").save(f"{delta}/{name}")
