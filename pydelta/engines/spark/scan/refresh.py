"""Find the scans of Delta tables in an analysed plan, or move them to the newest versions of their tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydelta.engines.spark.java_objects import JavaObject
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.deleted_rows import is_vector_scan
from pydelta.engines.spark.scan.index import TABLE_SCAN, DeltaFileIndex, live_index
from pydelta.engines.spark.scan.row_metadata import ROW_METADATA, is_tracked_scan, moved_scan, plain_scan
from pydelta.engines.spark.scan.scan import Reading, physical_scan
from pydelta.engines.spark.scan.schemas import changes_since, columns_as_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.log import Snapshot

__all__ = [
    "ANSWERED", "RELATIONS", "all_scans_in", "following", "indexes_in", "is_table_scan", "lowered", "map_expressions",
    "reads_table", "scans_in", "transform", "with_newest",
]  # fmt: skip

ANSWERED: Final = "pydelta.answered"
"""Mark of a node that replaces an aggregate answered from statistics. Its value is the aggregate."""
Replace: TypeAlias = Callable[[Any, str], Any]
RELATIONS: Final = ("LogicalRelation", "Relation")
"""First words of the names of a plan's nodes that may be scans."""
_SCANNING: Final = ("Project", *RELATIONS)
"""Kinds of nodes that are scans or have the mark above."""


class _Replacing(JavaObject):
    """A function that the JVM calls for nodes. The first error, which cannot pass through the JVM, is kept."""

    class Java:
        """py4j: the interface that this object implements for the JVM."""

        implements = ("java.util.function.BiFunction",)

    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._error: BaseException | None = None

    def apply(self, node: Any, name: str) -> Any:
        """Return the node's replacement, or None to keep it."""
        if self._error is not None:
            return None
        try:
            return self._replace(node, name)
        except BaseException as error:  # noqa: BLE001  raised again by applied
            self._error = error
            return None

    def applied(self, result: Any) -> Any:
        """Return the result of the JVM's call, or raise the error that it does not know."""
        if self._error is not None:
            raise self._error
        return result


def transform(jvm: Jvm, tree: Any, replace: Replace, kinds: Sequence[str] = ()) -> Any:
    """Replace nodes of a plan or of an expression from the top down, in a plan's subqueries too.

    Args:
        jvm: The session's bindings.
        tree: The plan or the expression.
        replace: Function of a node and its name that returns the node's replacement, or None to keep it.
        kinds: First words of the names of the nodes that it is called for, or none for all.

    Raises:
        BaseException: The first error of ``replace``.
    """
    replacing = _Replacing(replace)
    return replacing.applied(jvm.calls.transform(tree, replacing, kinds))


def map_expressions(jvm: Jvm, node: Any, replace: Replace) -> Any:
    """Replace the expressions of a plan's node, each as a whole. Raises as ``transform`` does."""
    replacing = _Replacing(replace)
    return replacing.applied(jvm.calls.map_expressions(node, replacing))


def indexes_in(jvm: Jvm, plan: Any) -> list[DeltaFileIndex]:
    """Find the engine's scans among a plan's leaves, but not inside subquery expressions."""
    return _numbered(jvm.calls.scans(plan))


def _numbered(scans: str) -> list[DeltaFileIndex]:
    found = (live_index(int(number)) for number in scans.removeprefix("*").split())
    return [index for index in found if index is not None]


def _index_of(jvm: Jvm, node: Any, name: str) -> DeltaFileIndex | None:
    if name.split(" ", 1)[0] not in RELATIONS:
        return None
    return next(iter(indexes_in(jvm, node)), None)


def reads_table(jvm: Jvm, plan: Any, location: str) -> bool:
    """Return whether an analysed plan reads a table, in its subqueries too, or was answered by its statistics.

    Args:
        jvm: The session's bindings.
        plan: The plan.
        location: Root URI of the table.
    """
    return any(index.files.identity.location == location for index in all_scans_in(jvm, plan))


def is_table_scan(jvm: Jvm, plan: Any) -> bool:
    """Return whether a node of an analysed plan is a scan by ``scan_dataframe`` of all files and columns of a table."""
    if is_tracked_scan(jvm, plan):
        return True
    if plan.getTagValue(jvm.tag(TABLE_SCAN)).isDefined() or is_vector_scan(jvm, plan):
        return all(index.files.shared for index in indexes_in(jvm, plan))
    index = _index_of(jvm, plan, str(plan.nodeName()))
    return index is not None and index.files.shared and not index.files.identity.subset


def scans_in(jvm: Jvm, plan: Any) -> list[DeltaFileIndex]:
    """Find the scans of an analysed plan that follow their tables, also in subqueries and in answered aggregates."""
    return following(all_scans_in(jvm, plan))


def following(scans: Sequence[DeltaFileIndex]) -> list[DeltaFileIndex]:
    """Return the scans that follow their tables. The others read a version that was named, or belong to a command."""
    return [index for index in scans if not index.files.pinned and not index.files.fixed]


def all_scans_in(jvm: Jvm, plan: Any, scans: str | None = None) -> list[DeltaFileIndex]:
    """Find the engine's scans in an analysed plan, also in subqueries and in answered aggregates.

    Args:
        jvm: The session's bindings.
        plan: The plan.
        scans: What ``Calls.scans`` returns for it, if that is known.
    """
    scans = jvm.calls.scans(plan) if scans is None else scans
    if not scans.startswith("*"):
        return _numbered(scans)
    found: list[DeltaFileIndex] = []

    def look(node: Any, name: str) -> None:
        answered = node.getTagValue(jvm.tag(ANSWERED)) if name == "Project" else None
        if answered is not None and answered.isDefined():
            transform(jvm, answered.get(), look, _SCANNING)
        elif name != "Project":
            found.extend(indexes_in(jvm, node))

    transform(jvm, plan, look, _SCANNING)
    return found


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
        return plain_scan(jvm, node, indexes_in(jvm, node)[0])

    return transform(jvm, plan, plain, ("Project",))


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
            now = transform(jvm, asked, newer, _SCANNING)
            return None if now is asked or now.equals(asked) else now
        index = _index_of(jvm, node, name)
        if index is None and name == "Project" and is_vector_scan(jvm, node):
            index = next((item for item in indexes_in(jvm, node) if item.files.shared), None)
        elif name == "Project" and is_tracked_scan(jvm, node):
            index = indexes_in(jvm, node)[0]
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

    result = transform(jvm, plan, newer, _SCANNING)
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
