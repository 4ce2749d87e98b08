"""The table of the kinds of stores, and what is made of it elsewhere."""

from __future__ import annotations

import typer

from pydelta.api.cli.cli import app
from pydelta.errors.redaction import hide_text
from pydelta.manifests.contents import DEFAULT_SCHEMES
from pydelta.storage import registry
from pydelta.storage.kinds import KINDS, elsewhere_scheme, kind_of, spark_scheme
from pydelta.tools.lineage.events import dataset_name

SCHEMES = [scheme for kind in KINDS for scheme in kind.schemes]


def schemes_with(trait):
    return {scheme for scheme in SCHEMES if getattr(kind_of(scheme), trait)}


def test_a_scheme_is_in_one_row_and_every_factory_is_there():
    assert len(set(SCHEMES)) == len(SCHEMES)
    for scheme in schemes_with("factory"):
        assert callable(registry._factory(scheme, {}))
    assert set(SCHEMES) - schemes_with("factory") == {"viewfs", "wasb", "wasbs"}


def test_what_each_store_can_do():
    assert schemes_with("folders") == {"file", "hdfs", "viewfs"}
    assert schemes_with("buckets") == {"s3a", "s3", "s3n", "gs", "abfss", "abfs", "az"}
    assert schemes_with("spark") == {"s3a", "s3", "s3n", "abfss", "abfs"}


def test_one_store_has_one_scheme_in_spark_and_one_elsewhere():
    assert {scheme: spark_scheme(scheme) for scheme in SCHEMES if spark_scheme(scheme) != scheme} == {
        "s3": "s3a",
        "s3n": "s3a",
    }
    assert {scheme: elsewhere_scheme(scheme) for scheme in SCHEMES if elsewhere_scheme(scheme) != scheme} == {
        "s3a": "s3",
        "s3n": "s3",
    }
    assert DEFAULT_SCHEMES == {"s3a": "s3", "s3n": "s3"}
    assert {kind_of(scheme).name for scheme in ("abfs", "abfss")} == {"abfs"}


def test_a_scheme_that_is_in_no_row_is_a_kind_of_its_own():
    other = kind_of("oss")
    assert (other.name, other.schemes, other.factory) == ("oss", ("oss",), None)
    assert not (other.folders or other.buckets or other.container)
    assert spark_scheme("oss") == elsewhere_scheme("oss") == "oss"


def test_what_stands_before_the_host_is_hidden_unless_it_is_a_container():
    assert {scheme for scheme in SCHEMES if "(hidden)" not in hide_text(f"at {scheme}://box@host/t")} == schemes_with(
        "container"
    )
    assert dataset_name("wasbs://box@host/t") == ("wasbs://box@host", "t")
    assert dataset_name("s3n://user@bucket/t") == ("s3://bucket", "t")


def test_the_help_of_a_location_names_the_stores():
    history = typer.main.get_command(app).commands["history"]
    assert history.params[0].help == "Location of the table: a local path, s3a://, gs://, abfss://, hdfs://."
