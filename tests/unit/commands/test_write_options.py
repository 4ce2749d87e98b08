"""A writer's options as users give them: what is taken, what is passed over, what is refused."""

from __future__ import annotations

import pytest

from pydelta.commands.write.options import HONOURED, PASSED_OVER, StatementCondition, WriteMode, WriteOptions
from pydelta.errors import DeltaError, InvalidArgumentError, UnsupportedFeatureError
from pydelta.settings import Settings


def parse(options=None, mode=WriteMode.OVERWRITE, settings=None, **how):
    return WriteOptions.parse(options or {}, mode=mode, settings=settings or Settings(), **how)


VALUES = {
    "clusterBy": ("a, b", "cluster_by", ("a", "b")),
    "compression": ("zstd", "compression", "zstd"),
    "dataChange": ("false", "data_change", False),
    "maxRecordsPerFile": ("7", "max_records_per_file", 7),
    "mergeSchema": ("true", "merge_schema", True),
    "optimizeWrite": ("true", "optimize_write", True),
    "overwriteSchema": ("true", "overwrite_schema", True),
    "parquet.compression": ("gzip", "compression", "gzip"),
    "partitionOverwriteMode": ("dynamic", "dynamic", True),
    "path": ("/t", None, None),
    "replaceOn": ("t.a = s.a", "replace_on", "t.a = s.a"),
    "replaceUsing": ("a, b", "replace_using", ("a", "b")),
    "replaceWhere": ("a = 1", "replace_where", "a = 1"),
    "spark.sql.parquet.outputTimestampType": ("timestamp_micros", "timestamp_type", "TIMESTAMP_MICROS"),
    "targetAlias": ("t", "target_alias", "t"),
    "targetFileSize": ("1g", "target_file_size", "1g"),
    "txnAppId": ("job", "txn_app_id", "job"),
    "txnVersion": ("3", "txn_version", 3),
    "userMetadata": ("why", "user_metadata", "why"),
}
TOGETHER = {
    "targetAlias": {"replaceOn": "true"},
    "txnAppId": {"txnVersion": "1"},
    "txnVersion": {"txnAppId": "job"},
}


def test_every_option_has_a_case():
    assert VALUES.keys() == HONOURED.keys()


@pytest.mark.parametrize("spelling", [str, str.lower, str.upper], ids=["as it is", "lower", "upper"])
@pytest.mark.parametrize("name", VALUES)
def test_an_option_is_taken_however_it_is_written(name, spelling):
    text, attribute, expected = VALUES[name]
    parsed = parse({spelling(name): text, **TOGETHER.get(name, {})})
    if attribute is not None:
        assert getattr(parsed, attribute) == expected


@pytest.mark.parametrize(
    "name", ["mergeSchemas", "mergeShcema", "replace_where", "targetFile", "rplaceUsing", "TXNAPPLD"]
)
def test_an_option_that_is_nearly_one_that_is_known_is_refused(name):
    with pytest.raises(InvalidArgumentError, match="Unknown write option") as caught:
        parse({name: "1"})
    assert repr(name) in str(caught.value)
    assert "Did you mean" in str(caught.value)


@pytest.mark.parametrize("name", ["frobnicate", "header", "spark.sql.whatever", "mode", "batchsize", "dbtable", "user"])
def test_an_option_of_another_library_is_passed_over_with_a_warning_without_its_value(name):
    with pytest.warns(UserWarning, match=f"write option '{name}' is ignored") as told:
        assert parse({name: "secret"}) == parse()
    assert all("secret" not in str(item.message) for item in told)


def test_a_misspelt_option_is_refused_with_a_suggestion():
    with pytest.raises(InvalidArgumentError, match="Did you mean 'replaceUsing'"):
        parse({"replaceUsng": "a"})


@pytest.mark.parametrize("name", ["versionAsOf", "STARTINGVERSION", "readChangeFeed", "maxFilesPerTrigger"])
def test_an_option_of_readers_is_passed_over_with_a_warning_that_says_so(name):
    with pytest.warns(UserWarning, match="option of readers"):
        assert parse({name: "1"}) == parse()


@pytest.mark.parametrize("version", ["-1", "-9223372036854775808", "x", "1.5", ""])
def test_a_transaction_version_that_is_not_counted_from_0_is_refused(version):
    with pytest.raises(InvalidArgumentError) as caught:
        parse({"txnAppId": "a", "txnVersion": version})
    assert caught.value.code == "DELTA_ILLEGAL_OPTION"
    assert f"Invalid value '{version}' for option 'txnVersion'" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in PASSED_OVER if not name.endswith("*")])
def test_what_has_no_meaning_is_passed_over(name):
    assert parse({name: "1"}) == parse()
    assert parse({name.upper(): "1"}) == parse()


@pytest.mark.parametrize("name", ["parquet.block.size", "Parquet.Bloom.Filter.Enabled#a", "writePartitionColumns"])
def test_tuning_of_another_parquet_writer_is_passed_over(name):
    assert parse({name: "false"}) == parse()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parquet.encryption.column.keys", "k:a"),
        ("Parquet.Crypto.Factory.Class", "x"),
        ("parquet.encryption.footer.key", "k"),
        ("writePartitionColumns", "true"),
    ],
)
def test_what_would_be_written_otherwise_is_refused(name, value):
    with pytest.raises(UnsupportedFeatureError, match=name):
        parse({name: value})


def test_storage_settings_and_properties_are_taken_apart():
    parsed = parse(
        {"fs.s3a.access.key": "x", "spark.hadoop.fs.a": "y", "google.cloud.auth": "z", "delta.appendOnly": "true"}
    )
    assert parsed.storage == {"fs.s3a.access.key": "x", "spark.hadoop.fs.a": "y", "google.cloud.auth": "z"}
    assert parsed.properties == {"delta.appendOnly": "true"}


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"replaceUsing": "a"}, WriteMode.CREATE_OR_REPLACE),
        ({"replaceUsing": "a", "replaceOn": "true"}, WriteMode.OVERWRITE),
        ({"replaceUsing": "a", "replaceWhere": "a = 1"}, WriteMode.OVERWRITE),
        ({"replaceOn": "true", "replaceWhere": "a = 1"}, WriteMode.OVERWRITE),
        ({"replaceUsing": "a", "overwriteSchema": "true"}, WriteMode.OVERWRITE),
        ({"replaceOn": "true", "partitionOverwriteMode": "dynamic"}, WriteMode.OVERWRITE),
        ({"replaceUsing": "a", "partitionOverwriteMode": "static"}, WriteMode.OVERWRITE),
        ({"replaceUsing": "a", "dataChange": "false"}, WriteMode.OVERWRITE),
        ({"replaceUsing": ""}, WriteMode.OVERWRITE),
        ({"replaceUsing": "a,,b"}, WriteMode.OVERWRITE),
        ({"spark.sql.parquet.outputTimestampType": "NANOS"}, WriteMode.OVERWRITE),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, mode):
    with pytest.raises(DeltaError) as caught:
        parse(options, mode)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["replaceUsing", "replaceOn"])
@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.ERROR_IF_EXISTS, WriteMode.IGNORE])
def test_what_says_which_rows_an_overwrite_replaces_is_passed_over_in_other_modes(name, mode):
    with pytest.warns(UserWarning, match=name):
        parsed = parse({name: "a", "targetAlias": "t"}, mode)
    assert (parsed.replace_using, parsed.replace_on, parsed.replaces_matches) == (None, None, False)


def test_an_alias_of_the_target_may_stand_where_no_condition_names_it():
    parsed = parse({"replaceUsing": "a", "targetAlias": "t"}, WriteMode.OVERWRITE)
    assert (parsed.replace_using, parsed.target_alias) == (("a",), None)


@pytest.mark.parametrize("name", ["replaceUsing", "replaceOn", "replaceWhere"])
def test_a_session_that_overwrites_partitions_does_not_get_in_the_way_of_what_a_write_says(name):
    parsed = parse({name: "a"}, settings=Settings(partition_overwrite_mode="dynamic"))
    assert not parsed.dynamic


def test_a_write_s_own_transaction_goes_before_the_session_s():
    session = Settings(txn_app_id="session", txn_version=9)
    assert (parse(settings=session).txn_app_id, parse(settings=session).txn_version) == ("session", 9)
    own = parse({"txnAppId": "own", "txnVersion": "1"}, settings=session)
    assert (own.txn_app_id, own.txn_version) == ("own", 1)
    with pytest.raises(InvalidArgumentError, match="belong together"):
        parse({"txnVersion": "1"}, settings=session)
    with pytest.raises(InvalidArgumentError, match="belong together"):
        parse(settings=Settings(txn_version=1))


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({"replaceUsing": "a"}, {"replace_where": "a = 1"}),
        ({"replaceUsing": "a"}, {"dynamic": True}),
        ({"replaceWhere": "a = 1"}, {"replace_using": ("a",)}),
        ({"replaceOn": "true"}, {"replace_on": StatementCondition(text="t.a = s.a", native=None)}),
        ({"overwriteSchema": "true"}, {"replace_using": ("a",)}),
        ({"dataChange": "false"}, {"replace_using": ("a",)}),
    ],
)
def test_a_statement_that_says_which_rows_go_takes_no_option_that_says_so_too(options, own):
    with pytest.raises(InvalidArgumentError) as caught:
        parse(options, WriteMode.OVERWRITE).narrowed(**own)
    assert next(iter(options)) in str(caught.value)
    assert caught.value.hint


def test_a_statement_goes_before_the_session_s_way_to_overwrite_partitions():
    parsed = parse({}, settings=Settings(partition_overwrite_mode="dynamic"))
    assert parsed.dynamic
    assert not parsed.narrowed(replace_using=("a",)).dynamic
    assert parsed.narrowed() is parsed
