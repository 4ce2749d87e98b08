"""A view in, the Delta table that it shows whole and unchanged out, so that ``forName`` takes its name too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydelta.spark.catalog import DeltaEntry, ViewEntry, look_up
from pydelta.spark.jvm import Jvm
from pydelta.spark.refresh import indexes_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["location_behind"]

_TRANSPARENT = ("SubqueryAlias", "View")


def location_behind(spark: SparkSession, view: ViewEntry) -> str | None:
    """Where the table of ``SELECT * FROM table`` or of ``DataFrame.createTempView`` lies.

    Returns:
        None for a view that filters, joins, renames or leaves columns out, or that shows an older version: a change
        made through it would not be one of what it shows.
    """
    if view.plan is not None:
        return _scanned(view.plan)
    return None if view.text is None else _selected(spark, view)


def _scanned(plan: Any) -> str | None:
    while str(plan.nodeName()) in _TRANSPARENT:
        plan = plan.child()
    if plan.children().size() > 0:
        return None
    index = next(iter(indexes_in(plan)), None)
    if index is None or index.files.pinned or index.files.identity.subset:
        return None
    return index.files.identity.location


def _selected(spark: SparkSession, view: ViewEntry) -> str | None:
    jvm = Jvm.of(spark)
    plan = jvm.parse(view.text or "")
    if str(plan.nodeName()) != "Project":
        return None
    columns = jvm.to_list(plan.projectList())
    whole = len(columns) == 1 and str(columns[0].getClass().getSimpleName()) == "UnresolvedStar"
    if not whole or columns[0].target().isDefined() or str(plan.child().nodeName()) != "UnresolvedRelation":
        return None
    parts = tuple(str(part) for part in jvm.to_list(plan.child().multipartIdentifier()))
    temporary = jvm.session.sessionState().catalog().getRawLocalOrGlobalTempView(jvm.seq(parts)).isDefined()
    found = look_up(spark, (*view.namespace, *parts) if len(parts) == 1 and not temporary else parts)
    if isinstance(found, DeltaEntry):
        return found.location
    return location_behind(spark, found) if isinstance(found, ViewEntry) else None
