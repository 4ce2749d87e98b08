"""Replace Delta relations in a parsed plan with native scans.

::

    parsePlan(text) --> UnresolvedRelation t, delta.`/path`, a view, t VERSION AS OF 3
                          `--catalog look-up, newest snapshot--> SubqueryAlias(t, scan)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.column import Column

from pydelta.api.sql.view_columns import fields_by_name
from pydelta.api.streams.opening import open_stream
from pydelta.engines.spark.catalog.absent import absent_name
from pydelta.engines.spark.catalog.entries import note_difference
from pydelta.engines.spark.catalog.lookup import DeltaEntry, ViewEntry, look_up, on_path, parse_identifier, twin_refusal
from pydelta.engines.spark.catalog.objects import copy_of
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings, log_for_path
from pydelta.engines.spark.scan.change_feed import changes_from_options, read_changes
from pydelta.engines.spark.scan.changelog import feed_options
from pydelta.engines.spark.scan.newest import follow_newest
from pydelta.engines.spark.scan.partition_folder import rows_of_partition, split_partition_folder
from pydelta.engines.spark.scan.refresh import transform, with_newest
from pydelta.engines.spark.scan.row_metadata import scan_table
from pydelta.engines.spark.scan.travel import TimeTravel, open_snapshot, split_name_version, split_path_version
from pydelta.errors import (
    BindError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
)
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.log import Snapshot

__all__ = ["RelationResolver", "named_tables"]

_WRITES_ITS_FIRST_CHILD = ("DeleteFromTable", "UpdateTable", "MergeIntoTable")
_NAMES_OF_COMMANDS = ("UnresolvedTable", "UnresolvedTableOrView")
_ONLY_DESCRIBES = (
    "DescribeRelation", "DescribeColumn", "ShowColumns", "ShowPartitions", "ShowTableProperties", "ShowCreateTable",
    "RefreshTable", "ExplainCommand",
)  # fmt: skip
_CTE_MARK = "pydelta.cte"
_NAMED = re.compile(r"Unresolved(?:Relation|TableOrView|Table|Identifier) \[(.*?)\](?=,|$)", re.MULTILINE)
_PLAIN = re.compile(r"\w+(, \w+)*")
_ELSEWHERE = re.compile(r"ExplainCommand|CompoundBody|table_changes", re.IGNORECASE)
_CHANGES = ("table_changes", "table_changes_by_path")
_BY_EXPRESSION = "PlanWithUnresolvedIdentifier"
_OF_A_VERSION = ("RelationTimeTravel", "RelationChanges")
_REWRITTEN = (
    *_OF_A_VERSION, *_NAMES_OF_COMMANDS, "UnresolvedRelation", "NamedStreamingRelation", "UnresolvedWith", "Project",
    "UnresolvedTableValuedFunction", "InsertIntoStatement", "ExplainCommand",
)  # fmt: skip
_SUBQUERIES = ("ScalarSubquery", "Exists", "ListQuery")


def named_tables(jvm: Jvm, plan: Any) -> Any:
    """Replace ``IDENTIFIER(expression)`` in a parsed statement by the name that the expression evaluates to."""
    if _BY_EXPRESSION not in str(plan.treeString()):
        return plan

    def replace(node: Any, name: str) -> Any:
        if name in _OF_A_VERSION:  # Their relation is not a child of the node.
            relation = node.relation()
            return copy_of(node, relation=named(relation)) if str(relation.nodeName()) == _BY_EXPRESSION else None
        return named(node) if name == _BY_EXPRESSION else None

    def named(node: Any) -> Any:
        expression = node.identifierExpr()
        (name,) = jvm.values_of([Column(jvm.column_of(expression))])
        if name is None:
            raise BindError(f"{expression.sql()} is null, but should be the name of a table.")
        return node.planBuilder().apply(jvm.state.sqlParser().parseMultipartIdentifier(str(name)), node.children())

    return transform(jvm, plan, replace, (*_OF_A_VERSION, _BY_EXPRESSION))


def _names_metadata(jvm: Jvm, plan: Any | None) -> bool:
    """Return whether a parsed statement names ``_metadata``, also in subqueries; False for None."""
    leaves: list[Any] = []

    def visit(node: Any, _: str) -> None:
        for expression in jvm.to_list(node.expressions()):
            leaves.extend(jvm.to_list(expression.collectLeaves()))

    if plan is not None:
        transform(jvm, plan, visit)
    return any("_metadata" in str(leaf.toString()).lower() for leaf in leaves)


class RelationResolver:
    """Resolves the Delta relations of one statement, which sees one version of each table.

    Args:
        spark: A classic session.
        temporary: The temporary views among the names in a view's text.
        path: The SQL path that resolves the other names in a view's text; None for the view's namespace.
    """

    def __init__(
        self, spark: SparkSession, temporary: frozenset[tuple[str, ...]] = frozenset(), path: str | None = None
    ) -> None:
        self._spark = spark
        self._temporary = temporary
        self._path = path
        self._jvm = Jvm.of(spark)
        self._snapshots: dict[str, Snapshot] = {}
        self._entries: dict[tuple[str, ...], DeltaEntry | ViewEntry | None] = {}
        self._statement = ""
        self._plan: Any = None
        self._late: Callable[[Any, tuple[str, ...]], Any] | None = None
        self._settings: SessionSettings | None = None
        self.replaced = 0

    def statement(self, plan: Any) -> Any | None:
        """Replace the Delta relations of a parsed statement; None when it has none."""
        self._statement = str(plan.nodeName())
        if self._statement in _WRITES_ITS_FIRST_CHILD:
            self._refuse_twin(self._jvm.to_list(plan.children())[0])
            return None
        if self._names_no_delta(plan):
            return None
        result = self._rewrite(plan, frozenset(), ())
        return result if self.replaced else None

    def relation(self, node: Any, namespace: tuple[str, ...]) -> Any | None:
        """Replace one parsed relation; None when it is not a Delta relation.

        Args:
            node: As parsed.
            namespace: Where to look up a name of one part; empty for the session's namespace.
        """
        result = self._rewrite(node, frozenset(), namespace)
        return result if self.replaced else None

    def late(self, plan: Any, relation: Callable[[Any, tuple[str, ...]], Any]) -> Any | None:
        """Replace the relations of a query with nodes that are resolved later; None when it has none.

        Args:
            plan: As parsed.
            relation: Builds the replacement from the parsed node and its name.
        """
        self._late = relation
        result = self._rewrite(plan, frozenset(), ())
        return result if self.replaced else None

    def concerns(self, plan: Any) -> bool:
        """Return whether a parsed statement names a Delta table or a view, or whether only running it can decide."""
        return not self._names_no_delta(plan)

    def _names_no_delta(self, plan: Any) -> bool:
        """Return whether the text alone shows that a statement names no Delta table or view; a walk would cost more."""
        text = str(plan.treeString())
        if _ELSEWHERE.search(text) or ("Project [*]" in text and self._may_set(plan)):
            return False
        for found in set(_NAMED.findall(text)):
            parts = tuple(found.split(", "))
            if not _PLAIN.fullmatch(found) or self._entry(parts) is not None:
                return False
        return True

    def _may_set(self, plan: Any) -> bool:
        """Return whether a statement may have ``|> SET``, whose subqueries its plan does not show."""
        text = plan.origin().sqlText()
        return not text.isDefined() or "|>" in str(text.get())

    def _entry(self, parts: tuple[str, ...]) -> DeltaEntry | ViewEntry | None:
        """Look up a name, once per statement."""
        if parts not in self._entries:
            named = parts if self._is_temporary(parts) else on_path(self._spark, parts)
            self._entries[parts] = None if named is None else look_up(self._spark, named)
        return self._entries[parts]

    def _is_temporary(self, parts: tuple[str, ...]) -> bool:
        return tuple(part.lower() for part in parts) in self._temporary

    def table(self, parts: tuple[str, ...], travel: TimeTravel | None = None) -> Any | None:
        """Find the plan that a name refers to; None when it is neither a Delta table nor a view over one."""
        entry = self._entry(parts)
        if entry is None and travel is None:
            short, travel = split_name_version(parts)
            entry = self._entry(short)
        if isinstance(entry, DeltaEntry):
            return self._found(self._alias(entry.qualifier, self._scan(entry, travel)))
        if isinstance(entry, ViewEntry):
            plan = self._view(entry)
            if plan is not None and travel is not None:
                raise BindError(
                    f"{'.'.join(parts)} is a view, which has no versions.",
                    hint="Time travel on its tables.",
                    condition=Condition.of("UNSUPPORTED_FEATURE.TIME_TRAVEL", relationId=".".join(parts)),
                )
            return plan
        return None

    def reads_delta(self, view: ViewEntry) -> bool:
        """Return whether a view that SQL made reads a Delta table."""
        return self._view(view) is not None

    # --- parts ---------------------------------------------------------------------------------------------

    def _found(self, plan: Any) -> Any:
        """Count a replaced relation."""
        self.replaced += 1
        return plan

    def _alias(self, qualifier: tuple[str, ...], plan: Any) -> Any:
        return self._jvm.subquery_alias.apply(self._jvm.seq(qualifier), plan)

    def _scan(self, entry: DeltaEntry, travel: TimeTravel | None) -> Any:
        location = entry.location
        partition: dict[str, str | None] = {}
        if entry.by_path and travel is None:
            location, travel = split_path_version(self._spark, location)
        if entry.by_path:
            location, partition = split_partition_folder(self._spark, location)
        snapshot = self._newest(location) if travel is None else open_snapshot(self._spark, location, travel)
        if travel is None:
            note_difference(entry, snapshot)
        follow_newest(self._jvm)
        frame = scan_table(
            self._spark,
            snapshot,
            pinned=travel is not None,
            names_metadata=lambda: _names_metadata(self._jvm, self._plan),
        )
        return rows_of_partition(frame, snapshot, partition)._jdf.queryExecution().analyzed()

    def _newest(self, location: str, storage: Mapping[str, str] | None = None) -> Snapshot:
        if location not in self._snapshots:
            self._settings = self._settings or SessionSettings.of(self._spark)
            self._snapshots[location] = open_snapshot(self._spark, location, None, storage, session=self._settings)
        return self._snapshots[location]

    def _view(self, view: ViewEntry) -> Any | None:
        if view.plan is not None:
            plan = with_newest(
                self._spark, view.plan, lambda index: self._newest(index.files.identity.location, index.files.storage)
            )
            if plan is None:
                raise SchemaMismatchError(
                    f"The view {'.'.join(view.qualifier)} was made from a DataFrame over a Delta table whose columns "
                    "have changed since.",
                    hint="Create the view again: spark.read.format('delta').load(path).createOrReplaceTempView(name).",
                    condition=Condition.of("DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", schemaDiff="", legacyFlagMessage=""),
                )
            return None if plan is view.plan else self._found(self._alias(view.qualifier, plan))
        assert view.relation is not None, "a view without a plan has a text"
        shown = view.relation().child()  # Spark's plan resolves columns by name.
        if str(shown.nodeName()) != "View":
            return None
        inner = RelationResolver(self._spark, view.temporary, view.path)
        inner._snapshots, inner._settings = self._snapshots, self._settings
        plan = inner._rewrite(shown.child(), frozenset(), view.namespace)
        if not inner.replaced:
            return None
        self.replaced += inner.replaced
        settings = self._jvm.to_dict(self._jvm.python_utils_map(shown.desc().viewSQLConfigs()))
        plan = fields_by_name(self._jvm, plan, shown.desc(), settings)
        resolved = self._jvm.analysed_under(plan, settings)
        return self._alias(view.qualifier, shown.withNewChildren(self._jvm.indexed_seq([resolved])))

    def _rewrite(self, plan: Any, ctes: frozenset[str], namespace: tuple[str, ...]) -> Any:
        jvm, outer, self._plan = self._jvm, self._plan, plan
        mark = jvm.view.org.apache.spark.sql.catalyst.trees.TreeNodeTag(_CTE_MARK)

        def replace(node: Any, name: str) -> Any:
            if name == "UnresolvedRelation":
                return self._unresolved(node, ctes, namespace, mark)
            if name == "NamedStreamingRelation":
                given = node.sourceIdentifyingName()
                named = str(given.getClass().getSimpleName()) == "UserProvided"
                return self._stream(node.child(), namespace, str(given.name()) if named else None)
            if name == "RelationTimeTravel":
                return self._time_travel(node, namespace)
            if name == "RelationChanges":
                return self._changes_from(node, namespace)
            if name == "UnresolvedWith":
                return self._with(node, ctes, namespace)
            if name == "Project":
                return self._pipe_set(node, ctes, namespace)
            if name == "UnresolvedTableValuedFunction":
                return self._table_changes(node, namespace)
            if name == "InsertIntoStatement":
                self._refuse_twin(node.table())
            elif name in _NAMES_OF_COMMANDS and self._statement not in _ONLY_DESCRIBES:
                self._refuse_twin(node)
            if name == "ExplainCommand":
                return node.copy(self._rewrite(node.logicalPlan(), ctes, namespace), *jvm.rest_of(node, "copy", 1))
            return None

        try:
            return transform(jvm, plan, replace, _REWRITTEN)
        finally:
            self._plan = outer

    def _refuse_twin(self, target: Any) -> None:
        """Stop a statement that changes a twin before Hive runs it, because Hive would write into the manifests."""
        if str(target.nodeName()) not in ("UnresolvedRelation", *_NAMES_OF_COMMANDS):
            target = next(iter(self._jvm.to_list(target.children())), None)  # The relation is under an alias.
        if target is None or str(target.nodeName()) not in ("UnresolvedRelation", *_NAMES_OF_COMMANDS):
            return
        name = tuple(str(part) for part in self._jvm.to_list(target.multipartIdentifier()))
        entry = self._entry(name)
        if isinstance(entry, DeltaEntry) and entry.twin:
            raise twin_refusal(".".join(name), entry)

    def _unresolved(self, node: Any, ctes: frozenset[str], namespace: tuple[str, ...], mark: Any) -> Any | None:
        if node.isStreaming():
            return self._stream(node, namespace)
        if node.getTagValue(mark).isDefined():
            return None
        parts = self._parts(node)
        if len(parts) == 1 and parts[0].lower() in ctes:
            node.setTagValue(mark, True)  # An outer visit must not resolve it as a table.
            return None
        if self._late is not None:
            return self._found(self._late(node, parts))
        plan = self.table(self._within(parts, namespace))
        if plan is None and self._within(parts, namespace) != parts:
            qualified = self._jvm.seq(self._within(parts, namespace))
            return node.copy(qualified, *self._jvm.rest_of(node, "copy", 1))
        return plan

    def _stream(self, node: Any, namespace: tuple[str, ...], name: str | None = None) -> Any | None:
        """Resolve ``STREAM t`` and ``STREAM(t)``, with or without ``WITH (option = …)`` or ``CHANGES FROM …``."""
        changes = node if str(node.nodeName()) == "RelationChanges" else None
        node = node if changes is None else changes.relation()
        if str(node.nodeName()) != "UnresolvedRelation" or self._late is not None:
            return None
        parts = self._within(self._parts(node), namespace)
        entry = self._entry(parts)
        if not isinstance(entry, DeltaEntry):
            return None
        given = self._options(node)
        if changes is not None:
            given = feed_options(self._jvm, changes.changelogContext(), given)
        log = log_for_path(self._spark, entry.location)
        frame = open_stream(self._spark, log, given, shown=".".join(parts), name=name)
        return self._found(self._alias(entry.qualifier, frame._jdf.queryExecution().analyzed()))

    def _changes_from(self, node: Any, namespace: tuple[str, ...]) -> Any | None:
        """Resolve ``t CHANGES FROM …``; Spark refuses it for tables that are not Delta."""
        relation = node.relation()
        if str(relation.nodeName()) != "UnresolvedRelation" or relation.isStreaming():
            return None
        if self._late is not None:
            return self._found(self._late(node, self._parts(relation)))
        entry = self._entry(self._within(self._parts(relation), namespace))
        if not isinstance(entry, DeltaEntry):
            return None
        given = feed_options(self._jvm, node.changelogContext(), self._options(relation))
        wanted = changes_from_options(self._spark, given)
        assert wanted is not None, "feed_options asks for the feed"
        frame = read_changes(self._spark, log_for_path(self._spark, entry.location), wanted)
        return self._found(self._alias(entry.qualifier, frame._jdf.queryExecution().analyzed()))

    def _parts(self, relation: Any) -> tuple[str, ...]:
        return tuple(str(part) for part in self._jvm.to_list(relation.multipartIdentifier()))

    def _options(self, relation: Any) -> dict[str, str]:
        return {str(name): str(value) for name, value in self._jvm.to_dict(relation.options()).items()}

    def _within(self, parts: tuple[str, ...], namespace: tuple[str, ...]) -> tuple[str, ...]:
        """Qualify a name in a view's text with the namespace in which the view was made."""
        if not namespace or len(parts) != 1:
            return parts
        if self._is_temporary(parts):
            return parts
        named = None if self._path is None else on_path(self._spark, parts, self._path)
        return (*namespace, *parts) if named is None else named

    def _table_changes(self, node: Any, namespace: tuple[str, ...]) -> Any | None:
        """Resolve ``table_changes('table', start[, end])`` and ``table_changes_by_path('/path', start[, end])``."""
        function = str(self._jvm.to_list(node.name())[-1]).lower()
        if function not in _CHANGES:
            return None
        items = [Column(self._jvm.column_of(item)) for item in self._jvm.to_list(node.functionArgs())]
        if len(items) not in (2, 3):
            raise InvalidArgumentError(
                f"{function} takes a table, a start and optionally an end, but it was given {len(items)} arguments.",
                hint=f"For example {function}('lake.events', 3, 7), or with timestamps as strings.",
            )
        table, *values = self._jvm.values_of(items)
        if table is None:
            raise BindError(f"{function} was given NULL for the table.", hint="Give its name or path as a string.")
        if any(value is None for value in values):
            raise InvalidArgumentError(
                f"{function} was given NULL for where to begin or to end.",
                hint="Give a version or a timestamp, or leave the end out.",
                condition=Condition.of("DELTA_CDC_READ_NULL_RANGE_BOUNDARY"),
            )
        options = {"readChangeFeed": "true"}
        for word, value in zip(("starting", "ending"), values, strict=False):
            kind = "Version" if isinstance(value, int) else "Timestamp"
            options[f"{word}{kind}"] = str(value)
        location = str(table)
        if function == "table_changes":
            entry = self._entry(self._within(parse_identifier(self._spark, location), namespace))
            if not isinstance(entry, DeltaEntry):
                raise TableNotFoundError(
                    f"{location} is not a Delta table in the session's catalog.",
                    condition=absent_name(self._spark, (location,), function),
                )
            location = entry.location
        wanted = changes_from_options(self._spark, options)
        assert wanted is not None
        log = log_for_path(self._spark, self._jvm.qualify(location))
        return self._found(read_changes(self._spark, log, wanted)._jdf.queryExecution().analyzed())

    def _with(self, node: Any, ctes: frozenset[str], namespace: tuple[str, ...]) -> Any | None:
        """Rewrite CTE relations, which are not children of the plan; each sees the CTEs before it."""
        jvm, before = self._jvm, self.replaced
        names, relations = set(ctes), []
        for item in jvm.to_list(node.cteRelations()):
            alias = item._2()
            body = self._rewrite(alias.child(), frozenset(names), namespace)
            relations.append(jvm.view.scala.Tuple3(item._1(), alias.copy(alias.identifier(), body), item._3()))
            names.add(str(item._1()).lower())
        child = self._rewrite(node.child(), frozenset(names), namespace)
        if self.replaced == before:
            return None
        return node.copy(child, jvm.seq(relations), *jvm.rest_of(node, "copy", 2))

    def _pipe_set(self, node: Any, ctes: frozenset[str], namespace: tuple[str, ...]) -> Any | None:
        """Rewrite subqueries in ``|> SET a = …``, whose expressions are not part of the plan."""
        jvm, before, items = self._jvm, self.replaced, []

        def inside(expression: Any, _: str) -> Any:
            return expression.withNewPlan(self._rewrite(expression.plan(), ctes, namespace))

        for item in jvm.to_list(node.projectList()):
            if str(item.nodeName()) == "UnresolvedStarExceptOrReplace" and item.replacements().isDefined():
                given = jvm.to_list(item.replacements().get())
                values = [transform(jvm, value, inside, _SUBQUERIES) for value in given]
                item = item.copy(item.target(), item.excepts(), jvm.option.apply(jvm.seq(values)))
            items.append(item)
        return None if self.replaced == before else jvm.project(jvm.seq(items), node.child())

    def _time_travel(self, node: Any, namespace: tuple[str, ...]) -> Any | None:
        relation = node.relation()
        if str(relation.nodeName()) != "UnresolvedRelation":
            return None
        if self._late is not None:
            return self._found(self._late(node, self._parts(relation)))
        version, timestamp = node.version(), node.timestamp()
        travel = TimeTravel(
            version=str(version.get()) if version.isDefined() else None,
            moment=Column(self._jvm.column_of(timestamp.get())) if timestamp.isDefined() else None,
        )
        return self.table(self._within(self._parts(relation), namespace), travel)
