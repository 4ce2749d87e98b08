"""Run INSERT as Spark parsed it, in one commit.

::

    INSERT INTO t [(columns) | BY NAME] query             adds rows
    INSERT OVERWRITE t [PARTITION (p = 1, q)] query       replaces all rows, those of the partitions named, or (where
                                                          spark.sql.sources.partitionOverwriteMode is dynamic) those of
                                                          the partitions that the new rows belong to
    INSERT INTO t REPLACE WHERE condition query           replaces the rows that satisfy the condition
    INSERT INTO t REPLACE USING (a, b) query              replaces the rows whose a and b equal those of a new row
    INSERT INTO t [AS t] REPLACE ON condition query       replaces the rows for which it is true with some new row
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from pydelta.api.sql.foreign_writes import refuse_foreign_target, refuse_foreign_write
from pydelta.api.sql.nodes import Nodes, StatementTarget, is_default, text_of
from pydelta.commands.write.command import WriteMode
from pydelta.commands.write.options import StatementCondition
from pydelta.engines.spark.logs import absent_path, settings_of
from pydelta.engines.spark.write.assignment import StoreAssignment
from pydelta.engines.spark.write.columns import default_of
from pydelta.engines.spark.write.command import WriteRequest, insert_by_position
from pydelta.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
    UnsupportedFeatureError,
    error_context,
)
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted
from pydelta.protocol.sized_texts import fitted_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pydelta.protocol.schema import StructType

__all__ = ["INSERTS", "TO_FOLDER", "insert", "insert_all", "insert_directory", "replace_where"]

INSERTS: Final = ("InsertIntoStatement", "UnresolvedInsert")
"""Node names of an INSERT; Spark 4.3 uses the second for a target named by ``IDENTIFIER(…)``."""
TO_FOLDER: Final = "InsertIntoDir"
"""Node name of ``INSERT OVERWRITE DIRECTORY``."""
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_LOST_BYTES: Final = "\ufffd"
_MISSING_ARE_NULL: Final = "spark.sql.defaultColumn.useNullsForMissingDefaultValues"
_COMPUTED: Final = ("CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.step")


def insert(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run one ``INSERT INTO`` or ``INSERT OVERWRITE``."""
    target = nodes.target(node.table(), changes=True)
    if target is None:
        parts = nodes.parts(node.table())
        if parts is not None:
            refuse_foreign_target(nodes.spark, parts)
        return None
    if bool(node.ifPartitionNotExists()):
        raise UnsupportedFeatureError(
            "INSERT OVERWRITE … PARTITION … IF NOT EXISTS has no meaning for a Delta table.",
            features=("IF NOT EXISTS",),
            hint="Leave it out; REPLACE WHERE overwrites the rows of a condition.",
            condition=Condition.of("UNSUPPORTED_FEATURE.INSERT_PARTITION_SPEC_IF_NOT_EXISTS"),
        )
    wanted = _Insert(
        target=target,
        query=node.query(),
        columns=tuple(str(column) for column in nodes.items(node.userSpecifiedCols())),
        by_name=bool(node.byName()),
        overwrite=bool(node.overwrite()),
        replace_where=_replace_where(nodes, node),
        matches=_matches(nodes, node, target),
        evolve=bool(_field(node, "withSchemaEvolution", False)),
    )
    return _run(nodes, wanted, node.partitionSpec())


def replace_where(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``INSERT INTO t REPLACE WHERE …`` as Spark 4.1 and 4.2 parse it."""
    target = nodes.target(node.table(), changes=True)
    if target is None:
        return None
    wanted = _Insert(
        target=target,
        query=node.query(),
        by_name=bool(node.isByName()),
        overwrite=False,
        replace_where=_condition(nodes, node.deleteExpr()),
        evolve=bool(_field(node, "withSchemaEvolution", False)),
    )
    return _run(nodes, wanted, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Insert:
    """A parsed INSERT.

    Args:
        target: The table.
        query: The rows, as parsed.
        columns: The table's columns that receive values; none means all.
        by_name: Match columns by name.
        overwrite: Delete rows first: all, or those of the partitions that ``PARTITION`` names.
        replace_where: Delete the rows of this condition first.
        matches: Delete the rows that match new ones first: ``replace_using``, or ``replace_on`` and ``target_alias``.
        evolve: Add new columns of the query to the table.
    """

    target: StatementTarget
    query: Any
    columns: tuple[str, ...] = ()
    by_name: bool
    overwrite: bool
    evolve: bool
    replace_where: StatementCondition | None = None
    matches: Mapping[str, Any] | None = None

    @property
    def overwrites(self) -> bool:
        """Whether it deletes rows, apart from those that match new ones."""
        return self.overwrite or self.replace_where is not None


def _run(nodes: Nodes, wanted: _Insert, partition: Any | None) -> DataFrame:
    target, by_name = wanted.target, wanted.by_name
    log = nodes.log(target)
    with error_context(table=log.uri):
        if not log.table_exists():
            raise TableNotFoundError(
                f"There is no Delta table at {log.uri}.",
                hint="Create it first, or check the path.",
                condition=absent_path(log) if target.entry.by_path else None,
            )
        snapshot = log.update()
        schema = snapshot.schema
        static = {} if partition is None else _static(partition, target, snapshot.partition_columns, schema)
        columns = list(wanted.columns)
        free = [field.name for field in schema.fields if field.name not in static]
        rows = nodes.query(_with_defaults(nodes, wanted.query, schema, columns or free))
        if static:
            _refuse_given_twice(static, rows.columns if by_name else columns)
            columns, rows = _with_static(rows, static, columns or free, schema)
            if by_name:
                columns = []
        if columns or by_name:
            _require_values(nodes, schema, columns or rows.columns)
        options = dict(target.options)
        if wanted.evolve:
            options["mergeSchema"] = "true"
        request = WriteRequest(
            mode=WriteMode.OVERWRITE if wanted.overwrites else WriteMode.APPEND,
            options=options,
            replace_where=wanted.replace_where,
            matches=wanted.matches or {},
        )
        if wanted.overwrite and static and not request.parsed(settings_of(nodes.spark)).dynamic:
            request = replace(request, replace_where=_of_partition(nodes, static, schema))
        insert_by_position(nodes.spark, rows, target.entry, request, columns=columns or None, by_name=by_name)
    return nodes.jvm.nothing()


def _require_values(nodes: Nodes, schema: StructType, given: Sequence[str]) -> None:
    """Refuse an INSERT that omits a column without a default, if it is NOT NULL or the session requires values."""
    all_required = str(nodes.spark.conf.get(_MISSING_ARE_NULL, "true")).lower() == "false"
    known = {name.lower() for name in given}
    for field in schema.fields:
        required = all_required or not field.nullable
        if required and field.name.lower() not in known and not any(key in field.metadata for key in _COMPUTED):
            other = f", or set {_MISSING_ARE_NULL} to true" if field.nullable else ""
            raise SchemaMismatchError(
                f"The statement gives no value for the column {field.name!r}, which has no default"
                f"{'' if field.nullable else ' and is NOT NULL'}.",
                hint=f"Name the column, or give it a default{other}.",
                condition=Condition.of("DELTA_INSERT_COLUMN_MISMATCH", columnName=field.name),
            )


def insert_all(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``FROM source INSERT … INSERT …`` as one commit per table, one after the other; leave UNION to Spark."""
    statements = nodes.items(node.children())
    kinds = [str(item.nodeName()) for item in statements]
    if not set(kinds) <= {*INSERTS, TO_FOLDER}:
        return None
    ours = {
        kind in INSERTS and nodes.target(item.table(), changes=True) is not None
        for item, kind in zip(statements, kinds, strict=True)
    }
    if len(ours) > 1:
        raise UnsupportedFeatureError(
            "The statement inserts into Delta tables and into other tables or folders.",
            features=("INSERT into several tables",),
            hint="Write one INSERT per table.",
        )
    for item, kind in zip(statements, kinds, strict=True):
        if kind in INSERTS:
            insert(nodes, item)
        else:
            insert_directory(nodes, item)
    return nodes.jvm.nothing() if True in ours else None


def insert_directory(nodes: Nodes, node: Any) -> DataFrame | None:
    """Refuse ``INSERT OVERWRITE DIRECTORY`` for Delta and into a Delta table's folder; Spark runs any other."""
    provider = str(node.provider().get())
    if provider.lower() != "delta":
        refuse_foreign_write(nodes.spark, nodes.jvm.path_text(node.storage().locationUri().get()), provider)
        return None
    raise UnsupportedFeatureError(
        "INSERT OVERWRITE DIRECTORY cannot write a Delta table.",
        features=("INSERT OVERWRITE DIRECTORY",),
        hint="Write CREATE OR REPLACE TABLE delta.`/path` USING delta AS …, or INSERT OVERWRITE delta.`/path` ….",
    )


def _field(node: Any, method: str, otherwise: Any) -> Any:
    """Read a field that not every Spark version has."""
    from py4j.protocol import Py4JError

    try:
        return getattr(node, method)()
    except Py4JError:
        return otherwise


def _static(
    given: Any, target: StatementTarget, partitions: tuple[str, ...], schema: StructType
) -> dict[str, str | None]:
    """Return the columns that ``PARTITION (p = 1, q)`` gives a value, with the text that Spark's parser makes of it.

    A text that the table stores in another form is in that form here: the rows that it selects have it, too.
    """
    known = {column.lower(): column for column in partitions}
    found = {}
    items = given.toSeq()
    for position in range(items.size()):
        key, value = str(items.apply(position)._1()), items.apply(position)._2()
        if key.lower() not in known:
            raise InvalidArgumentError(
                f"PARTITION names {key!r}, but {target.name} is partitioned by {', '.join(partitions) or 'nothing'}.",
                hint="Name partition columns only.",
                condition=Condition.of("NON_PARTITION_COLUMN", columnName=key),
            )
        if value.isDefined():
            text = value.get()
            name = known[key.lower()]
            found[name] = None if text is None or text == _NULL_PARTITION else _stored(str(text), schema, name)
    return found


def _stored(text: str, schema: StructType, name: str) -> str | None:
    field = schema.field(name)
    assert field is not None, "partition columns are in the schema"
    kind = str(field.data_type)
    if kind == "binary" and _LOST_BYTES in text:
        raise InvalidArgumentError(
            f"PARTITION gives {name!r} bytes that are not UTF-8, which Spark's parser replaces.",
            hint="Give the value in the query, as in INSERT INTO t SELECT 1, X'00FF'.",
        )
    if not text and kind in ("string", "binary"):
        return None  # An empty string in a partition column is null.
    return fitted_text(text, field)


def _with_static(
    rows: DataFrame, static: dict[str, str | None], columns: list[str], schema: StructType
) -> tuple[list[str], DataFrame]:
    for column, value in static.items():
        field = schema.field(column)
        assert field is not None
        rows = rows.select("*", StoreAssignment.of(rows.sparkSession).cast_text(value, field.data_type).alias(column))
    return [*columns, *static], rows


def _refuse_given_twice(static: Mapping[str, str | None], given: Sequence[str]) -> None:
    names = {column.lower() for column in given}
    for column in static:
        if column.lower() in names:
            raise InvalidArgumentError(
                f"Column {column!r} has a value in PARTITION and is given again.",
                hint="Leave it out of the list of columns, or of the query.",
                condition=Condition.of("STATIC_PARTITION_COLUMN_IN_INSERT_COLUMN_LIST", staticName=column),
            )


def _constant(nodes: Nodes, value: Column) -> Any:
    """Return the literal that an expression without columns evaluates to."""
    plan = nodes.jvm.one_row([value.alias("constant")])._jdf.queryExecution().optimizedPlan()
    return plan.projectList().head().child()


def _of_partition(nodes: Nodes, static: Mapping[str, str | None], schema: StructType) -> StatementCondition:
    """Return the condition for the rows of the partition that ``PARTITION (…)`` names."""
    texts, conditions = [], []
    for column, value in static.items():
        field = schema.field(column)
        assert field is not None
        given = StoreAssignment.of(nodes.spark).cast_text(value, field.data_type)
        shown = quoted(column)
        constant = _constant(nodes, given)
        if constant.value() is None:
            missing = nodes.jvm.view.org.apache.spark.sql.catalyst.expressions.IsNull
            texts.append(str(missing(nodes.jvm.expression(F.col(shown))).sql()))
            conditions.append(F.col(shown).isNull())
            continue
        same = nodes.jvm.view.org.apache.spark.sql.catalyst.expressions.EqualNullSafe
        texts.append(str(same(nodes.jvm.expression(F.col(shown)), constant).sql()))
        conditions.append(F.col(shown) == given)
    return StatementCondition(
        text=reduce(lambda left, right: f"({left} AND {right})", texts), native=reduce(operator.and_, conditions)
    )


def _criteria(nodes: Nodes, node: Any) -> tuple[str, Any] | None:
    """Return the node that follows REPLACE, and its name."""
    criteria = _field(node, "replaceCriteriaOpt", None)
    criteria = None if criteria is None else nodes.optional(criteria)
    return None if criteria is None else (str(criteria.getClass().getSimpleName()), criteria)


def _condition(nodes: Nodes, expression: Any) -> StatementCondition:
    return StatementCondition(text=str(expression.sql()), native=nodes.column(expression))


def _replace_where(nodes: Nodes, node: Any) -> StatementCondition | None:
    found = _criteria(nodes, node)
    return _condition(nodes, found[1].cond()) if found is not None and found[0] == "InsertReplaceWhere" else None


def _matches(nodes: Nodes, node: Any, target: StatementTarget) -> Mapping[str, Any] | None:
    found = _criteria(nodes, node)
    if found is None or found[0] == "InsertReplaceWhere":
        return None
    kind, criteria = found
    if kind == "InsertReplaceUsing":
        return {"replace_using": tuple(str(column) for column in nodes.items(criteria.cols()))}
    if kind == "InsertReplaceOn":
        alias = text_of(nodes.optional(criteria.tableAliasOpt())) or target.alias
        condition = criteria.cond()
        native = nodes.column(condition, replace(target, alias=alias))
        return {
            "replace_on": StatementCondition(text=str(condition.sql()), native=native),
            "target_alias": alias,
        }
    raise UnsupportedFeatureError(
        f"This engine does not know INSERT … {kind}.",
        features=(kind,),
        hint="Write REPLACE WHERE, USING or ON, or MERGE.",
    )


def _with_defaults(nodes: Nodes, plan: Any, schema: StructType, columns: list[str]) -> Any:
    """Replace the keyword DEFAULT by the column's default, in VALUES and in the outermost SELECT."""
    kind = str(plan.nodeName())
    if "DEFAULT" not in str(plan.toString()).upper():
        return plan
    if kind == "UnresolvedInlineTable":
        rows = []
        for row in nodes.items(plan.rows()):
            cells = [_value(nodes, cell, position, schema, columns) for position, cell in enumerate(nodes.items(row))]
            rows.append(nodes.jvm.seq(cells))
        return plan.copy(plan.names(), nodes.jvm.seq(rows))
    if kind == "Project":
        items = nodes.items(plan.projectList())
        cells = [_value(nodes, item, position, schema, columns) for position, item in enumerate(items)]
        return plan.copy(nodes.jvm.seq(cells), plan.child())
    if kind == "UnresolvedWith":
        return plan.copy(_with_defaults(nodes, plan.child(), schema, columns), *nodes.jvm.rest_of(plan, "copy", 1))
    return plan


def _value(nodes: Nodes, cell: Any, position: int, schema: StructType, columns: list[str]) -> Any:
    if not is_default(cell) or position >= len(columns):
        return cell
    field = schema.field(columns[position])
    if field is None or "delta.generationExpression" in field.metadata or "delta.identity.step" in field.metadata:
        raise InvalidArgumentError(
            f"DEFAULT stands for {columns[position]!r}, which has no default that can be written.",
            hint="Leave the column out of the list of columns; it is then computed.",
        )
    return nodes.jvm.expression(default_of(field).alias(field.name))
