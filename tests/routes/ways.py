"""Carry out a command by one way into the engine: SQL, the API of a session, or no session at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow.parquet as pq

import pydelta
from pydelta.errors import ParseError, UnsupportedFeatureError
from pydelta.tables import DeltaTable, IdentityGenerator
from tests.routes.commands import Column, Command, Table
from tests.routes.conditions import quoted

__all__ = ["Api", "Local", "NotTaken", "Sql", "Way"]

_DDL: Final = {
    "byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT",
}  # fmt: skip


class NotTaken(Exception):
    """This way does not offer the command, or refuses it as one for a session."""


class Way(Protocol):
    """A way into the engine."""

    name: str

    def create(self, table: Table, path: str) -> None:
        """Make the table."""

    def run(self, command: Command, path: str, rows: Path) -> None:
        """Carry out a command; its rows are in a Parquet file, too."""


class Sql:
    """Statements."""

    def __init__(self, spark: Any, name: str = "sql") -> None:
        self._spark, self.name = spark, name

    def create(self, table: Table, path: str) -> None:
        """See ``Way``."""
        columns = ", ".join(map(_definition, table.columns))
        text = f"CREATE TABLE delta.`{path}` ({columns}) USING delta"
        if table.partition_by:
            text += f" PARTITIONED BY ({', '.join(map(quoted, table.partition_by))})"
        if table.properties:
            pairs = ", ".join(f"'{key}' = '{value}'" for key, value in table.properties.items())
            text += f" TBLPROPERTIES ({pairs})"
        self._spark.sql(text)
        _add_checks(self._spark, table, path)

    def run(self, command: Command, path: str, rows: Path) -> None:
        """See ``Way``."""
        self._spark.sql(self._statement(command, f"delta.`{path}`", rows)).collect()

    def _statement(self, command: Command, name: str, rows: Path) -> str:
        where = "" if command.where is None else f" WHERE {command.where}"
        if command.rows is not None:
            given = ", ".join(map(quoted, command.rows.plain.column_names))
            source = f"SELECT {given} FROM parquet.`{rows}`"
        match command.kind:
            case "append":
                return f"INSERT INTO {name} ({given}) {source}"
            case "overwrite":
                return f"INSERT OVERWRITE {name} ({given}) {source}"
            case "replace where":
                return f"INSERT INTO {name} BY NAME REPLACE WHERE {command.where} {source}"
            case "delete":
                return f"DELETE FROM {name}{where}"
            case "update":
                pairs = ", ".join(f"{key} = {value}" for key, value in command.values.items())
                return f"UPDATE {name} SET {pairs}{where}"
            case "merge":
                return f"MERGE INTO {name} AS t USING ({source}) AS s ON t.id = s.id{_clauses(command)}"
            case "optimize":
                order = f" ZORDER BY ({', '.join(map(quoted, command.names))})" if command.names else ""
                return f"OPTIMIZE {name}{order}"
            case "purge":
                return f"REORG TABLE {name} APPLY (PURGE)"
            case "restore":
                return f"RESTORE TABLE {name} TO VERSION AS OF {command.version}"
            case "vacuum":
                return f"VACUUM {name}"
        return f"ALTER TABLE {name} {command.text}"


class Api:
    """Methods of ``DeltaTable`` and of data frames; of a remote session, those of its own."""

    def __init__(self, spark: Any, functions: Any, name: str = "api") -> None:
        self._spark, self._functions, self.name = spark, functions, name

    def create(self, table: Table, path: str) -> None:
        """See ``Way``."""
        builder = DeltaTable.create(self._spark).location(path)
        for column in table.columns:
            named: dict[str, Any] = {"generatedAlwaysAs": column.made} if column.made else {}
            if column.identity:
                always = column.identity == "ALWAYS"
                named = {"generatedAlwaysAs" if always else "generatedByDefaultAs": IdentityGenerator()}
            builder = builder.addColumn(column.name, ddl(column.kind), column.nullable, **named)
        builder = builder.partitionedBy(*table.partition_by) if table.partition_by else builder
        for key, value in table.properties.items():
            builder = builder.property(key, value)
        builder.execute()
        _add_checks(self._spark, table, path)

    def run(self, command: Command, path: str, rows: Path) -> None:
        """See ``Way``."""
        table = DeltaTable.forPath(self._spark, path)
        where: Any = self._expression(command.where, command)
        match command.kind:
            case "append" | "overwrite" | "replace where":
                writer = self._spark.read.parquet(str(rows)).write.format("delta")
                if command.kind == "replace where":
                    writer = writer.option("replaceWhere", command.where)
                writer.mode("append" if command.kind == "append" else "overwrite").save(path)
            case "delete":
                table.delete(where)
            case "update":
                table.update(where, {key: self._expression(value, command) for key, value in command.values.items()})
            case "merge":
                self._merge(table, command, rows)
            case "optimize" if command.names:
                table.optimize().executeZOrderBy(*map(quoted, command.names))
            case "optimize":
                table.optimize().executeCompaction()
            case "purge":
                table.purge()
            case "restore":
                table.restoreToVersion(command.version)
            case "vacuum":
                table.vacuum()
            case _:
                self._spark.sql(f"ALTER TABLE delta.`{path}` {command.text}")

    def _expression(self, text: str | None, command: Command) -> Any:
        return self._functions.expr(text) if command.as_columns and text is not None else text

    def _merge(self, table: Any, command: Command, rows: Path) -> None:
        source = self._spark.read.parquet(str(rows)).alias("s")
        builder = table.alias("t").merge(source, self._expression("t.id = s.id", command))
        matched, new, rest = command.clauses
        pairs = _pairs(command)
        if matched:
            builder = builder.whenMatchedDelete() if matched == "delete" else builder.whenMatchedUpdate(set=pairs)
        builder = builder.whenNotMatchedInsert(values=pairs) if new else builder
        (builder.whenNotMatchedBySourceDelete() if rest else builder).execute()


class Local:
    """``pydelta.open``: no session and no JVM."""

    name = "no JVM"

    def create(self, table: Table, path: str) -> None:
        """See ``Way``."""
        raise NotTaken("tables are made by a session")

    def run(self, command: Command, path: str, rows: Path) -> None:
        """See ``Way``."""
        table = pydelta.open(path)
        try:
            match command.kind:
                case "append":
                    assert command.rows is not None
                    table.append(command.rows.odd)
                case "overwrite":
                    assert command.rows is not None
                    table.overwrite(command.rows.odd)
                case "replace where":
                    assert command.rows is not None
                    table.overwrite(command.rows.odd, command.where)
                case "restore":
                    table.restore(command.version)
                case "delete":
                    table.delete(command.where)
                case "update":
                    table.update(command.where, command.values)
                case "merge":
                    assert command.rows is not None
                    names = ("matched", "not_matched", "not_matched_by_source")
                    how = {name: said or None for name, said in zip(names, command.clauses, strict=True)}
                    table.merge(command.rows.odd, on="id", **how)
                case "optimize":
                    table.optimize(zorder_by=[quoted(name) for name in command.names])
                case "purge":
                    table.purge()
                case "vacuum":
                    table.vacuum()
                case _:
                    raise NotTaken(command.kind)
        except UnsupportedFeatureError as refused:
            raise NotTaken(str(refused)) from refused
        except ParseError as refused:
            if "CAST(" not in f"{command.where} {command.values}":  # how a value without end is written
                raise
            raise NotTaken(str(refused)) from refused


def ddl(kind: Any) -> str:
    """Write a type as SQL has it, with names in quotes."""
    inner = getattr(kind, "name", "")
    if hasattr(kind, "fields"):
        return f"STRUCT<{', '.join(f'{quoted(item.name)}: {ddl(item.data_type)}' for item in kind.fields)}>"
    if hasattr(kind, "element_type"):
        return f"ARRAY<{ddl(kind.element_type)}>"
    if hasattr(kind, "key_type"):
        return f"MAP<{ddl(kind.key_type)}, {ddl(kind.value_type)}>"
    return _DDL.get(inner, str(kind).upper())


def _definition(column: Column) -> str:
    text = f"{quoted(column.name)} {ddl(column.kind)}"
    if column.made:
        return f"{text} GENERATED ALWAYS AS ({column.made})"
    if column.identity:
        return f"{text} GENERATED {column.identity} AS IDENTITY"
    return text if column.nullable else f"{text} NOT NULL"


def _add_checks(spark: Any, table: Table, path: str) -> None:
    for name, text in table.checks.items():
        spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT {quoted(name)} CHECK ({text})")


def _pairs(command: Command) -> dict[str, str]:
    assert command.rows is not None
    return {quoted(name): f"s.{quoted(name)}" for name in command.rows.plain.column_names}


def _clauses(command: Command) -> str:
    matched, new, rest = command.clauses
    pairs = _pairs(command)
    text = ""
    if matched:
        sets = ", ".join(f"{key} = {value}" for key, value in pairs.items())
        text += f" WHEN MATCHED THEN {'DELETE' if matched == 'delete' else f'UPDATE SET {sets}'}"
    if new:
        text += f" WHEN NOT MATCHED THEN INSERT ({', '.join(pairs)}) VALUES ({', '.join(pairs.values())})"
    return f"{text} WHEN NOT MATCHED BY SOURCE THEN DELETE" if rest else text


def write_rows(command: Command, path: Path) -> None:
    """Write the rows of a command into a Parquet file."""
    if command.rows is not None:
        pq.write_table(command.rows.plain, path)
