"""Which requests of Spark Connect a user whose role is limited may send."""

from __future__ import annotations

import pytest
import zstandard
from google.protobuf import any_pb2
from pyspark.sql.connect.proto import base_pb2, commands_pb2, expressions_pb2, relations_pb2

from pydelta.api.server.allowed import check_request
from pydelta.errors import AccessDeniedError

Relation, Expression = relations_pb2.Relation, expressions_pb2.Expression


def table(name="lake.t", **more):
    return Relation(
        read=relations_pb2.Read(named_table=relations_pb2.Read.NamedTable(unparsed_identifier=name), **more)
    )


def projected(expression):
    return Relation(project=relations_pb2.Project(input=table(), expressions=[expression]))


def called(name, **more):
    return Expression(unresolved_function=Expression.UnresolvedFunction(function_name=name, **more))


def execution(relation=None, command=None):
    plan = base_pb2.Plan(root=relation) if command is None else base_pb2.Plan(command=command)
    return base_pb2.ExecutePlanRequest(session_id="s", plan=plan).SerializeToString()


def compressed(relation):
    found = base_pb2.Plan.CompressedOperation(
        data=zstandard.compress(relation.SerializeToString()),
        op_type=base_pb2.Plan.CompressedOperation.OP_TYPE_RELATION,
        compression_codec=base_pb2.CompressionCodec.COMPRESSION_CODEC_ZSTD,
    )
    return base_pb2.ExecutePlanRequest(
        session_id="s", plan=base_pb2.Plan(compressed_operation=found)
    ).SerializeToString()


def sql(text):
    return Relation(sql=relations_pb2.SQL(query=text))


FILE = Relation(read=relations_pb2.Read(data_source=relations_pb2.Read.DataSource(format="delta", paths=["/x"])))
UDF = Expression(common_inline_user_defined_function=expressions_pb2.CommonInlineUserDefinedFunction(function_name="f"))


@pytest.mark.parametrize(
    "relation",
    [
        table(),
        sql("SELECT 1"),
        projected(called("upper")),
        projected(Expression(expression_string=Expression.ExpressionString(expression="1"))),
        Relation(range=relations_pb2.Range(end=1)),
        Relation(local_relation=relations_pb2.LocalRelation()),
        Relation(show_string=relations_pb2.ShowString(input=table())),
    ],
)
def test_a_query_passes(relation):
    check_request("ExecutePlan", execution(relation))
    check_request("ExecutePlan", compressed(relation))
    check_request(
        "ExecutePlan", execution(command=commands_pb2.Command(sql_command=commands_pb2.SqlCommand(input=relation)))
    )
    plan = base_pb2.Plan(root=relation)
    schema = base_pb2.AnalyzePlanRequest(schema=base_pb2.AnalyzePlanRequest.Schema(plan=plan))
    check_request("AnalyzePlan", schema.SerializeToString())


@pytest.mark.parametrize(
    "relation",
    [
        FILE,
        table(is_streaming=True),
        projected(UDF),
        projected(called("f", is_user_defined_function=True)),
        projected(called("reflect")),
        projected(called("Java_Method")),
        projected(Expression(call_function=expressions_pb2.CallFunction(function_name="system.builtin.`reflect`"))),
        Relation(catalog={"list_tables": {}}),
        Relation(map_partitions={"input": {"range": {"end": 1}}}),
        Relation(cached_remote_relation={"relation_id": "x"}),
        Relation(cached_local_relation={"hash": "x"}),
        Relation(common_inline_user_defined_data_source={"name": "x"}),
        Relation(common_inline_user_defined_table_function={"function_name": "x"}),
        Relation(unresolved_table_valued_function={"function_name": "python_worker_logs"}),
        Relation(parse={"input": {"range": {"end": 1}}}),
        Relation(extension=any_pb2.Any(type_url="x")),
        Relation(),
    ],
)  # fmt: skip
def test_what_reads_elsewhere_or_runs_code_is_refused_wherever_it_stands(relation):
    deep = Relation(filter=relations_pb2.Filter(input=Relation(subquery_alias={"alias": "a", "input": {}})))
    deep.filter.input.subquery_alias.input.CopyFrom(relation)
    for one in (relation, deep):
        for data in (
            execution(one),
            compressed(one),
            execution(command=commands_pb2.Command(sql_command={"input": one})),
        ):
            with pytest.raises(AccessDeniedError):
                check_request("ExecutePlan", data)
        for kind in ("schema", "tree_string", "is_local", "semantic_hash"):
            request = base_pb2.AnalyzePlanRequest()
            getattr(request, kind).plan.root.CopyFrom(one)
            with pytest.raises(AccessDeniedError):
                check_request("AnalyzePlan", request.SerializeToString())


ALLOWED_COMMANDS = {"sql_command"}


@pytest.mark.parametrize("name", [field.name for field in commands_pb2.Command.DESCRIPTOR.oneofs[0].fields])
def test_of_the_commands_only_sql_passes(name):
    command = commands_pb2.Command()
    getattr(command, name).SetInParent()
    if name in ALLOWED_COMMANDS:
        check_request("ExecutePlan", execution(command=command))
    else:
        with pytest.raises(AccessDeniedError):
            check_request("ExecutePlan", execution(command=command))


@pytest.mark.parametrize("name", ["explain", "input_files", "persist", "unpersist", "get_storage_level"])
def test_an_analysis_that_shows_plans_or_files_is_refused(name):
    request = base_pb2.AnalyzePlanRequest()
    getattr(request, name).SetInParent()
    with pytest.raises(AccessDeniedError):
        check_request("AnalyzePlan", request.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "value", "passes"),
    [
        ("get", {"keys": ["spark.sql.session.timeZone"]}, True),
        ("get_option", {"keys": ["spark.python.sql.dataFrameDebugging.enabled"]}, True),
        ("get_with_default", {"pairs": [{"key": "spark.sql.x", "value": "y"}]}, True),
        ("get", {"keys": ["spark.sql.x", "spark.hadoop.fs.s3a.secret.key"]}, False),
        ("get_with_default", {"pairs": [{"key": "spark.connect.authenticate.token"}]}, False),
        ("get_all", {}, False),
        ("set", {"pairs": [{"key": "spark.sql.x", "value": "y"}]}, False),
        ("unset", {"keys": ["spark.sql.x"]}, False),
    ],
)
def test_settings_of_sql_are_read_and_none_is_changed(kind, value, passes):
    request = base_pb2.ConfigRequest(operation=base_pb2.ConfigRequest.Operation(**{kind: value})).SerializeToString()
    if passes:
        check_request("Config", request)
    else:
        with pytest.raises(AccessDeniedError):
            check_request("Config", request)


def test_every_other_method_of_the_service_is_named_or_refused():
    methods = {method.name for method in base_pb2.DESCRIPTOR.services_by_name["SparkConnectService"].methods}
    refused = set()
    for name in methods - {"ExecutePlan", "AnalyzePlan", "Config"}:
        try:
            check_request(name, b"")
        except AccessDeniedError:
            refused.add(name)
    assert {"AddArtifacts", "CloneSession"} <= refused
    assert {"ReattachExecute", "ReleaseExecute", "Interrupt", "ReleaseSession"} <= methods - refused
    with pytest.raises(AccessDeniedError):
        check_request("NoSuchMethod", b"")
