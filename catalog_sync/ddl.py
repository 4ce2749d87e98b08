"""Print the statement that creates a twin, for those who let nobody else write to their metastore. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from catalog_sync.names import TableName
from catalog_sync.twin import HiveColumn, Twin
from pydelta.protocol.names import quoted

__all__ = ["create_statement"]


def create_statement(twin: Twin, name: TableName, partitions: Iterable[str] = ()) -> str:
    """Return HiveQL that creates the external table and adds its partitions.

    Args:
        twin: What to create.
        name: Its name.
        partitions: Directories of the partitions there are.
    """
    lines = [f"CREATE EXTERNAL TABLE {quoted(name.database)}.{quoted(name.name)} (", _columns(twin.columns), ")"]
    if twin.comment:
        lines.append(f"COMMENT {_text(twin.comment)}")
    if twin.partition_columns:
        lines += ["PARTITIONED BY (", _columns(twin.partition_columns), ")"]
    lines += [
        "ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe'",
        "STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat'",
        "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat'",
        f"LOCATION {_text(twin.location)};",
    ]
    target = f"{quoted(name.database)}.{quoted(name.name)}"
    for directory in partitions:
        lines.append(
            f"ALTER TABLE {target} ADD IF NOT EXISTS PARTITION ({_spec(directory)}) "
            f"LOCATION {_text(twin.partition_location(directory))};"
        )
    return "\n".join(lines)


def _spec(directory: str) -> str:
    from pydelta.manifests import values_of_directory

    values = values_of_directory(directory).items()
    return ", ".join(
        f"{quoted(key.lower())} = {_text('__HIVE_DEFAULT_PARTITION__' if value is None else value)}"
        for key, value in values
    )


def _columns(columns: Iterable[HiveColumn]) -> str:
    return ",\n".join(
        f"  {quoted(item.name)} {item.type}" + (f" COMMENT {_text(item.comment)}" if item.comment else "")
        for item in columns
    )


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
