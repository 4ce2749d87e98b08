"""Which packages a new session needs for the stores that its settings name."""

from __future__ import annotations

import pytest

from pydelta.engines.spark.session.stores import packages_for

S3 = {"spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000"}
AZURE = {"spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": "secret"}
AWS = "org.apache.hadoop:hadoop-aws:3.5.0"


@pytest.mark.parametrize(
    ("settings", "jars", "expected"),
    [
        ({}, [], None),
        ({"spark.hadoop.fs.defaultFS": "hdfs://here"}, [], None),
        (S3, [], AWS),
        (S3, ["hadoop-aws-3.5.0.jar"], None),
        (S3 | {"spark.jars.packages": "a:b:1"}, [], f"a:b:1,{AWS}"),
        (S3 | {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.2"}, [], None),
        (S3 | AZURE, [], f"{AWS},org.apache.hadoop:hadoop-azure:3.5.0"),
    ],
)
def test_packages(tmp_path, settings, jars, expected):
    for name in ("hadoop-client-api-3.5.0.jar", "hadoop-client-runtime-3.5.0.jar", *jars):
        (tmp_path / name).touch()
    assert packages_for(settings, jars=tmp_path) == expected


def test_a_spark_without_hadoop_has_nothing_to_fit(tmp_path):
    assert packages_for(S3, jars=tmp_path) is None
