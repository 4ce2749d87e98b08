"""Let a user whose role is limited read the tables of her role, with their filters and masks, and nothing else.

::

    a statement --parsed--> only nodes and functions of a list; SHOW and DESCRIBE are answered here
                            each name of a table --> RoleResolver: Project(masks, Filter(rows, scan)), marked as granted
    any plan    --analyzed, before it runs--> PlanCheck: every leaf lies below such a mark, the rest is of a list

The second step sees every plan of a session, however it was built: SQL, a DataFrame of Spark Connect, a text of an
expression. A mark is an object on a node, which no text can set. What is not on a list is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydelta.api.access.roles import Grant, Role
from pydelta.api.server.refused import REFUSED_FUNCTIONS, TABLE_FUNCTIONS
from pydelta.api.server.requests import RelationText, token_of
from pydelta.api.server.spark.names import NAMES, described, names_frame, shown_names, use_database
from pydelta.api.server.spark.views import shown_plan
from pydelta.api.sql.relations import RelationResolver
from pydelta.engines.spark.catalog.lookup import DeltaEntry, parse_identifier
from pydelta.engines.spark.jvm import Jvm, scala_object
from pydelta.engines.spark.scan.travel import TimeTravel
from pydelta.errors import AccessDeniedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RoleResolver", "check_expression", "check_plan", "limited_plan", "refuse"]

GRANTED: Final = "pydelta.granted"
_QUERY_HINT: Final = (
    "Your role may run queries over its tables, SHOW DATABASES, SHOW TABLES, SHOW COLUMNS, DESCRIBE and USE."
)
_PARSED: Final = frozenset({
    "Aggregate", "CTERelationRef", "Deduplicate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit",
    "Intersect", "Join", "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project",
    "Repartition", "RepartitionByExpression", "RebalancePartitions", "RelationTimeTravel", "Sample", "Sort",
    "SubqueryAlias", "Tail", "Union", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable",
    "UnresolvedRelation", "UnresolvedSubqueryColumnAliases", "UnresolvedTableValuedFunction", "UnresolvedWith",
    "UnresolvedTVFAliases", "UnresolvedOrdinal", "Unpivot", "Window", "WithWindowDefinition",
})  # fmt: skip
_ANALYZED: Final = (_PARSED - {"RelationTimeTravel", "UnresolvedRelation", "UnresolvedWith"}) | frozenset({
    "CTERelationDef", "DeserializeToObject", "Expand", "Range", "ResolvedHint", "ResolvedInlineTable", "Subquery",
    "UnionLoop", "UnionLoopRef", "WithCTE",
})  # fmt: skip
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_UNRESOLVED: Final = "org.apache.spark.sql.catalyst.analysis."
_REFUSED_EXPRESSIONS: Final = frozenset({
    "CallMethodViaReflection", "FromProtobuf", "ScalaUDF", "ToProtobuf", "TryReflect", "UnresolvedExecuteImmediate",
})  # fmt: skip
_ATTRIBUTES: Final = ("UnresolvedAttribute", "AttributeReference")
_HIDDEN: Final = "_metadata"


def refuse(what: str, hint: str = _QUERY_HINT) -> NoReturn:
    """Refuse what a role may not do.

    Raises:
        AccessDeniedError: Always.
    """
    raise AccessDeniedError(f"Access denied: {what}.", hint=hint)


class RoleResolver(RelationResolver):
    """Resolves the names of tables in a query of a role.

    Args:
        spark: The session of the role's user.
        role: The role.
        mark: Value of the mark that granted plans carry.
    """

    def __init__(self, spark: SparkSession, role: Role, mark: str) -> None:
        super().__init__(spark)
        self._role = role
        self._mark = mark
        self._named: tuple[str, ...] = ()

    def table(self, parts: tuple[str, ...], travel: TimeTravel | None = None) -> Any:
        """Return the plan of a table as the role sees it.

        Raises:
            AccessDeniedError: The role may not read it, or it is not a Delta table.
        """
        self._named = parts
        plan = super().table(parts, travel)
        if plan is None:
            self._deny(parts)
        return plan

    def _granted(self, entry: DeltaEntry) -> Grant:
        if entry.by_path or len(entry.qualifier) != len(("catalog", "database", "table")):
            self._deny(self._named)
        grant = self._role.grant(*entry.qualifier[1:])
        if grant is None:
            self._deny(self._named)
        return grant

    def _scan(self, entry: DeltaEntry, travel: TimeTravel | None) -> Any:
        grant = self._granted(entry)
        plan = shown_plan(self._jvm, super()._scan(entry, travel), grant, ".".join(entry.qualifier[1:]))
        plan.setTagValue(self._jvm.tag(GRANTED), self._mark)
        return plan

    def _deny(self, parts: tuple[str, ...]) -> NoReturn:
        """Refuse a name in the same words whether or not it exists."""
        refuse(
            f"the role {self._role.name} may not read {'.'.join(parts)}, or there is no such Delta table",
            "SHOW TABLES lists what your role may read. Only users who may do everything read views and paths.",
        )

    def _view(self, view: Any) -> Any:
        self._deny(self._named)

    def _stream(self, node: Any, namespace: tuple[str, ...], name: str | None = None) -> Any:
        refuse("a stream")

    def _changes_from(self, node: Any, namespace: tuple[str, ...]) -> Any:
        refuse("the changes of a table")

    def _table_changes(self, node: Any, namespace: tuple[str, ...]) -> Any:
        return None  # ``check_parsed`` has seen its name.

    def _names_no_delta(self, plan: Any) -> bool:
        return False


def limited_plan(spark: SparkSession, text: str, parse: Callable[[], Any], role: Role, mark: str) -> Any:
    """Return the plan of a statement of a role's user.

    Args:
        spark: The user's session.
        text: The statement, or the text that stands for a remote client's read.
        parse: Runs Spark's parser on it.
        role: The role.
        mark: Value of the mark that granted plans carry.

    Raises:
        AccessDeniedError: The role may not run it.
    """
    if token_of(text) is not None:
        refuse("this command")
    resolver = RoleResolver(spark, role, mark)
    if text.startswith(NAMES):
        return names_frame(spark, text.removeprefix(NAMES), role)._jdf.queryExecution().analyzed()
    relation = RelationText.of(text)
    if relation is not None:
        return _remote_table(spark, relation, resolver)
    try:
        node = parse()
    except Exception as error:
        if not text.lstrip().upper().startswith(("SELECT", "WITH", "VALUES", "(", "FROM", "TABLE")):
            refuse("this statement")
        raise error
    kind = _kind(node)
    jvm = Jvm.of(spark)
    if kind == "SetCatalogAndNamespace":
        use_database(jvm, jvm.to_list(node.child().multipartIdentifier()), role)
        return jvm.no_rows()
    found = shown_names(spark, node, kind, role)
    if found is not None:
        return found._jdf.queryExecution().analyzed()
    if kind in ("DescribeRelation", "ShowColumns"):
        return described(spark, node, resolver.table)._jdf.queryExecution().analyzed()
    check_parsed(jvm, node)
    found = resolver.statement(node)
    return node if found is None else found


def _remote_table(spark: SparkSession, relation: RelationText, resolver: RoleResolver) -> Any:
    """Plan the table that a remote client's read names."""
    if relation.table is None or relation.path is not None:
        refuse("a path")
    if relation.streaming or relation.schema:
        refuse("a stream")
    given = {name.lower(): value for name, value in relation.options.items()}
    travel = None
    if given:
        if set(given) not in ({"versionasof"}, {"timestampasof"}):
            refuse(f"the option {min(given)} of a read")
        from pyspark.sql.functions import lit

        moment = given.get("timestampasof")
        travel = TimeTravel(version=given.get("versionasof"), moment=None if moment is None else lit(moment))
    return resolver.table(parse_identifier(spark, relation.table), travel)


# --- what the parser returns -------------------------------------------------------------------------------------


def check_parsed(jvm: Jvm, node: Any) -> None:
    """Refuse a parsed statement unless it is a query of known nodes and functions.

    Raises:
        AccessDeniedError: It is another statement, or calls what may not be called.
    """
    kind = _kind(node)
    if kind not in _PARSED:
        refuse(_shown_kind(kind))
    if kind == "UnresolvedTableValuedFunction":
        name = [str(part).lower() for part in jvm.to_list(node.name())]
        if name[-1] not in TABLE_FUNCTIONS or len(name) > 1:
            refuse(f"the function {'.'.join(name)}")
        for argument in jvm.to_list(node.functionArgs()):
            check_expression(jvm, argument)
    if kind == "UnresolvedRelation" and node.isStreaming():
        refuse("a stream")
    if kind == "RelationTimeTravel":
        check_parsed(jvm, node.relation())
        if node.timestamp().isDefined():  # Its value is computed while the statement is parsed.
            check_expression(jvm, node.timestamp().get(), subqueries=False)
    if kind == "UnresolvedWith":
        for item in jvm.to_list(node.cteRelations()):
            check_parsed(jvm, item._2())
    if kind == "UnresolvedInlineTable":
        for row in jvm.to_list(node.rows()):
            for value in jvm.to_list(row):
                check_expression(jvm, value)
    for expression in jvm.to_list(node.expressions()):
        check_expression(jvm, expression)
    for child in jvm.to_list(node.children()):
        check_parsed(jvm, child)


def check_expression(jvm: Jvm, expression: Any, *, subqueries: bool = True) -> None:
    """Refuse a parsed expression that calls what may not be called.

    Args:
        jvm: The session's bindings.
        expression: As parsed.
        subqueries: Whether it may have subqueries.

    Raises:
        AccessDeniedError: It does.
    """
    name, kind = str(expression.getClass().getName()), _kind(expression)
    if not name.startswith((_EXPRESSIONS, _UNRESOLVED)) or kind in _REFUSED_EXPRESSIONS or "Identifier" in kind:
        refuse(_shown_kind(kind))
    if kind == "UnresolvedFunction":
        _check_function(jvm, [str(part).lower() for part in jvm.to_list(expression.nameParts())])
    if kind == "UnresolvedGenerator":
        _check_function(jvm, [str(expression.name().funcName()).lower()])
    if kind in _ATTRIBUTES and _HIDDEN in (str(part).lower() for part in _parts(jvm, expression, kind)):
        refuse(f"the column {_HIDDEN}")
    if _holds_plan(expression):
        if not subqueries:
            refuse("a subquery in the text of an expression")
        check_parsed(jvm, expression.plan())
    if kind == "UnresolvedStarExceptOrReplace" and expression.replacements().isDefined():
        for value in jvm.to_list(expression.replacements().get()):
            check_expression(jvm, value, subqueries=subqueries)
    for child in jvm.to_list(expression.children()):
        check_expression(jvm, child, subqueries=subqueries)


def _parts(jvm: Jvm, expression: Any, kind: str) -> list[Any]:
    return [expression.name()] if kind == "AttributeReference" else jvm.to_list(expression.nameParts())


def _holds_plan(expression: Any) -> bool:
    """Return whether an expression is a subquery."""
    kind = expression.getClass()
    while kind is not None:
        if str(kind.getSimpleName()) in ("PlanExpression", "SubqueryExpression"):
            return True
        kind = kind.getSuperclass()
    return False


def _check_function(jvm: Jvm, name: list[str]) -> None:
    if len(name) > 1 and name[:-1] not in (["builtin"], ["system", "builtin"]):
        refuse(f"the function {'.'.join(name)}")
    registry = scala_object(jvm.view.org.apache.spark.sql.catalyst.analysis, "FunctionRegistry")
    identifier = jvm.view.org.apache.spark.sql.catalyst.FunctionIdentifier(name[-1])
    if name[-1] in REFUSED_FUNCTIONS or not bool(registry.builtin().functionExists(identifier)):
        refuse(f"the function {'.'.join(name)}")


# --- what the analyzer returns -----------------------------------------------------------------------------------


def check_plan(jvm: Jvm, plan: Any, mark: str) -> None:
    """Refuse an analyzed plan with a leaf that the role was not granted, or with code of the user's.

    Args:
        jvm: The session's bindings.
        plan: The plan that Spark is about to run.
        mark: Value of the mark that granted plans carry.

    Raises:
        AccessDeniedError: It has one.
    """
    tag = jvm.tag(GRANTED)
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        found = node.getTagValue(tag)
        if found.isDefined() and str(found.get()) == mark:
            continue
        kind = _kind(node)
        if kind not in _ANALYZED:
            refuse(_shown_kind(kind))
        expressions = list(jvm.to_list(node.expressions()))
        while expressions:
            expression = expressions.pop()
            name, inner = str(expression.getClass().getName()), _kind(expression)
            if not name.startswith((_EXPRESSIONS, _UNRESOLVED)) or inner in _REFUSED_EXPRESSIONS or "Python" in inner:
                refuse(_shown_kind(inner))
            if inner == "AttributeReference" and str(expression.name()).lower() == _HIDDEN:
                refuse(f"the column {_HIDDEN}")
            if _holds_plan(expression):
                waiting.append(expression.plan())
            expressions.extend(jvm.to_list(expression.children()))
        waiting.extend(jvm.to_list(node.children()))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName()).rstrip("$")


def _shown_kind(kind: str) -> str:
    return f"your role may not run this ({kind})"
