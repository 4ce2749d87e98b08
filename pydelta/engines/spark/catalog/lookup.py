"""Look up a name in the session's catalog: a Delta location, a view, or neither."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydelta.engines.spark.errors import condition_of
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import ParseError, TableNotFoundError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted
from pydelta.storage.uris import normalize_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DeltaEntry",
    "ViewEntry",
    "location_in",
    "location_of",
    "location_of_table",
    "look_up",
    "names_at",
    "on_path",
    "parse_identifier",
    "split_path_identifier",
    "twin_refusal",
]

PROVIDER: Final = "delta"
_SESSION_CATALOG: Final = "spark_catalog"
_TEMPORARY_VIEWS: Final = ("system", "session")
_SYMLINK_READER: Final = "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
_ICEBERG_KEY: Final = "table_type"
_TWIN_OF: Final = "pydelta.table.location"
_REMEMBERED: Final = 10_000
_names: OrderedDict[str, set[tuple[str, ...]]] = OrderedDict()
_names_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaEntry:
    """A Delta table found by name.

    Args:
        location: Root URI or path.
        qualifier: Parts that may qualify its columns.
        by_path: Whether it was named as ``delta.`/path` ``.
        twin: Whether the entry is the table over symlink manifests for Trino and Presto, or the Iceberg entry. Spark
            must not read either by Hive.
        managed: Whether the catalog owns the files, so that DROP TABLE deletes them.
        table: The entry in Spark's catalog; None for a path.
    """

    location: str
    qualifier: tuple[str, ...]
    by_path: bool = False
    twin: bool = False
    managed: bool = False
    table: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewEntry:
    """A view. ``plan`` is set if it was made from a DataFrame, ``text`` if by an SQL statement.

    Args:
        qualifier: Parts that may qualify its columns.
        plan: Analyzed plan.
        text: SQL of its query.
        columns: Its column names, in order.
        query_columns: Column names of its query when the view was created. They differ from ``columns`` if a list was
            given.
        namespace: Namespace for resolving names in ``text`` (without the catalog).
        temporary: Names in ``text`` that are temporary views. No other name is, even if one was created since.
        path: Stored path for resolving one-part names in ``text``; None for the namespace.
        relation: Builds Spark's own unresolved plan of the view.
    """

    qualifier: tuple[str, ...]
    plan: Any = None
    text: str | None = None
    columns: tuple[str, ...] = ()
    query_columns: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    temporary: frozenset[tuple[str, ...]] = frozenset()
    path: str | None = None
    relation: Callable[[], Any] | None = field(default=None, repr=False, compare=False)


def parse_identifier(spark: SparkSession, name: str) -> tuple[str, ...]:
    """Split ``db.`my table` `` into its parts by Spark's rules.

    Raises:
        ParseError: The text is not an identifier.
    """
    from pyspark.errors import ParseException

    jvm = Jvm.of(spark)
    try:
        parts = jvm.state.sqlParser().parseMultipartIdentifier(name)
    except ParseException as error:
        raise ParseError(
            f"{name!r} is not a table name.",
            hint="Write it as database.table; quote unusual parts with backticks.",
            condition=condition_of(error),
        ) from error
    return tuple(str(part) for part in jvm.to_list(parts))


def split_path_identifier(name: str) -> str | None:
    """Return the path in ``delta.`/path` ``, or None for any other name.

    Example:
        >>> split_path_identifier("delta.`/data/t`"), split_path_identifier("db.t")
        ('/data/t', None)
    """
    head, separator, rest = name.strip().partition(".")
    if not separator or head.strip("`").lower() != PROVIDER or not (rest.startswith("`") and rest.endswith("`")):
        return None
    return rest[1:-1].replace("``", "`")


def location_in(text: str) -> str | None:
    """Return the location in a name: ``delta.`/path` ``, a path or a URI. Returns None for a name in the catalog.

    Example:
        >>> location_in("s3a://bucket/t"), location_in("delta.`/data/t`"), location_in("db.t")
        ('s3a://bucket/t', '/data/t', None)
    """
    return split_path_identifier(text) or (text if "/" in text else None)


def look_up(spark: SparkSession, parts: tuple[str, ...]) -> DeltaEntry | ViewEntry | None:
    """Look up a name that may be a Delta table or a view. The result is not cached.

    The order is Spark's: temporary view, then ``delta.`/path` ``, then the session catalog.

    Returns:
        None if it is neither a Delta table nor a view.
    """
    jvm = Jvm.of(spark)
    state = jvm.state
    catalog = state.catalog()
    if len(parts) <= 2:
        raw = catalog.getRawLocalOrGlobalTempView(jvm.seq(parts))
        if raw.isDefined():
            view = raw.get()
            return _view(jvm, view.tableMeta(), view.plan(), parts, lambda: catalog.getTempViewRelation(view))
    if len(parts) == 2 and parts[0].lower() == PROVIDER and ("/" in parts[1] or ":" in parts[1]):
        return DeltaEntry(location=parts[1], qualifier=parts, by_path=True)
    if len(parts) == 3:
        if parts[0].lower() != _SESSION_CATALOG:
            return None
        parts = parts[1:]
    elif len(parts) > 3 or str(state.catalogManager().currentCatalog().name()) != _SESSION_CATALOG:
        return None
    identifier = jvm.table_identifier.apply(
        parts[-1], jvm.option.apply(parts[0] if len(parts) == 2 else None), jvm.option.apply(None)
    )
    if not catalog.tableExists(identifier):
        return None
    table = catalog.getTableMetadata(identifier)
    full = (_SESSION_CATALOG, str(table.database()), str(table.identifier().table()))
    if str(table.tableType().name()) == "VIEW":
        return _view(
            jvm, table, jvm.none, full, lambda: catalog.getRelation(table, *jvm.rest_of(catalog, "getRelation", 1))
        )
    provider = table.provider()
    if provider.isDefined() and str(provider.get()).lower() == PROVIDER:
        managed = str(table.tableType().name()) == "MANAGED"
        location = location_of_table(jvm, table)
        _remember(location, full)
        return DeltaEntry(location=location, qualifier=full, managed=managed, table=table)
    twin = _twin_location(table)
    return DeltaEntry(location=twin, qualifier=full, twin=True, table=table) if twin is not None else None


def on_path(spark: SparkSession, parts: tuple[str, ...], stored: str | None = None) -> tuple[str, ...] | None:
    """Qualify a one-part name by the session's ``SET PATH``, which Spark has since 4.3.

    Args:
        spark: The session.
        parts: The name.
        stored: The path under which a view was created, as stored in its entry.

    Returns:
        The name unchanged if there is no path or it is a temporary view; None if nothing on the path has the name.
    """
    jvm = Jvm.of(spark)
    if len(parts) != 1 or not jvm.has_paths:
        return parts
    with jvm.active():  # Whether there are paths is a setting of the active session.
        return _found_on_path(jvm, parts, stored)


def _found_on_path(jvm: Jvm, parts: tuple[str, ...], stored: str | None) -> tuple[str, ...] | None:
    manager = jvm.state.catalogManager()
    if stored is not None:
        kept = jvm.view.org.apache.spark.sql.connector.catalog.CatalogManager.deserializePathEntries(stored)
        if not kept.isDefined():
            return parts
        entries = kept.get()
    elif manager.sessionPathEntries().isDefined():
        namespace = jvm.seq(list(manager.currentNamespace()))
        entries = manager.sqlResolutionPathEntries(str(manager.currentCatalog().name()), namespace)
    else:
        return parts
    for entry in jvm.to_list(entries):
        place = tuple(str(part) for part in jvm.to_list(entry))
        if place == _TEMPORARY_VIEWS:
            if jvm.catalog.getRawLocalOrGlobalTempView(jvm.seq(parts)).isDefined():
                return parts
        elif place[0] != _TEMPORARY_VIEWS[0] and jvm.session.catalog().tableExists(quoted(*place, *parts)):
            return (*place, *parts)
    return None


def twin_refusal(name: str, entry: DeltaEntry) -> UnsupportedFeatureError:
    """Build the error that refuses to change a twin's entry, which catalog_sync maintains."""
    return UnsupportedFeatureError(
        f"{name} is the entry by which other engines read the Delta table at {entry.location}: this statement "
        "would change it behind the table's back.",
        hint="Change the table by its own name, and catalog_sync brings this entry up to date; INSERT, UPDATE, DELETE, "
        f"MERGE and DataFrame writes accept this name too. To remove the entry: catalog_sync drop {name}",
        features=(),
        table=entry.location,
    )


def names_at(table_uri: str) -> list[tuple[str, ...]]:
    """Return the names under which this process has found the table at a location. Some may be outdated."""
    with _names_lock:
        return sorted(_names.get(normalize_uri(table_uri), ()))


def _remember(location: str, name: tuple[str, ...]) -> None:
    key = normalize_uri(location)
    with _names_lock:
        if name in _names.get(key, ()):
            return
        _names.setdefault(key, set()).add(name)
        while len(_names) > _REMEMBERED:
            _names.popitem(last=False)


def _twin_location(table: Any) -> str | None:
    """Return the location of the Delta table that an entry shows through symlink manifests or Iceberg metadata.

    Returns:
        None for any other entry.
    """
    properties, reader = table.properties(), table.storage().inputFormat()
    location, kind = properties.get(_TWIN_OF), properties.get(_ICEBERG_KEY)
    is_symlink = reader.isDefined() and str(reader.get()) == _SYMLINK_READER
    is_iceberg = kind.isDefined() and str(kind.get()).upper() == "ICEBERG"
    if not location.isDefined() or not (is_symlink or is_iceberg):
        return None
    return str(location.get())


def _view(jvm: Jvm, table: Any, plan: Any, qualifier: tuple[str, ...], relation: Callable[[], Any]) -> ViewEntry:
    if plan.isDefined():
        return ViewEntry(qualifier=qualifier, plan=plan.get())
    text = table.viewText()
    names = [field["name"] for field in json.loads(str(table.schema().json()))["fields"]]
    namespace = [str(part) for part in jvm.to_list(table.viewCatalogAndNamespace())]
    temporary = jvm.to_list(table.viewReferredTempViewNames())
    return ViewEntry(
        qualifier=qualifier,
        text=_text(text),
        columns=tuple(names),
        query_columns=tuple(str(name) for name in jvm.to_list(table.viewQueryColumnNames())) or tuple(names),
        namespace=tuple(namespace[1:]),
        temporary=frozenset(tuple(str(part).lower() for part in jvm.to_list(name)) for name in temporary),
        path=_text(table.viewStoredResolutionPath()) if jvm.has_paths else None,
        relation=relation,
    )


def _text(option: Any) -> str | None:
    return str(option.get()) if option.isDefined() else None


def location_of_table(jvm: Jvm, table: Any) -> str:
    """Return the location of the files of an entry in Spark's catalog.

    Raises:
        TableNotFoundError: The entry has no location.
    """
    storage = table.storage()
    uri = storage.locationUri()
    if uri.isDefined():
        return jvm.path_text(uri.get())
    path = storage.properties().get("path")
    if path.isDefined():
        return str(path.get())
    raise TableNotFoundError(
        f"The catalog entry {table.identifier().unquotedString()} has no location.",
        hint="Drop the entry and create it again with a LOCATION.",
    )


def location_of(spark: SparkSession, name: str) -> str:
    """Return the location of the Delta table with this name.

    Args:
        spark: The session.
        name: ``table``, ``database.table`` or ``delta.`/path` ``.

    Raises:
        TableNotFoundError: The catalog does not know the table, or it is not a Delta table.
    """
    entry = look_up(spark, parse_identifier(spark, name))
    if isinstance(entry, DeltaEntry):
        return entry.location
    what = "is a view" if isinstance(entry, ViewEntry) else "is not a Delta table in the session's catalog"
    raise TableNotFoundError(
        f"{name} {what}.",
        hint="Check the database (spark.catalog.currentDatabase()) and the name, or use the path: delta.`/path`.",
        condition=Condition.of("DELTA_MISSING_DELTA_TABLE", tableName=name),
    )
