"""Table properties and session settings: parsed once, refused by name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.settings import (
    Settings,
    TableProperties,
    canonical_properties,
    check_property_names,
    checked_properties,
    parse_bytes,
    parse_interval_ms,
)
from pydelta.settings.maintenance import MaintenancePolicy
from pydelta.settings.row import rows_of

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 30 days", 30 * 24 * HOUR),
        ("INTERVAL 1 week", 7 * 24 * HOUR),
        ("2 hours 30 minutes", 2 * HOUR + HOUR // 2),
        ("interval 1 day 2 hours", 26 * HOUR),
        ("interval 0 seconds", 0),
        ("1500 milliseconds", 1500),
    ],
)
def test_an_interval_of_fixed_length(text, expected):
    assert parse_interval_ms(text) == expected


@pytest.mark.parametrize("text", ["", "interval", "1 month", "2 years", "-3 days", "ten days", "5", "1 day and"])
def test_what_is_no_interval_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="interval"):
        parse_interval_ms(text, name="delta.logRetentionDuration")


@pytest.mark.parametrize(("text", "expected"), [("1", 1), ("128mb", 128 << 20), ("1 g", 1 << 30), ("4KiB", 4096)])
def test_sizes(text, expected):
    assert parse_bytes(text, name="x") == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "1x", "mb"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidArgumentError):
        parse_bytes(text, name="delta.targetFileSize")


@pytest.mark.parametrize(
    ("text", "expected"), [("10s", 10_000), ("500ms", 500), ("2min", 120_000), ("1.5 s", 1500), ("1 hour", HOUR)]
)
def test_how_long_hooks_may_wait(text, expected):
    assert Settings.resolve({}).hooks_timeout_ms == 10_000
    assert Settings.resolve({"spark.pydelta.hooks.timeout": text}).hooks_timeout_ms == expected
    assert Settings.resolve({}, {"PYDELTA_HOOKS_TIMEOUT": text}).hooks_timeout_ms == expected


@pytest.mark.parametrize("text", ["", "0s", "-1s", "10", "soon", "1 month", "0.1ms"])
def test_what_is_no_time_to_wait_is_refused(text):
    with pytest.raises(InvalidArgumentError, match=r"hooks\.timeout") as caught:
        Settings.resolve({"spark.pydelta.hooks.timeout": text})
    assert "10s" in caught.value.hint


def test_properties_have_the_protocol_s_defaults():
    properties = TableProperties.parse({})
    assert properties.checkpoint_interval == 10
    assert properties.log_retention_ms == 30 * 24 * HOUR
    assert properties.deleted_file_retention_ms == 7 * 24 * HOUR
    assert properties.data_skipping_num_indexed_cols == 32
    assert properties.isolation_level == "Serializable"
    assert not properties.append_only


def test_properties_are_parsed_and_foreign_ones_ignored():
    properties = TableProperties.parse(
        {
            "delta.checkpointInterval": "3",
            "delta.appendOnly": "TRUE",
            "delta.isolationLevel": "writeserializable",
            "delta.dataSkippingStatsColumns": "a, `b,c`.d",
            "owner": "us",
            "delta.somethingNewer": "x",
        }
    )
    assert properties.checkpoint_interval == 3
    assert properties.append_only
    assert properties.isolation_level == "WriteSerializable"
    assert properties.data_skipping_stats_columns == ("a", "`b,c`.d")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "ten"),
        ("delta.appendOnly", "yes"),
        ("delta.isolationLevel", "ReadCommitted"),
        ("delta.isolationLevel", "SnapshotIsolation"),
        ("delta.isolationLevel", " snapshotisolation"),
        ("delta.checkpointPolicy", "v3"),
        ("delta.logRetentionDuration", "forever"),
    ],
)
def test_a_value_that_cannot_be_right_is_refused_with_its_name(name, value):
    with pytest.raises(InvalidArgumentError) as caught:
        check_property_names({name: value})
    assert name in str(caught.value)
    assert value in str(caught.value)


def test_snapshot_isolation_in_a_log_that_is_there_counts_as_the_default():
    assert TableProperties.parse({"delta.isolationLevel": "SnapshotIsolation"}).isolation_level == "Serializable"


def test_a_misspelt_property_is_refused_with_a_suggestion_and_a_user_s_own_is_not():
    with pytest.raises(UnknownSettingError, match=r"delta\.appendOnly"):
        check_property_names({"delta.appendonyl": "true"})
    check_property_names(
        {"team": "x", "pydelta.sync.enabled": "true", "delta.constraints.c": "id > 0", "delta.feature.x": "supported"}
    )


def test_names_of_properties_that_are_known_ignore_case():
    given = {"DELTA.appendonly": "true", "delta.feature.appendOnly": "supported", "Own": "1", "delta.Nope": "2"}
    assert canonical_properties(given) == {
        "delta.appendOnly": "true",
        **{name: given[name] for name in list(given)[1:]},
    }


def test_session_goes_before_alias_before_environment_before_default():
    key, alias = "spark.pydelta.schema.autoMerge", "spark.databricks.delta.schema.autoMerge.enabled"
    env = {"PYDELTA_SCHEMA_AUTO_MERGE": "true", "PYDELTA_COMMIT_MAX_ATTEMPTS": "7"}
    assert not Settings.resolve({}, {}).schema_auto_merge
    assert Settings.resolve({}, env).schema_auto_merge
    assert Settings.resolve({}, env).commit_max_attempts == 7
    assert not Settings.resolve({alias: "false"}, env).schema_auto_merge
    assert Settings.resolve({alias: "false", key: "true"}, {}).schema_auto_merge


def test_a_misspelt_setting_is_refused_with_a_suggestion_and_spark_s_own_are_ignored():
    with pytest.raises(UnknownSettingError, match=r"spark\.pydelta\.commit\.maxAttempts"):
        Settings.resolve({"spark.pydelta.commit.maxAttempt": "3"}, {})
    assert Settings.resolve({"spark.app.name": "x", "spark.pydelta.logStore.oss": "a:b"}, {}) == Settings()


def test_defaults_for_new_tables_are_collected():
    session = {
        "spark.databricks.delta.properties.defaults.appendOnly": "true",
        "spark.pydelta.properties.defaults.checkpointInterval": "5",
    }
    assert Settings.resolve(session, {}).default_properties == {
        "delta.appendOnly": "true",
        "delta.checkpointInterval": "5",
    }


@pytest.mark.parametrize(
    ("session", "mebibytes"),
    [
        ({}, 64),
        ({"spark.master": "spark://master:7077"}, 64),
        ({"spark.master": "local-cluster[2,1,1024]"}, 64),
        ({"spark.master": "local"}, 256),
        ({"spark.master": "local[*]"}, 256),
        ({"spark.master": "local[4, 2]"}, 256),
        ({"spark.master": "local[2]", "spark.pydelta.local.maxBytes": "1m"}, 1),
    ],
)
def test_more_is_done_in_the_driver_where_its_cores_are_all_there_are(session, mebibytes):
    assert Settings.resolve(session, env={}).local_max_bytes == mebibytes << 20
    own = {"PYDELTA_LOCAL_MAX_BYTES": "2m"}
    asked = "spark.pydelta.local.maxBytes" in session
    assert Settings.resolve(session, env=own).local_max_bytes == (1 if asked else 2) << 20


CHANGES, ALL = "spark.pydelta.local.changesMaxBytes", "spark.pydelta.local.maxBytes"


@pytest.mark.parametrize(
    ("session", "env", "limit"),
    [
        ({}, {}, 64 << 20),
        ({"spark.master": "spark://master:7077"}, {}, 64 << 20),
        ({"spark.master": "local[2]"}, {}, 2**63 - 1),
        ({"spark.master": "local[2]", ALL: "1m"}, {}, 1 << 20),
        ({"spark.master": "local[2]", ALL: "0"}, {}, 0),
        ({"spark.master": "local[2]"}, {"PYDELTA_LOCAL_MAX_BYTES": "2m"}, 2 << 20),
        ({"spark.master": "local[2]", CHANGES: "3m"}, {}, 3 << 20),
        ({"spark.master": "local[2]", CHANGES: "3m", ALL: "1m"}, {}, 3 << 20),
        ({CHANGES: "3m"}, {"PYDELTA_LOCAL_CHANGES_MAX_BYTES": "4m"}, 3 << 20),
        ({}, {"PYDELTA_LOCAL_CHANGES_MAX_BYTES": "0"}, 0),
    ],
)
def test_changes_have_no_limit_where_jobs_would_take_the_same_cores(session, env, limit):
    assert Settings.resolve(session, env=env).changes_limit == limit


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("delta.dataSkippingNumIndexedCols", "-2", "DELTA_INVALID_PROPERTY_VALUE"),
        ("delta.dataSkippingNumIndexedCols", "1_0", "DELTA_INVALID_PROPERTY_VALUE"),
        ("delta.checkpointInterval", "1_0", "DELTA_INVALID_PROPERTY_VALUE"),
        ("delta.dataSkippingStringPrefixLength", "-1", "DELTA_INVALID_PROPERTY_VALUE"),
        ("delta.randomPrefixLength", "0", "DELTA_INVALID_PROPERTY_VALUE"),
        ("delta.enableVariantShredding", "yes", "DELTA_INVALID_PROPERTY_VALUE"),
        ("delta.sampleRetentionDuration", "1 month", "DELTA_INVALID_INTERVAL"),
        ("delta.rowTrackingSuspended", "true", "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"),
        ("delta.feature.clustering", "supported", "DELTA_CREATE_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED"),
    ],
)
def test_a_value_of_a_property_that_cannot_be_right_is_refused_when_a_table_is_made(name, value, code):
    given = {name: value} | ({"delta.enableRowTracking": "true"} if "Suspended" in name else {})
    with pytest.raises(InvalidArgumentError) as refused:
        checked_properties(given)
    assert (refused.value.code, bool(refused.value.hint)) == (code, True)


def test_a_table_that_has_such_a_value_is_read_all_the_same():
    assert TableProperties.parse({"delta.dataSkippingNumIndexedCols": "-2"}).data_skipping_num_indexed_cols == -2
    assert checked_properties({"delta.dataSkippingNumIndexedCols": "-1", "delta.dataSkippingStringPrefixLength": "0"})


@pytest.mark.parametrize("kind", [Settings, TableProperties, MaintenancePolicy])
def test_a_setting_is_one_row_whose_default_is_what_its_parser_makes_of_the_text(kind):
    rows = rows_of(kind)
    assert len({row.key.lower() for row in rows.values()}) == len({row.field for row in rows.values()}) == len(rows)
    assert {field.name for field in fields(kind)} - {row.field for row in rows.values()} <= {"default_properties"}
    for key, row in rows.items():
        assert row.meaning.endswith(".")
        if row.default:
            assert getattr(kind(), row.field) == row.parse(row.default, name=key)
