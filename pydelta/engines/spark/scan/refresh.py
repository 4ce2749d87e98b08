"""Find the scans of Delta tables in an analysed plan, or move them to the newest versions of their tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.deleted_rows import is_vector_scan
from pydelta.engines.spark.scan.index import TABLE_SCAN, DeltaFileIndex, find_index
from pydelta.engines.spark.scan.row_metadata import ROW_METADATA, is_tracked_scan, moved_scan, plain_scan
from pydelta.engines.spark.scan.scan import Reading, physical_scan
from pydelta.engines.spark.scan.schemas import changes_since, columns_as_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.log import Snapshot

__all__ = [
    "ANSWERED", "PlanFunction", "all_scans_in", "following", "indexes_in", "is_table_scan", "lowered", "reads_table",
    "scans_in", "transform", "with_newest",
]  # fmt: skip

ANSWERED: Final = "pydelta.answered"
"""Mark of a node that replaces an aggregate answered from statistics. Its value is the aggregate."""


class PlanFunction:
    """A Scala ``PartialFunction`` from plan to plan.

    Args:
        replace: Function that returns a node's replacement, or None to keep it.
    """

    class Java:
        """py4j: the interface that this object implements for the JVM."""

        implements = ("scala.PartialFunction",)

    def __init__(self, replace: Callable[[Any, str], Any]) -> None:
        self._replace = replace
        self.error: BaseException | None = None

    def applyOrElse(self, plan: Any, default: Any) -> Any:  # noqa: N802
        """Return the replacement, or the node itself. The first error is kept for ``transform`` to raise."""
        if self.error is not None:
            return plan
        try:
            replaced = self._replace(plan, str(plan.nodeName()))
        except BaseException as error:  # noqa: BLE001  raised again by transform
            self.error = error
            return plan
        return plan if replaced is None else replaced

    def isDefinedAt(self, plan: Any) -> bool:  # noqa: N802
        """Return true for every plan."""
        return True

    def apply(self, plan: Any) -> Any:
        """Apply as ``applyOrElse`` does."""
        return self.applyOrElse(plan, None)

    def toString(self) -> str:  # noqa: N802
        """Return a name for logs."""
        return "PlanFunction"


def transform(plan: Any, replace: Callable[[Any, str], Any]) -> Any:
    """Replace nodes of a plan from the top down, inside subqueries too.

    Raises:
        BaseException: The first error of ``replace``, which cannot pass through the JVM itself.
    """
    return _applied(replace, plan.transformDownWithSubqueries)


def transform_expression(expression: Any, replace: Callable[[Any, str], Any]) -> Any:
    """Replace parts of an expression from the top down. Raises as ``transform`` does."""
    return _applied(replace, expression.transformDown)


def _applied(replace: Callable[[Any, str], Any], walk: Callable[[PlanFunction], Any]) -> Any:
    function = PlanFunction(replace)
    result = walk(function)
    if function.error is not None:
        raise function.error
    return result


def indexes_in(plan: Any) -> list[DeltaFileIndex]:
    """Find the engine's scans among a plan's leaves, but not inside subquery expressions."""
    leaves = plan.collectLeaves()
    found = (_index_of(leaves.apply(position)) for position in range(leaves.size()))
    return [index for index in found if index is not None]


def _index_of(node: Any, name: str | None = None) -> DeltaFileIndex | None:
    if (name or str(node.nodeName())).split(" ", 1)[0] not in ("LogicalRelation", "Relation"):
        return None
    relation = node.relation()
    if str(relation.getClass().getSimpleName()) != "HadoopFsRelation":
        return None
    return find_index(relation.location())


def reads_table(jvm: Jvm, plan: Any, location: str) -> bool:
    """Return whether an analysed plan reads a table, in its subqueries too, or was answered by its statistics.

    Args:
        jvm: The session's bindings.
        plan: The plan.
        location: Root URI of the table.
    """
    found: set[str] = set()

    def look(node: Any, name: str) -> None:
        answered = node.getTagValue(jvm.tag(ANSWERED)) if name == "Project" else None
        if answered is not None and answered.isDefined():
            transform(answered.get(), look)
        index = _index_of(node, name)
        if index is not None:
            found.add(index.files.identity.location)

    transform(plan, look)
    return location in found


def is_table_scan(jvm: Jvm, plan: Any) -> bool:
    """Return whether a node of an analysed plan is a scan by ``scan_dataframe`` of all files and columns of a table."""
    if is_tracked_scan(jvm, plan):
        return True
    if plan.getTagValue(jvm.tag(TABLE_SCAN)).isDefined() or is_vector_scan(jvm, plan):
        return all(index.files.shared for index in indexes_in(plan))
    index = _index_of(plan)
    return index is not None and index.files.shared and not index.files.identity.subset


def scans_in(jvm: Jvm, plan: Any) -> list[DeltaFileIndex]:
    """Find the scans of an analysed plan that follow their tables, also in subqueries and in answered aggregates."""
    return following(all_scans_in(jvm, plan))


def following(scans: Sequence[DeltaFileIndex]) -> list[DeltaFileIndex]:
    """Return the scans that follow their tables. The others read a version that was named, or belong to a command."""
    return [index for index in scans if not index.files.pinned and not index.files.fixed]


def all_scans_in(jvm: Jvm, plan: Any) -> list[DeltaFileIndex]:
    """Find the engine's scans in an analysed plan, also in subqueries and in answered aggregates."""
    if not jvm.calls.may_read_files(plan):
        return []
    leaves = jvm.to_list(plan.collectLeaves())
    names = [str(leaf.nodeName()) for leaf in leaves]
    found = [_index_of(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    if "OneRowRelation" in names or jvm.reads_subquery(plan):

        def look(node: Any, name: str) -> None:
            answered = node.getTagValue(jvm.tag(ANSWERED)) if name == "Project" else None
            if answered is not None and answered.isDefined():
                transform(answered.get(), look)
            found.append(_index_of(node, name))

        transform(plan, look)
    return [index for index in found if index is not None]


def lowered(jvm: Jvm, plan: Any, scans: Sequence[DeltaFileIndex]) -> Any:
    """Replace tracked scans of an analysed plan by plain scans if it does not read their ``_metadata``.

    A tracked scan carries values per file, which keeps files from sharing a partition row.

    Args:
        jvm: The session's bindings.
        plan: The plan.
        scans: The scans of the plan, from ``all_scans_in``.
    """
    if not any(index.files.identity.subset.startswith(ROW_METADATA) for index in scans):
        return plan

    def plain(node: Any, name: str) -> Any:
        if name != "Project" or not is_tracked_scan(jvm, node):
            return None
        return plain_scan(jvm, node, indexes_in(node)[0])

    return transform(plan, plain)


def with_newest(
    spark: SparkSession, plan: Any, newest: Callable[[DeltaFileIndex], Snapshot | None], *, fix: bool = False
) -> Any:
    """Move each unpinned scan of an analysed plan to another version of its table, usually the newest.

    Args:
        spark: The session.
        plan: Analysed plan.
        newest: Function that returns a scan's new version, or None to leave it unchanged.
        fix: Whether the scans stay at that version from then on.

    Returns:
        The plan itself if no scan moved, or None if a table's columns changed so that the plan, analysed against the
        old ones, cannot be moved.
    """
    jvm = Jvm.of(spark)
    changed = {"columns": False, "any": False}

    def newer(node: Any, name: str) -> Any:
        if name == "Project" and node.getTagValue(jvm.tag(ANSWERED)).isDefined():
            if fix:  # It is already at the version.
                return jvm.project(node.projectList(), node.child())
            asked = node.getTagValue(jvm.tag(ANSWERED)).get()
            now = transform(asked, newer)
            return None if now is asked or now.equals(asked) else now
        index = _index_of(node, name)
        if index is None and name == "Project" and is_vector_scan(jvm, node):
            index = next((item for item in indexes_in(node) if item.files.shared), None)
        elif name == "Project" and is_tracked_scan(jvm, node):
            index = indexes_in(node)[0]
        elif index is not None and index.files.identity.subset:
            # It is below the top of a vector scan, or belongs to a command.
            return None
        if index is None or index.files.pinned or index.files.fixed:
            return None
        snapshot = newest(index)
        if snapshot is None or snapshot.metadata is None:
            return None
        if (snapshot.version, snapshot.metadata.id) == index.version_and_id and not fix:
            return None
        moved = None if changes_since(index.files.snapshot, snapshot) else _moved(jvm, node, name, snapshot, index, fix)
        changed["columns" if moved is None else "any"] = True
        return moved

    result = transform(plan, newer)
    if changed["columns"]:
        return None
    return result if changed["any"] else plan


def _moved(jvm: Jvm, node: Any, name: str, snapshot: Snapshot, index: DeltaFileIndex, fix: bool) -> Any | None:
    """Replace an older scan by one of a snapshot with the same columns, or return None if it lacks them.

    New columns do not appear, because plans over the older scan do not know them.
    """
    schema = columns_as_of(index.files.snapshot, snapshot)
    reading = replace(Reading.whole(snapshot), schema=schema, fixed=fix, storage=index.files.storage)
    if name == "Project" and is_tracked_scan(jvm, node):
        return moved_scan(jvm, node, snapshot, reading)
    output = {str(item.name()): item for item in jvm.to_list(node.output())}
    ids = {column: item.exprId() for column, item in output.items()}
    scanned = physical_scan(jvm.spark, snapshot, reading, ids=ids)._jdf.queryExecution().analyzed()
    if not _same_columns(jvm, scanned.output(), node.output()):
        return _narrowed(jvm, scanned, output)
    if is_vector_scan(jvm, scanned):
        return scanned
    if name == "Project":  # The table had vectors and has none now.
        columns = {str(item.name()): item for item in jvm.to_list(scanned.output())}
        if "_metadata" in output:
            columns["_metadata"] = jvm.to_list(scanned.metadataOutput())[0]
            scanned = scanned.withMetadataColumns()
        return jvm.project(jvm.seq([jvm.alias(columns[column], ids[column]) for column in output]), scanned)
    rest = jvm.rest_of(node, "copy", 4)
    return node.copy(scanned.relation(), node.output(), node.catalogTable(), node.isStreaming(), *rest)


def _narrowed(jvm: Jvm, scanned: Any, output: dict[str, Any]) -> Any | None:
    """Give a scan the columns, names and ids of an older one, or return None if it lacks them."""
    columns = {str(item.name()): item for item in jvm.to_list(scanned.output())}
    for column, old in output.items():
        if column == "_metadata":
            continue
        new = columns.get(column)
        if new is None or not new.dataType().equals(old.dataType()) or (new.nullable() and not old.nullable()):
            return None
    if "_metadata" in output:
        columns["_metadata"] = jvm.to_list(scanned.metadataOutput())[0]
        scanned = scanned.withMetadataColumns()

    def named(new: Any, old: Any) -> Any:
        return new if new.exprId().equals(old.exprId()) else jvm.alias(new, old.exprId())

    return jvm.project(jvm.seq([named(columns[column], old) for column, old in output.items()]), scanned)


def _same_columns(jvm: Jvm, first: Any, second: Any) -> bool:
    def described(output: Any) -> list[tuple[str, str, str]]:
        return [
            (str(item.name()), str(item.dataType().json()), str(item.metadata().json()))
            for item in jvm.to_list(output)
            if str(item.name()) != "_metadata"
        ]

    return described(first) == described(second)
