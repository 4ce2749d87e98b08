"""Find the Delta table that a change through a name reaches: a table, or one that a view shows whole and unchanged.

::

    t, delta.`/path`                                        the table itself
    a view of load(path), of table(t), of SELECT * FROM t   the table below
    one that filters, computes, renames, reads a version    refused: a change would not show in the view
    a view of anything else                                 left to Spark
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydelta.api.sql.relations import RelationResolver
from pydelta.engines.spark.catalog.lookup import DeltaEntry, ViewEntry, look_up, on_path
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.refresh import indexes_in, is_table_scan
from pydelta.engines.spark.scan.travel import open_snapshot, split_path_version
from pydelta.errors import UnsupportedFeatureError
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["change_target", "shown_table"]

_TRANSPARENT = ("SubqueryAlias", "View")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The source of a view.

    Args:
        entry: The Delta table, if the view shows it whole and unchanged.
        why: Why changes cannot go through the view, if it shows a Delta table in another way.
    """

    entry: DeltaEntry | None = None
    why: str | None = None


def change_target(spark: SparkSession, parts: tuple[str, ...]) -> DeltaEntry | None:
    """Find the table that an INSERT, UPDATE, DELETE or MERGE on a name changes; None when it is not Delta.

    Raises:
        UnsupportedFeatureError: A view shows a Delta table in part, changed, or at a fixed version.
    """
    named = on_path(spark, parts)
    found = None if named is None else look_up(spark, named)
    if not isinstance(found, ViewEntry):
        return found
    below = _below(spark, found)
    if below.why is not None:
        name = ".".join(parts)
        raise UnsupportedFeatureError(
            f"{name} is a view that {below.why}: a change made through it would not show in it.",
            features=("changes through a view",),
            hint="Change the table itself, by its name or as delta.`/path`. A view that shows a whole current table "
            "also accepts changes.",
            condition=Condition.of("DELTA_CANNOT_WRITE_INTO_VIEW", table=name),
        )
    return below.entry


def shown_table(spark: SparkSession, view: ViewEntry) -> str | None:
    """Return the location of the table that a view shows whole; None for any other view."""
    entry = _below(spark, view).entry
    return None if entry is None else entry.location


def _below(spark: SparkSession, view: ViewEntry) -> _Found:
    if view.plan is not None:
        return _scanned(spark, view)
    return _Found() if view.text is None else _selected(spark, view)


def _scanned(spark: SparkSession, view: ViewEntry) -> _Found:
    """Look through a view that stores an analyzed plan: one made from a DataFrame."""
    jvm, plan = Jvm.of(spark), view.plan
    indexes = indexes_in(jvm, plan)
    if not indexes:
        return _Found()
    if any(index.files.pinned for index in indexes):
        return _Found(why="shows a fixed version of a table")
    while str(plan.nodeName()) in _TRANSPARENT or _passes_on(jvm, plan):
        plan = jvm.to_list(plan.children())[0]
    if not is_table_scan(jvm, plan):
        return _Found(why="does not show a whole Delta table unchanged")
    shown = [str(item.name()) for item in jvm.to_list(plan.output())]
    entry = DeltaEntry(location=indexes[0].files.identity.location, qualifier=view.qualifier, by_path=True)
    return _with_columns(spark, entry, shown)


def _passes_on(jvm: Jvm, plan: Any) -> bool:
    """Return whether a node is ``SELECT *``: the columns of its child, in the same order."""
    if str(plan.nodeName()) != "Project":
        return False
    items, below = jvm.to_list(plan.projectList()), jvm.to_list(plan.child().output())
    return len(items) == len(below) and all(
        str(item.nodeName()) == "AttributeReference" and item.exprId().equals(column.exprId())
        for item, column in zip(items, below, strict=True)
    )


def _with_columns(spark: SparkSession, entry: DeltaEntry, shown: list[str]) -> _Found:
    now = open_snapshot(spark, entry.location, None).schema.names
    if list(now) != shown:
        return _Found(why=f"shows the columns {', '.join(shown)}, and the table's are {', '.join(now)}")
    return _Found(entry=entry)


def _selected(spark: SparkSession, view: ViewEntry) -> _Found:
    """Look through a view that stores its text: one created with SQL."""
    jvm = Jvm.of(spark)
    parts = _all_of(jvm, jvm.parse(view.text or ""))
    if parts is None:
        return _otherwise(spark, view)
    temporary = tuple(part.lower() for part in parts) in view.temporary
    if len(parts) == 1 and not temporary:
        on = on_path(spark, parts, view.path) if view.path is not None else (*view.namespace, *parts)
        found = None if on is None else look_up(spark, on)
    else:
        found = look_up(spark, parts)
    if found is not None and view.columns != view.query_columns:
        return _otherwise(spark, view)
    if isinstance(found, ViewEntry):
        below = _below(spark, found)
        return below if below.entry is None else _with_columns(spark, below.entry, list(view.columns))
    if found is None:
        return _otherwise(spark, view)
    if found.by_path and split_path_version(spark, found.location)[1] is not None:
        return _Found(why="shows a fixed version of a table")
    return _with_columns(spark, found, list(view.columns))


def _all_of(jvm: Jvm, plan: Any) -> tuple[str, ...] | None:
    """Return the name in ``SELECT * FROM name`` or ``TABLE name``; None for any other query."""
    if str(plan.nodeName()) == "Project":
        columns = jvm.to_list(plan.projectList())
        star = len(columns) == 1 and str(columns[0].getClass().getSimpleName()) == "UnresolvedStar"
        if not star or columns[0].target().isDefined():
            return None
        plan = plan.child()
    if str(plan.nodeName()) != "UnresolvedRelation":
        return None
    return tuple(str(part) for part in jvm.to_list(plan.multipartIdentifier()))


def _otherwise(spark: SparkSession, view: ViewEntry) -> _Found:
    reads = RelationResolver(spark).reads_delta(view)
    return _Found(why="does not show a whole Delta table unchanged" if reads else None)
