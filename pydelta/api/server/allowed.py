"""Refuse the requests of Spark Connect that a user whose role is limited may not send, before Spark sees them.

What is allowed is listed: plans of known relations and expressions, without functions of the user's, files, streams,
writes or settings. Texts of SQL in a plan are checked where they are parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from google.protobuf import any_pb2
from google.protobuf.message import Message
from pyspark.sql.connect.proto import base_pb2, commands_pb2, expressions_pb2, relations_pb2

from pydelta.api.server.refused import REFUSED_FUNCTIONS, TABLE_FUNCTIONS
from pydelta.api.server.requests import inflate, messages_in
from pydelta.errors import AccessDeniedError

__all__ = ["check_request"]

_RELATIONS: Final = frozenset({
    "aggregate", "approx_quantile", "as_of_join", "corr", "cov", "crosstab", "deduplicate", "describe", "drop",
    "drop_na", "fill_na", "filter", "freq_items", "hint", "html_string", "join", "lateral_join", "limit",
    "local_relation", "offset", "project", "range", "read", "repartition", "repartition_by_expression", "replace",
    "sample", "sample_by", "set_op", "show_string", "sort", "sql", "subquery_alias", "summary", "tail", "to_df",
    "to_schema", "transpose", "unpivot", "unresolved_table_valued_function", "with_columns", "with_columns_renamed",
    "with_relations",
})  # fmt: skip
_EXPRESSIONS: Final = frozenset({
    "alias", "call_function", "cast", "expression_string", "lambda_function", "literal", "named_argument_expression",
    "sort_order", "subquery_expression", "unresolved_attribute", "unresolved_extract_value", "unresolved_function",
    "unresolved_named_lambda_variable", "unresolved_regex", "unresolved_star", "update_fields", "window",
})  # fmt: skip
_COMMANDS: Final = frozenset({"sql_command"})
_ANALYSES: Final = frozenset({
    "ddl_parse", "is_local", "is_streaming", "json_to_ddl", "same_semantics", "schema", "semantic_hash",
    "spark_version", "tree_string",
})  # fmt: skip
_READS_SETTINGS: Final = {"get": "keys", "get_option": "keys", "get_with_default": "pairs", "is_modifiable": "keys"}
_SETTINGS: Final = ("spark.connect.session.", "spark.python.sql.", "spark.sql.")
"""Beginnings of the settings that a client may read; others hold secrets."""
_WITHOUT_PLAN: Final = frozenset({
    "ArtifactStatus", "FetchErrorDetails", "Interrupt", "ReattachExecute", "ReleaseExecute", "ReleaseSession",
})  # fmt: skip


def check_request(method: str, data: bytes) -> None:
    """Refuse a request that is not on the list.

    Args:
        method: Name of the method.
        data: The serialized request.

    Raises:
        AccessDeniedError: It is not; the error names what.
    """
    if method in _WITHOUT_PLAN:
        return
    check = _CHECKS.get(method)
    if check is None:
        _refuse(f"the call {method}")
    check(data)


def _refuse(what: str) -> NoReturn:
    raise AccessDeniedError(
        f"Access denied: {what}.", hint="Your role may run queries over its tables, by SQL and as DataFrames."
    )


def _check_execution(data: bytes) -> None:
    request = base_pb2.ExecutePlanRequest.FromString(data)
    inflate(request.plan)
    if request.plan.WhichOneof("op_type") not in ("root", "command"):
        _refuse("a plan of this kind")
    _check_messages(request)


def _check_analysis(data: bytes) -> None:
    request = base_pb2.AnalyzePlanRequest.FromString(data)
    kind = str(request.WhichOneof("analyze"))
    if kind not in _ANALYSES:
        _refuse(f"the analysis {kind}")
    for message in list(messages_in(request)):
        if isinstance(message, base_pb2.Plan):
            inflate(message)
    _check_messages(request)


def _check_settings(data: bytes) -> None:
    operation = base_pb2.ConfigRequest.FromString(data).operation
    kind = str(operation.WhichOneof("op_type"))
    if kind not in _READS_SETTINGS:
        _refuse("changing or listing settings")
    names = getattr(getattr(operation, kind), _READS_SETTINGS[kind])
    for name in (item if isinstance(item, str) else item.key for item in names):
        if not name.startswith(_SETTINGS):
            _refuse(f"the setting {name}")


def _check_messages(request: Message) -> None:
    for message in messages_in(request):
        if isinstance(message, any_pb2.Any):
            _refuse("an extension")
        check = _MESSAGES.get(type(message))
        if check is not None:
            check(message)


def _check_relation(relation: relations_pb2.Relation) -> None:
    kind = str(relation.WhichOneof("rel_type"))
    if kind not in _RELATIONS:
        _refuse(f"the relation {kind}")
    if kind == "read":
        if relation.read.WhichOneof("read_type") != "named_table":
            _refuse("a file or another source")
        if relation.read.is_streaming:
            _refuse("a stream")
    if kind == "unresolved_table_valued_function":
        name = relation.unresolved_table_valued_function.function_name.lower()
        if name not in TABLE_FUNCTIONS:
            _refuse(f"the function {name}")


def _check_expression(expression: expressions_pb2.Expression) -> None:
    kind = str(expression.WhichOneof("expr_type"))
    if kind not in _EXPRESSIONS:
        _refuse(f"the expression {kind}")
    if kind == "unresolved_function":
        _check_function(expression.unresolved_function.function_name)
        if expression.unresolved_function.is_user_defined_function:
            _refuse("a function of the user's")
    if kind == "call_function":
        _check_function(expression.call_function.function_name)


def _check_function(name: str) -> None:
    if name.lower().replace("`", "").rpartition(".")[2].strip() in REFUSED_FUNCTIONS:
        _refuse(f"the function {name}")


def _check_command(command: commands_pb2.Command) -> None:
    kind = str(command.WhichOneof("command_type"))
    if kind not in _COMMANDS:
        _refuse(f"the command {kind}")


_CHECKS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "ExecutePlan": _check_execution, "AnalyzePlan": _check_analysis, "Config": _check_settings
}  # fmt: skip
_MESSAGES: Final[Mapping[type, Callable[..., None]]] = {
    relations_pb2.Relation: _check_relation,
    expressions_pb2.Expression: _check_expression,
    commands_pb2.Command: _check_command,
}
