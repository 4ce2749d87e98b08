"""What becomes of Spark Connect's answers on their way to the client."""

from __future__ import annotations

import json

import pyarrow as pa
from google.rpc import error_details_pb2, status_pb2
from pyspark.sql.connect.proto import base_pb2

from pydelta.api.server.replies import QUERY, error_metadata, execution_reply


def reply(table):
    found = base_pb2.ExecutePlanResponse(session_id="s", response_id="r1", operation_id="op")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    found.sql_command_result.relation.local_relation.data = sink.getvalue().to_pybytes()
    return found.SerializeToString()


def test_the_row_of_a_started_stream_becomes_the_message_that_clients_wait_for():
    row = dict(zip(QUERY, (["q"], ["r"], ["n"]), strict=True))
    found = base_pb2.ExecutePlanResponse.FromString(execution_reply(reply(pa.table(row))))
    started = found.write_stream_operation_start_result
    assert (started.query_id.id, started.query_id.run_id, started.name) == ("q", "r", "n")
    assert (found.response_id, found.operation_id) == ("r1", "op")
    assert found.WhichOneof("response_type") == "write_stream_operation_start_result"


def test_other_answers_pass_byte_for_byte():
    for table in (pa.table({"id": [1]}), pa.table({QUERY[0]: ["a", "b"]}), pa.table({QUERY[0]: ["a"]})):
        data = reply(table)
        assert execution_reply(data) is data


def trailing(message, classes):
    info = error_details_pb2.ErrorInfo(reason="org.apache.spark.SparkRuntimeException")
    info.metadata["classes"] = json.dumps(classes)
    info.metadata["errorClass"] = "X"
    status = status_pb2.Status(code=13, message=message)
    status.details.add().Pack(info)
    return [("other", "1"), ("grpc-status-details-bin", status.SerializeToString())]


def classes(metadata):
    status = status_pb2.Status.FromString(dict(metadata)["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    assert info.metadata["errorClass"] == "X"
    return json.loads(info.metadata["classes"])


RUNTIME = ["org.apache.spark.SparkRuntimeException", "java.lang.Throwable"]


def test_an_error_of_the_engine_gets_the_class_that_pyspark_s_users_catch():
    given = trailing("org.apache.spark.SparkRuntimeException: [DELTA_X] no table", RUNTIME)
    kinds = {"[DELTA_X] no table": "AnalysisException"}
    found = error_metadata(given, kinds.get)
    assert classes(found) == ["org.apache.spark.sql.AnalysisException", *RUNTIME]
    assert found[0] == ("other", "1")
    assert classes(error_metadata(trailing("[DELTA_X] no table", RUNTIME), kinds.get))[0].endswith("AnalysisException")


def test_an_error_of_spark_s_stays_what_it_is():
    given = trailing("something else", RUNTIME)
    assert error_metadata(given, {}.get) == given
    assert error_metadata(given, {"something else": "SparkRuntimeException"}.get) == given
