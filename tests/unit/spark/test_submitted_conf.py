"""The settings of a job that starts no session."""

from __future__ import annotations

from pydelta.engines.spark.session.submitted import expanded, submitted_conf


def test_a_process_of_its_own_was_passed_nothing(monkeypatch):
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert submitted_conf() == {}


def test_variables_are_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv("S3_ENDPOINT", "http://minio:9000")
    assert expanded("${env.S3_ENDPOINT}") == "http://minio:9000"
    assert expanded("a ${env.NOT_SET_AT_ALL} b") == "a ${env.NOT_SET_AT_ALL} b"
