"""Options of readStream."""

from __future__ import annotations

import pytest

from pydelta.commands.stream.options import SourceOptions
from pydelta.errors import InvalidArgumentError


def test_without_options_a_thousand_files_a_trigger_from_the_snapshot():
    options = SourceOptions.parse({"path": "/t"})
    assert (options.max_files, options.max_bytes) == (1000, None)
    assert options.fail_on_data_loss
    assert options.starting_version is None
    assert not options.from_latest


def test_names_ignore_case_and_older_names_stand_for_newer_ones():
    options = SourceOptions.parse(
        {"STARTINGVERSION": "3", "maxbytespertrigger": "1m", "ignoreFileDeletion": "true", "readChangeData": "TRUE"}
    )
    assert options.starting_version == 3
    assert (options.max_files, options.max_bytes) == (None, 1 << 20)
    assert options.ignore_changes
    assert options.change_feed


def test_latest_is_not_a_version():
    options = SourceOptions.parse({"startingVersion": "Latest"})
    assert options.from_latest
    assert options.starting_version is None


def test_exclude_regex_finds_its_match_anywhere_in_the_path():
    options = SourceOptions.parse({"excludeRegex": r"p=\d/"})
    assert options.excludes("a/p=1/x.parquet")
    assert not options.excludes("a/p=x/x.parquet")
    assert not SourceOptions.parse({}).excludes("x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingVersion": "1", "startingTimestamp": "2024-01-01"}, "startingTimestamp"),
        ({"startingVersion": "-1"}, "startingVersion"),
        ({"startingVersion": "newest"}, "'latest'"),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger"),
        ({"maxFilesPerTrigger": "1.5"}, "maxFilesPerTrigger"),
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger"),
        ({"ignoreDeletes": "yes"}, "ignoreDeletes"),
        ({"excludeRegex": "("}, "excludeRegex"),
        ({"versionAsOf": "1"}, "versionAsOf"),
        ({"endingVersion": "1"}, "endingVersion"),
        ({"maxFilePerTrigger": "1"}, "maxFilesPerTrigger"),
    ],
)
def test_value_that_cannot_be_right_is_named(options, words):
    with pytest.raises(InvalidArgumentError) as caught:
        SourceOptions.parse(options)
    assert words in str(caught.value)


def test_the_order_of_event_time_is_one_of_the_initial_snapshot_alone():
    assert SourceOptions.parse({"withEventTimeOrder": "true"}).event_time_order
    assert not SourceOptions.parse({"withEventTimeOrder": "false"}).event_time_order
    with pytest.raises(InvalidArgumentError, match="withEventTimeOrder"):
        SourceOptions.parse({"withEventTimeOrder": "true", "readChangeFeed": "true"})


def test_schemas_are_tracked_at_a_location_by_either_name():
    assert SourceOptions.parse({}).schema_location is None
    for name in ("schemaTrackingLocation", "SCHEMALOCATION"):
        assert SourceOptions.parse({name: "/c/s"}).schema_location == "/c/s"
    options = {"streamingSourceTrackingId": "a", "allowSourceColumnDrop": "always", "allowSourceColumnRename": "7"}
    found = SourceOptions.parse(options)
    assert found.tracking_id == "a"
    assert found.allowed == {"allowSourceColumnDrop": "always", "allowSourceColumnRename": "7"}
    with pytest.raises(InvalidArgumentError, match="allowSourceColumnTypeChange"):
        SourceOptions.parse({"allowSourceColumnTypeChange": "yes"})


def test_time_travel_is_called_as_the_reference_calls_it():
    with pytest.raises(InvalidArgumentError) as caught:
        SourceOptions.parse({"versionAsOf": "1"})
    assert caught.value.getCondition() == "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"
