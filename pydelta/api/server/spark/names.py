"""Answer what names a role sees: SHOW, DESCRIBE, USE, and the lists of databases, tables and columns of JDBC."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydelta.api.access.roles import Role
from pydelta.api.server.thrift_names import NAMES
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.local_rows import local_frame
from pydelta.errors import AccessDeniedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["NAMES", "described", "names_frame", "shown_names", "use_database"]

_DEFAULT: Final = "default"
_FIELDS: Final = 3
"""Fields of DESCRIBE; where there are more, one may name a partition."""
_TABLES: Final = (
    "TABLE_CAT string, TABLE_SCHEM string, TABLE_NAME string, TABLE_TYPE string, REMARKS string, TYPE_CAT string, "
    "TYPE_SCHEM string, TYPE_NAME string, SELF_REFERENCING_COL_NAME string, REF_GENERATION string"
)
_COLUMNS: Final = (
    "TABLE_CAT string, TABLE_SCHEM string, TABLE_NAME string, COLUMN_NAME string, DATA_TYPE int, TYPE_NAME string, "
    "COLUMN_SIZE int, BUFFER_LENGTH tinyint, DECIMAL_DIGITS int, NUM_PREC_RADIX int, NULLABLE int, REMARKS string, "
    "COLUMN_DEF string, SQL_DATA_TYPE int, SQL_DATETIME_SUB int, CHAR_OCTET_LENGTH int, ORDINAL_POSITION int, "
    "IS_NULLABLE string, SCOPE_CATALOG string, SCOPE_SCHEMA string, SCOPE_TABLE string, SOURCE_DATA_TYPE smallint, "
    "IS_AUTO_INCREMENT string"
)
_SQL_TYPES: Final = {
    "boolean": 16, "tinyint": -6, "smallint": 5, "int": 4, "bigint": -5, "float": 6, "double": 8, "string": 12,
    "binary": -2, "date": 91, "timestamp": 93, "timestamp_ntz": 93, "decimal": 3, "array": 2003, "map": 2000,
    "struct": 2002,
}  # fmt: skip
_OTHER: Final = 1111
"""Numbers of java.sql.Types."""


def names_frame(spark: SparkSession, text: str, role: Role) -> DataFrame:
    """Answer a request of JDBC for names with the columns that Hive's server has.

    Raises:
        AccessDeniedError: The text is not one that ``names_statement`` makes.
    """
    try:
        found = json.loads(text)
        what, patterns = str(found["what"]), [_pattern(given) for given in found["given"]]
        answer = _ANSWERS[what]
    except (ValueError, KeyError, TypeError) as error:
        raise AccessDeniedError("Access denied: this is not a statement.", hint="Use SHOW TABLES.") from error
    return answer(spark, role, patterns)


def _pattern(given: str | None) -> re.Pattern[str]:
    """Return the pattern of JDBC as a regular expression: ``%`` is any text, ``_`` any character."""
    if given is None or given == "":
        return re.compile(".*", re.DOTALL)
    parts = re.findall(r"\\?.", given, re.DOTALL)
    words = {"%": ".*", "*": ".*", "_": "."}
    return re.compile("".join(words.get(part) or re.escape(part[-1]) for part in parts), re.DOTALL | re.IGNORECASE)


def _databases(jvm: Jvm, role: Role) -> list[str]:
    return [str(name) for name in jvm.to_list(jvm.catalog.listDatabases()) if role.sees_database(str(name))]


def _tables(jvm: Jvm, role: Role, database: str, pattern: str = "*") -> list[str]:
    """Return the tables of a database that a role may read; views are not among them."""
    catalog = jvm.catalog
    found = [item for item in jvm.to_list(catalog.listTables(database, pattern)) if item.database().isDefined()]
    seen = [item for item in found if role.grant(database, str(item.table())) is not None]
    tables = jvm.to_list(catalog.getTablesByName(jvm.seq(seen))) if seen else []
    return sorted(str(table.identifier().table()) for table in tables if str(table.tableType().name()) != "VIEW")


def _schemas_frame(spark: SparkSession, role: Role, patterns: list[re.Pattern[str]]) -> DataFrame:
    rows = [(name, "") for name in _databases(Jvm.of(spark), role) if patterns[0].fullmatch(name)]
    return local_frame(spark, rows, "TABLE_SCHEM string, TABLE_CATALOG string")


def _tables_frame(spark: SparkSession, role: Role, patterns: list[re.Pattern[str]]) -> DataFrame:
    jvm = Jvm.of(spark)
    rows = [
        ("", database, table, "TABLE", "", None, None, None, None, None)
        for database in _databases(jvm, role)
        if patterns[0].fullmatch(database)
        for table in _tables(jvm, role, database)
        if patterns[1].fullmatch(table)
    ]
    return local_frame(spark, rows, _TABLES)


def _columns_frame(spark: SparkSession, role: Role, patterns: list[re.Pattern[str]]) -> DataFrame:
    rows = []
    for row in _tables_frame(spark, role, patterns).collect():
        for place, field in enumerate(_fields(spark, row.TABLE_SCHEM, row.TABLE_NAME)):
            if not patterns[2].fullmatch(field.name):
                continue
            kind, size, digits = _jdbc_type(field.dataType)
            name, comment = field.dataType.simpleString().upper(), (field.metadata or {}).get("comment", "")
            rows.append(
                (None, row.TABLE_SCHEM, row.TABLE_NAME, field.name, kind, name, size, None, digits, 10,
                 int(field.nullable), comment, None, None, None, None, place, "YES", None, None, None, None, "NO")
            )  # fmt: skip
    return local_frame(spark, rows, _COLUMNS)


def _fields(spark: SparkSession, database: str, table: str) -> Sequence[Any]:
    from pyspark.sql.types import StructType

    from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up
    from pydelta.engines.spark.scan.travel import open_snapshot

    entry = look_up(spark, (database, table))
    if not isinstance(entry, DeltaEntry):
        return ()
    snapshot = open_snapshot(spark, entry.location, None)
    return () if snapshot.metadata is None else StructType.fromJson(json.loads(snapshot.metadata.schema_string)).fields


def _jdbc_type(given: DataType) -> tuple[int, int | None, int | None]:
    name = given.simpleString().partition("(")[0].partition("<")[0].partition(" ")[0]
    precision, scale = getattr(given, "precision", None), getattr(given, "scale", None)
    return _SQL_TYPES.get(name, _OTHER), precision, scale


_ANSWERS: Final[dict[str, Callable[[Any, Role, list[re.Pattern[str]]], Any]]] = {
    "GetSchemas": _schemas_frame, "GetTables": _tables_frame, "GetColumns": _columns_frame
}  # fmt: skip


# --- statements --------------------------------------------------------------------------------------------------


def shown_names(spark: SparkSession, node: Any, kind: str, role: Role) -> DataFrame | None:
    """Answer SHOW DATABASES and SHOW TABLES; None for another statement.

    Args:
        spark: The user's session.
        node: The statement as parsed.
        kind: Its class.
        role: The user's role.

    Raises:
        AccessDeniedError: The role may not see the database.
    """
    jvm = Jvm.of(spark)
    if kind in ("ShowNamespaces", "ShowNamespacesCommand"):
        found = set(map(str, jvm.to_list(jvm.catalog.listDatabases(_text(node.pattern()) or "*"))))
        rows = [(name,) for name in _databases(jvm, role) if name in found]
        return local_frame(spark, rows, "namespace string not null")
    if kind == "ShowTables":
        database = _database(jvm, node, role)
        names = _tables(jvm, role, database, _text(node.pattern()) or "*") if role.sees_database(database) else []
        shown = [(database, name, False) for name in names]
        return local_frame(
            spark, shown, "namespace string not null, tableName string not null, isTemporary boolean not null"
        )
    return None


def _text(option: Any) -> str | None:
    return str(option.get()) if option.isDefined() else None


def _database(jvm: Jvm, node: Any, role: Role) -> str:
    """Return the database that a statement names, or the session's current one."""
    named = node.namespace()
    if "multipartIdentifier" not in {str(method.getName()) for method in named.getClass().getMethods()}:
        return str(jvm.catalog.getCurrentDatabase())
    parts = [str(part) for part in jvm.to_list(named.multipartIdentifier())]
    database = parts[-1].lower() if parts else str(jvm.catalog.getCurrentDatabase())
    if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() != "spark_catalog"):
        _deny(".".join(parts), role)
    if not role.sees_database(database) and database != _DEFAULT:
        _deny(database, role)
    return database


def _deny(name: str, role: Role) -> None:
    raise AccessDeniedError(
        f"Access denied: the role {role.name} may not see the database {name}, or there is none.",
        hint="SHOW DATABASES lists those of your role.",
    )


def use_database(jvm: Jvm, parts: Sequence[Any], role: Role) -> None:
    """Change the session's current database.

    Raises:
        AccessDeniedError: The role may not see it.
    """
    names = [str(part).lower() for part in parts]
    if names[:-1] == ["spark_catalog"]:
        names = names[-1:]
    if names == ["spark_catalog"]:
        return
    if len(names) != 1 or not (names[0] == _DEFAULT or role.sees_database(names[0])):
        _deny(".".join(names), role)
    jvm.catalog.setCurrentDatabase(names[0])


def described(spark: SparkSession, node: Any, table: Callable[[tuple[str, ...]], Any]) -> DataFrame:
    """Answer ``DESCRIBE table`` and ``SHOW COLUMNS``: names, types and comments of columns.

    Raises:
        AccessDeniedError: The role may not read the table, or asks for more.
    """
    jvm = Jvm.of(spark)
    relation, only_names = node.child(), str(node.getClass().getSimpleName()) == "ShowColumns"
    if not only_names and (node.isExtended() or int(node.productArity()) > _FIELDS):
        raise AccessDeniedError(
            "Access denied: DESCRIBE EXTENDED and DESCRIBE … PARTITION.", hint="DESCRIBE shows the columns of a table."
        )
    parts = tuple(str(part) for part in jvm.to_list(relation.multipartIdentifier()))
    if only_names and node.namespace().isDefined():
        parts = (*(str(part) for part in jvm.to_list(node.namespace().get())), parts[-1])
    fields = jvm.frame(table(parts)).schema.fields
    if only_names:
        return local_frame(spark, [(field.name,) for field in fields], "col_name string not null")
    rows = [(field.name, field.dataType.simpleString(), (field.metadata or {}).get("comment")) for field in fields]
    return local_frame(spark, rows, "col_name string not null, data_type string not null, comment string")
