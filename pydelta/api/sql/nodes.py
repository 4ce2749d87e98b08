"""Read tables, columns, texts, types and options from the nodes of a parsed statement."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import functions as F
from pyspark.sql.types import StructType as SparkStructType

from pydelta.api.sql.relations import RelationResolver
from pydelta.api.sql.view_targets import change_target
from pydelta.commands.alter.clustering import path_text
from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up, on_path
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.scan.refresh import map_expressions, transform
from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError, first_line
from pydelta.errors.conditions import Condition
from pydelta.protocol.schema import EXISTENCE_DEFAULT, StructType, parse_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pydelta.log import DeltaLog

__all__ = ["Named", "Nodes", "StatementTarget", "is_default", "text_of"]

_SESSION_CATALOG: Final = "spark_catalog"
_PRIVILEGES: Final = "__required_write_privileges__"
_NAMED: Final = ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView", "UnresolvedInsertTarget")
_SPARK_METADATA: Final = {
    "GENERATION_EXPRESSION": "delta.generationExpression",
    "identity.start": "delta.identity.start",
    "identity.step": "delta.identity.step",
    "identity.allowExplicitInsert": "delta.identity.allowExplicitInsert",
}
_NOT_KEPT: Final = (EXISTENCE_DEFAULT,)
_SUBQUERIES: Final = ("ScalarSubquery", "Exists", "ListQuery")
_OWN_NAMES: Final = re.compile(r"(?:unresolvedrelation \[|subqueryalias )([^\]\n]+)")
"""Finds names of relations and aliases in the text of a parsed query; the last part of each qualifies columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The names by which expressions may refer to a relation.

    Args:
        alias: Its name without qualifiers.
        qualifiers: The prefixes that its columns may have, in lower case, longest first.
    """

    alias: str
    qualifiers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementTarget:
    """The Delta table that a statement is about.

    Args:
        parts: The name in the statement.
        entry: The catalog entry or path behind the name.
        alias: The name that expressions may use for it.
        options: Given with ``WITH (…)``.
    """

    parts: tuple[str, ...]
    entry: DeltaEntry
    alias: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name to show in messages."""
        return ".".join(self.parts)

    @property
    def qualifiers(self) -> tuple[tuple[str, ...], ...]:
        """The prefixes that its columns may have, longest first."""
        full = self.entry.qualifier
        ends = [tuple(item.lower() for item in full[start:]) for start in range(len(full))]
        return (*ends, (self.alias.lower(),)) if (self.alias.lower(),) not in ends else tuple(ends)


@dataclass(frozen=True, slots=True)
class _Marked:
    """The places in an unresolved expression that hold a name of three or more parts, or a subquery.

    Args:
        own: Whether the expression itself is such a place.
        children: The children that are or contain one, by position.
    """

    own: bool
    children: Mapping[int, _Marked]

    @property
    def parts(self) -> bool:
        """Whether the expression is or contains such a place."""
        return self.own or bool(self.children)

    @classmethod
    def of(cls, expression: Any) -> _Marked | None:
        """Search an expression in one call to the JVM; None if it has no JSON."""
        try:
            nodes = json.loads(str(expression.toJSON()))
        except (Py4JError, ValueError):
            return None
        above: list[_Marked] = []
        for node in reversed(nodes):  # Parents precede their children in the list.
            children = {place: above.pop() for place in range(int(node["num-children"]))}
            name = str(node["class"]).rsplit(".", 1)[-1]
            long = name == "UnresolvedAttribute" and str(node.get("nameParts", ", , ")).count(", ") > 1
            above.append(cls(long or name in _SUBQUERIES, {at: item for at, item in children.items() if item.parts}))
        return above.pop()


class Nodes:
    """Reads the nodes of one statement.

    Args:
        spark: A classic session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.jvm = Jvm.of(spark)

    def items(self, seq: Any) -> list[Any]:
        """Read a Scala sequence."""
        return list(self.jvm.to_list(seq))

    def names(self, seq: Any) -> tuple[str, ...]:
        """Read a Scala sequence of strings."""
        return tuple(str(item) for item in self.jvm.to_list(seq))

    def mapping(self, scala_map: Any) -> dict[str, str]:
        """Read a Scala map of strings."""
        return dict(self.jvm.to_dict(self.jvm.python_utils_map(scala_map)))

    def parts(self, node: Any) -> tuple[str, ...] | None:
        """Read the name in a relation, table or identifier node; None for any other node."""
        kind = str(node.nodeName())
        if kind in _NAMED:
            return self.names(node.multipartIdentifier())
        return self.names(node.nameParts()) if kind == "UnresolvedIdentifier" else None

    def identifier(self, identifier: Any) -> tuple[str, ...]:
        """Turn a Scala ``TableIdentifier`` into its parts."""
        given = (self.optional(identifier.catalog()), self.optional(identifier.database()), identifier.table())
        return tuple(str(part) for part in given if part is not None)

    def target(self, node: Any, *, changes: bool = False) -> StatementTarget | None:
        """Find the Delta table that a relation node, perhaps under an alias, refers to; None for anything else.

        Args:
            node: As parsed.
            changes: Whether its rows will be changed; then a view counts as the table that it shows whole.

        Raises:
            UnsupportedFeatureError: See ``change_target``.
        """
        alias = None
        if str(node.nodeName()) == "SubqueryAlias":
            alias, node = str(node.alias()), self.items(node.children())[0]
        parts = self.parts(node)
        if parts is None:
            return None
        named = on_path(self.spark, parts)
        if named is None:
            return None
        entry = change_target(self.spark, named) if changes else look_up(self.spark, named)
        if not isinstance(entry, DeltaEntry):
            return None
        parts = named
        options = {}
        if str(node.nodeName()) in ("UnresolvedRelation", "UnresolvedInsertTarget"):
            options = dict(self.jvm.to_dict(node.options().asCaseSensitiveMap()))
            options.pop(_PRIVILEGES, None)
        return StatementTarget(parts=parts, entry=entry, alias=alias or parts[-1], options=options)

    def in_session_catalog(self, parts: tuple[str, ...]) -> bool:
        """Return whether a name belongs to the session catalog rather than to another one."""
        manager = self.jvm.state.catalogManager()
        if len(parts) > 2 or (len(parts) == 2 and bool(manager.isCatalogRegistered(parts[0]))):
            return parts[0].lower() == _SESSION_CATALOG
        return str(manager.currentCatalog().name()) == _SESSION_CATALOG

    def log(self, target: StatementTarget) -> DeltaLog:
        """Open the table's log."""
        return log_for_path(self.spark, target.entry.location)

    def named(self, node: Any) -> Named | None:
        """Return the names of a relation without an alias; None for any other node."""
        parts = self.parts(node)
        if parts is None:
            return None
        database = str(self.jvm.catalog.getCurrentDatabase())
        full = tuple(part.lower() for part in ((_SESSION_CATALOG, database)[: 3 - len(parts)] + parts)[-3:])
        return Named(alias=parts[-1], qualifiers=tuple(full[start:] for start in range(len(full))))

    def column(self, expression: Any, *targets: StatementTarget | Named) -> Column:
        """Turn an unresolved expression into a Column, replacing long table qualifiers by the table's alias."""
        from pyspark.sql.classic.column import Column as ClassicColumn

        short = self._shortened(expression, targets, _Marked.of(expression) if targets else None)
        column: Column = ClassicColumn(self.jvm.column_of(short))
        return column

    def _shortened(self, expression: Any, targets: tuple[StatementTarget | Named, ...], marked: _Marked | None) -> Any:
        """Shorten the names in an expression, visiting only its marked parts: each visit is a call to the JVM."""
        if marked is not None and not marked.parts:
            return expression
        if str(expression.nodeName()) == "UnresolvedAttribute":
            names = self.names(expression.nameParts())
            lower = tuple(name.lower() for name in names)
            for target in targets:
                for qualifier in target.qualifiers:
                    size = len(qualifier)
                    if 1 < size < len(names) and lower[:size] == qualifier:
                        return expression.copy(self.jvm.seq((target.alias, *names[size:])))
            return expression
        if targets and str(expression.nodeName()) in _SUBQUERIES:
            return self._shortened_inside(expression, targets)
        if not targets:
            return expression
        children = expression.children()
        changed = children
        places = range(children.size()) if marked is None else marked.children
        for place in places:
            child = children.apply(place)
            new = self._shortened(child, targets, None if marked is None else marked.children[place])
            if new is not child:
                changed = changed.updated(place, new)
        return expression if changed is children else expression.withNewChildren(changed.toIndexedSeq())

    def _shortened_inside(self, subquery: Any, targets: tuple[StatementTarget | Named, ...]) -> Any:
        """Shorten a subquery's references to the outer tables, except where its own tables have the short name.

        Its Delta tables are replaced by this engine's scans.
        """
        plan = subquery.plan()
        named = _OWN_NAMES.findall(str(plan.treeString()).lower())
        own = {name.rsplit(", ", 1)[-1] for name in named}
        outer = tuple(target for target in targets if target.alias.lower() not in own)

        def shortened(expression: Any, _: str) -> Any:
            return self._shortened(expression, outer, _Marked.of(expression))

        if outer:
            plan = transform(self.jvm, plan, lambda node, _: map_expressions(self.jvm, node, shortened))
        resolved = RelationResolver(self.spark).statement(plan)
        return subquery.withNewPlan(plan if resolved is None else resolved)

    def schema(self, node: Any) -> StructType:
        """Return the columns of a CREATE or REPLACE in the log's format."""
        struct = self.jvm.char_varchar_as_strings(node.tableSchema())
        fields = json.loads(str(struct.json()))
        for field in fields["fields"]:
            field["metadata"] = {
                _SPARK_METADATA.get(key, key): value for key, value in field["metadata"].items() if key not in _NOT_KEPT
            }
        return _struct(json.dumps(fields))

    def field_type(self, name: str, data_type: Any) -> Any:
        """Turn a Spark type into a field of that type; the metadata holds lengths of char and varchar."""
        struct = self.jvm.struct_type().add(name, data_type)
        return _struct(str(self.jvm.char_varchar_as_strings(struct).json())).fields[0]

    def partitioning(self, transforms: Any) -> tuple[list[str], list[str]]:
        """Turn transforms into partition columns and clustering columns.

        Raises:
            UnsupportedFeatureError: There is another kind of transform, such as buckets.
        """
        partitions: list[str] = []
        clusters: list[str] = []
        for one in self.items(transforms):
            kind = str(one.name())
            columns = [".".join(str(part) for part in item.fieldNames()) for item in one.references()]
            if kind == "identity":
                partitions += columns
            elif kind == "cluster_by":
                clusters += [path_text(tuple(map(str, item.fieldNames()))) for item in one.references()]
            else:
                raise UnsupportedFeatureError(
                    f"A Delta table cannot be partitioned by {one.toString()}.",
                    features=(kind,),
                    hint="Partition by a column; one that is GENERATED ALWAYS AS (…) can hold a part of another.",
                    condition=Condition.of("DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation="Bucketing")
                    if kind == "bucket"
                    else Condition.of("DELTA_OPERATION_NOT_ALLOWED", operation="Partitioning by expressions"),
                )
        return partitions, clusters

    def constraints(self, specification: Any) -> list[Any]:
        """Read the constraints of a CREATE; Spark versions before 4.1 have none."""
        try:
            return self.items(specification.constraints())
        except Py4JError:
            return []

    def default_collation(self, specification: Any) -> str | None:
        """Return the default collation that a CREATE sets."""
        from py4j.protocol import Py4JError

        try:
            return text_of(self.optional(specification.collation()))
        except Py4JError:
            return None

    def own_schema(self, struct: SparkStructType) -> StructType:
        """Convert a Spark schema into the log's format."""
        return _struct(struct.json())

    def partition_columns(self, parts: tuple[str, ...]) -> list[str]:
        """Return the partition columns of a table in the session's catalog. A view has none."""
        catalog = self.jvm.catalog
        database = self.jvm.option.apply(parts[-2] if len(parts) > 1 else None)
        identifier = self.jvm.table_identifier.apply(parts[-1], database, self.jvm.option.apply(None))
        if not catalog.tableExists(identifier) or catalog.isView(self.jvm.seq(parts)):
            return []
        return list(self.names(catalog.getTableMetadata(identifier).partitionColumnNames()))

    def optional(self, option: Any) -> Any | None:
        """Read a Scala option."""
        return option.get() if option.isDefined() else None

    def query(self, plan: Any) -> DataFrame:
        """Return the rows of a parsed query; this engine reads its Delta tables."""
        resolved = RelationResolver(self.spark).statement(plan)
        return self.jvm.frame(plan if resolved is None else resolved)

    def evaluate(self, expression: Any) -> Any:
        """Evaluate a constant SQL expression.

        Raises:
            InvalidArgumentError: It is not a constant.
        """
        from pyspark.errors import PySparkException

        try:
            column = F.expr(expression) if isinstance(expression, str) else self.column(expression)
            (value,) = self.jvm.values_of([column])
        except PySparkException as error:
            shown = expression if isinstance(expression, str) else str(expression.sql())
            raise InvalidArgumentError(f"{shown} is not a constant expression: {first_line(error)}") from error
        return value


def _struct(text: str) -> StructType:
    schema = parse_schema(text)
    assert isinstance(schema, StructType)
    return schema


def is_default(expression: Any) -> bool:
    """Return whether an expression is the keyword DEFAULT."""
    return str(expression.nodeName()) == "UnresolvedAttribute" and str(expression.name()).upper() == "DEFAULT"


def text_of(value: Any) -> str | None:
    """Read a Java string, or None."""
    return None if value is None else str(value)
