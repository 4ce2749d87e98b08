"""Which messages of a Spark Connect client are rewritten, and into what."""

from __future__ import annotations

import pytest
import zstandard
from google.protobuf import any_pb2
from pyspark.sql.connect.proto import base_pb2, commands_pb2, expressions_pb2, relations_pb2

from pydelta.api.python.wire import COMMAND_URL, Call, Expression, WirePlan, packed, unpacked
from pydelta.api.server.requests import Commands, RelationText, RemoteCommand, analysis, execution, token_of, with_user

Relation = relations_pb2.Relation


def named(name, streaming=False, **options):
    found = Relation()
    found.common.plan_id = 7
    found.read.named_table.unparsed_identifier = name
    found.read.named_table.options.update(options)
    found.read.is_streaming = streaming
    return found


def loaded(source, *paths, **options):
    found = Relation()
    found.read.data_source.format = source
    found.read.data_source.paths.extend(paths)
    found.read.data_source.options.update(options)
    return found


def filtered(child):
    found = Relation()
    found.filter.input.CopyFrom(child)
    found.filter.condition.literal.boolean = True
    return found


def asked(relation, user="ann", session="s1"):
    request = base_pb2.ExecutePlanRequest(session_id=session, operation_id="op")
    request.user_context.user_id = user
    request.plan.root.CopyFrom(relation)
    return request


def sent(request, commands=None):
    return base_pb2.ExecutePlanRequest.FromString(
        execution(request.SerializeToString(), Commands() if commands is None else commands)
    )


def text_of(relation):
    assert relation.WhichOneof("rel_type") == "sql"
    return RelationText.of(relation.sql.query)


READS = [
    (named("db.t"), RelationText(table="db.t", path=None, options={}, streaming=False)),
    (
        named("t", streaming=True, versionAsOf="3"),
        RelationText(table="t", path=None, options={"versionAsOf": "3"}, streaming=True),
    ),
    (
        loaded("DELTA", "/a b", x="é"),
        RelationText(table=None, path="/a b", options={"x": "é"}, streaming=False),
    ),
    (
        loaded("delta", path="/p"),
        RelationText(table=None, path="/p", options={"path": "/p"}, streaming=False),
    ),
    (loaded("delta", "/p", "/q"), RelationText(table=None, path=["/p", "/q"], options={}, streaming=False)),
    (loaded("delta"), RelationText(table=None, path=None, options={}, streaming=False)),
]


@pytest.mark.parametrize(("relation", "expected"), READS)
def test_a_read_of_what_may_be_a_delta_table_becomes_a_text_that_says_the_same(relation, expected):
    root = sent(asked(filtered(relation))).plan.root
    assert text_of(root.filter.input) == expected
    assert root.filter.input.common.plan_id == relation.common.plan_id
    assert root.filter.condition.literal.boolean


def test_a_schema_that_was_given_is_told():
    relation = loaded("delta", "/p")
    relation.read.data_source.schema = "a int"
    assert text_of(sent(asked(relation)).plan.root).schema


@pytest.mark.parametrize(
    "relation",
    [loaded("parquet", "/p"), loaded("parquet", "/p", "/q"), Relation(sql=relations_pb2.SQL(query="SELECT 1"))],
)
def test_other_reads_go_on_as_they_came_byte_for_byte(relation):
    data = asked(relation).SerializeToString()
    assert execution(data, Commands()) is data


def test_a_read_in_a_subquery_in_a_map_and_beside_others_is_found():
    root = Relation()
    root.with_relations.root.CopyFrom(Relation(sql=relations_pb2.SQL(query="SELECT * FROM a")))
    alias = root.with_relations.references.add()
    alias.subquery_alias.alias = "a"
    alias.subquery_alias.input.CopyFrom(named("t"))
    outer = Relation()
    outer.join.left.CopyFrom(root)
    outer.join.right.CopyFrom(loaded("delta", "/p"))
    found = sent(asked(outer)).plan.root
    assert text_of(found.join.left.with_relations.references[0].subquery_alias.input).table == "t"
    assert text_of(found.join.right).path == "/p"


def test_a_plan_as_deep_as_a_long_program_is_rewritten():
    relation = named("t")
    for _ in range(400):
        relation = filtered(relation)
    found = sent(asked(relation)).plan.root
    for _ in range(400):
        found = found.filter.input
    assert text_of(found).table == "t"


def test_a_compressed_plan_is_unpacked_and_rewritten():
    request = asked(named("t"))
    data = request.plan.root.SerializeToString()
    packed_plan = request.plan.compressed_operation
    packed_plan.data = zstandard.ZstdCompressor().compress(data)
    packed_plan.op_type = base_pb2.Plan.CompressedOperation.OP_TYPE_RELATION
    packed_plan.compression_codec = base_pb2.COMPRESSION_CODEC_ZSTD
    assert text_of(sent(request).plan.root).table == "t"


def test_a_request_for_a_schema_is_rewritten():
    request = base_pb2.AnalyzePlanRequest(session_id="s")
    request.schema.plan.root.CopyFrom(named("t"))
    found = base_pb2.AnalyzePlanRequest.FromString(analysis(request.SerializeToString()))
    assert text_of(found.schema.plan.root).table == "t"


def commanded(**kind):
    request = base_pb2.ExecutePlanRequest(session_id="s1", operation_id="op")
    request.user_context.user_id = "ann"
    request.plan.command.CopyFrom(commands_pb2.Command(**kind))
    return request


def test_a_command_waits_under_a_token_that_is_taken_once():
    commands = Commands()
    write = commands_pb2.WriteOperation(input=named("t"), source="delta", path="/p")
    found = sent(commanded(write_operation=write), commands)
    text = found.plan.command.sql_command.input.sql.query
    kept = commands.take(text)
    assert (kept.user, kept.session, kept.operation) == ("ann", "s1", "op")
    assert kept.message.write_operation.path == "/p"
    assert text_of(kept.message.write_operation.input).table == "t"
    assert commands.take(text) is None
    assert len(commands) == 0


OURS = [
    {"write_operation": commands_pb2.WriteOperation(source="parquet")},  # into a Delta table's folder: refused there
    {"write_operation_v2": commands_pb2.WriteOperationV2(table_name="t")},
    {"merge_into_table_command": commands_pb2.MergeIntoTableCommand(target_table_name="t")},
    {"write_stream_operation_start": commands_pb2.WriteStreamOperationStart(format="delta")},
    {"write_stream_operation_start": commands_pb2.WriteStreamOperationStart(table_name="t", format="parquet")},
    {"extension": any_pb2.Any(type_url=COMMAND_URL, value=packed([Call("forName", ("t",))]))},
]
SPARKS = [
    {"sql_command": commands_pb2.SqlCommand(sql="SELECT 1")},
    {"write_stream_operation_start": commands_pb2.WriteStreamOperationStart(format="console")},
    {"extension": any_pb2.Any(type_url="type.googleapis.com/other", value=b"x")},
    {"create_dataframe_view": commands_pb2.CreateDataFrameViewCommand(name="v")},
]


@pytest.mark.parametrize("kind", OURS)
def test_commands_that_may_be_about_a_delta_table_are_ours(kind):
    found = sent(commanded(**kind))
    assert token_of(found.plan.command.sql_command.input.sql.query)


@pytest.mark.parametrize("kind", SPARKS)
def test_other_commands_are_spark_s(kind):
    data = commanded(**kind).SerializeToString()
    assert execution(data, Commands()) is data


def test_reads_in_the_calls_of_a_remote_table_are_rewritten():
    condition = expressions_pb2.Expression()
    condition.literal.integer = 4
    calls = [Call("merge", (WirePlan(named("t").SerializeToString()), Expression(condition.SerializeToString())))]
    commands = Commands()
    extension = any_pb2.Any(type_url=COMMAND_URL, value=packed(calls))
    found = sent(commanded(extension=extension), commands)
    kept = commands.take(found.plan.command.sql_command.input.sql.query)
    plan, same = unpacked(kept.message.extension.value)[0].arguments
    assert text_of(Relation.FromString(plan.data)).table == "t"
    assert expressions_pb2.Expression.FromString(same.data) == condition


def test_a_command_that_never_began_is_let_go_after_an_hour():
    now = [0.0]
    commands = Commands(lambda: now[0])
    message = commands_pb2.Command()
    old = commands.put(RemoteCommand(user="a", session="s", operation="o", message=message))
    now[0] = 3599.0
    young = commands.put(RemoteCommand(user="a", session="s", operation="o", message=message))
    assert len(commands) == 2
    now[0] = 3601.0
    commands.put(RemoteCommand(user="a", session="s", operation="o", message=message))
    assert commands.take(old) is None
    assert commands.take(young) is not None


def test_texts_of_sql_are_neither():
    for text in ("SELECT 1", "", "PYDELTA", "pydelta relation {}"):
        assert RelationText.of(text) is None
        assert token_of(text) is None
    with pytest.raises(ValueError, match="not a relation"):
        RelationText.of('PYDELTA RELATION {"nope": 1}')


@pytest.mark.parametrize(
    ("method", "kind"),
    [("ExecutePlan", base_pb2.ExecutePlanRequest), ("Interrupt", base_pb2.InterruptRequest)],
)
def test_a_request_gets_the_user_whose_token_was_shown(method, kind):
    request = kind(session_id="s")
    request.user_context.user_id = "somebody else"
    signed = kind.FromString(with_user(method, "ann")(request.SerializeToString()))
    assert (signed.user_context.user_id, signed.user_context.user_name) == ("ann", "ann")
    assert signed.session_id == "s"


def test_a_method_that_spark_connect_has_not_is_no_key():
    with pytest.raises(KeyError):
        with_user("Nope", "ann")
