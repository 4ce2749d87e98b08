"""Copy Spark's catalog case classes by parameter name, and get the session's Hive client. Used to write entries."""

from __future__ import annotations

import re
from typing import Any

from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.errors.conditions import Condition

__all__ = [
    "catalog_object",
    "check_new_name",
    "copy_of",
    "default_place",
    "hive_client",
    "table_identifier",
    "text_map",
]

_names: dict[str, list[str]] = {}


def catalog_object(jvm: Jvm, name: str) -> Any:
    """Return a Scala object of Spark's catalog package."""
    package = jvm.view.org.apache.spark.sql.catalyst.catalog
    return getattr(getattr(package, name + "$"), "MODULE$")


def copy_of(target: Any, **changes: Any) -> Any:
    """Call ``target.copy(name = value, …)`` of a Scala case class, whatever parameters this Spark version has."""
    kind = str(target.getClass().getName())
    if kind not in _names:
        _names[kind] = [str(target.productElementName(place)) for place in range(target.productArity())]
    names = _names[kind]
    assert set(changes) <= set(names), f"{kind} has no {sorted(set(changes) - set(names))}"
    values = [
        changes[name] if name in changes else getattr(target, f"copy$default${place}")()
        for place, name in enumerate(names, 1)
    ]
    return target.copy(*values)


def hive_client(jvm: Jvm) -> Any | None:
    """Return the session's client of its Hive Metastore; None for Spark's in-memory catalog."""
    external = jvm.session.sharedState().externalCatalog().unwrapped()
    if not str(external.getClass().getName()).endswith(".HiveExternalCatalog"):
        return None
    return external.client()


def table_identifier(jvm: Jvm, database: str, table: str) -> Any:
    """Return a ``TableIdentifier`` in the session's catalog."""
    return jvm.table_identifier.apply(table, jvm.option.apply(database), jvm.option.apply(None))


def default_place(jvm: Jvm, identifier: Any) -> str:
    """Return the URI of the catalog's default location for a table of this name."""
    return str(jvm.catalog.defaultTablePath(identifier).toString())


def check_new_name(jvm: Jvm, identifier: Any) -> None:
    """Refuse a name that the catalog does not accept, before anything is written for its table.

    Args:
        jvm: The session's JVM.
        identifier: A ``TableIdentifier`` with its database.

    Raises:
        InvalidArgumentError: Spark's catalog accepts only letters, digits and underscores.
        TableNotFoundError: The database does not exist.
    """
    database, table = str(identifier.database().get()), str(identifier.table())
    if re.fullmatch(r"[0-9A-Za-z_]+", table) is None:
        raise InvalidArgumentError(
            f"{table!r} is not a valid name of a table in the session's catalog.",
            hint="Use only letters, digits and underscores. A table at a path can have any name: "
            "CREATE TABLE delta.`/path/of/the/table`.",
            condition=Condition.of("INVALID_SCHEMA_OR_RELATION_NAME", name=f"`{table}`"),
        )
    if not jvm.catalog.databaseExists(database):
        raise TableNotFoundError(
            f"There is no database {database}.",
            hint=f"Create it first: CREATE DATABASE {database}.",
            condition=Condition.of("SCHEMA_NOT_FOUND", schemaName=database),
        )


def text_map(jvm: Jvm, scala_map: Any) -> dict[str, str]:
    """Convert a Scala map of strings to a dict."""
    return {str(key): str(value) for key, value in jvm.to_dict(jvm.python_utils_map(scala_map)).items()}
