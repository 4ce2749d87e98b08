"""What a stream reads next, and the files between two offsets, from the log alone."""

from __future__ import annotations

import pytest
from stream_table import Table

from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.commits import ReadSchema, read_commit
from pydelta.commands.stream.errors import (
    SourceRowsChangedError,
    SourceRowsRemovedError,
    SourceSchemaChangedError,
    SourceTableReplacedError,
    SourceVersionsMissingError,
)
from pydelta.commands.stream.offsets import StreamOffset
from pydelta.commands.stream.options import SourceOptions
from pydelta.errors import (
    ChangeDataNotRecordedError,
    InvalidArgumentError,
    StreamStoppedError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pydelta.log import CommitRecord
from pydelta.protocol.actions import AddCDCFile, CommitInfo, encode_json


@pytest.fixture
def table():
    made = Table()
    made.append("a", "b", "c")
    made.append("d", "e")
    return made


def test_snapshot_comes_in_the_order_of_time_and_is_used_up_as_the_version_after_it(table):
    batches, end = table.run(table.stream(), files=2)
    assert batches == [((1, 1, True), "ab"), ((1, 3, True), "cd"), ((2, -1, False), "e")]
    table.append("f", "g")
    assert table.run(table.stream(), end, files=1)[0] == [((2, 0, False), "f"), ((3, -1, False), "g")]


def test_commits_follow_a_starting_version_and_may_share_a_batch(table):
    assert table.run(table.stream(startingVersion=0), files=4)[0] == [((1, 0, False), "abcd"), ((2, -1, False), "e")]
    assert table.run(table.stream(startingVersion=1))[0] == [((2, -1, False), "de")]


def test_bytes_are_a_soft_limit_so_that_each_batch_has_a_file(table):
    assert [names for _, names in table.run(table.stream(), size=1)[0]] == list("abcde")


def test_latest_begins_behind_the_newest_version_and_says_so_at_once(table):
    stream = table.stream(startingVersion="latest")
    batches, end = table.run(stream)
    assert batches == [((2, -1, False), "")]
    table.append("f")
    assert table.run(table.stream(startingVersion="latest"), end)[0] == [((3, -1, False), "f")]


def test_first_batch_behind_latest_whose_beginning_nobody_noted_is_refused(table):
    stream = table.stream(startingVersion="latest")
    assert table.batch(stream, None, table.offset(1)) == ""
    with pytest.raises(InvalidArgumentError, match="file 0 of version 1") as caught:
        stream.batch(None, table.offset(1, 0))
    assert "startingVersion" in caught.value.hint


def test_versions_without_rows_are_passed_with_the_files_before_them(table):
    table.builder.commit(table.file("h", data_change=False), operation="OPTIMIZE")
    table.append("f")
    assert table.run(table.stream(startingVersion=1), files=2)[0] == [((3, -1, False), "de"), ((4, -1, False), "f")]


def test_commits_behind_a_snapshot_read_after_the_first_batch_join_the_next_one(table):
    stream = table.stream()
    first = stream.latest(None, AdmissionBudget(max_files=4))
    table.append("f")
    assert table.run(stream, first, files=2)[0] == [((3, -1, False), "ef")]


def test_available_now_ends_at_the_version_that_was_the_newest(table):
    stream = table.stream(startingVersion=0)
    stream.stop_at_newest()
    table.append("f")
    batches, end = table.run(stream)
    assert [names for _, names in batches] == ["abcde"]
    assert table.run(table.stream(startingVersion=0), end)[0] == [((3, -1, False), "f")]


def test_excluded_files_are_counted_and_not_read(table):
    path = next(path for path, name in table.names.items() if name == "b")
    stream = table.stream(excludeRegex=path)
    assert [names for _, names in table.run(stream, files=1)[0]] == ["a", "", "c", "d", "e"]
    assert [names for _, names in table.run(table.stream(excludeRegex=path, startingVersion=0), files=3)[0]] == [
        "ac",
        "de",
    ]


def test_a_first_batch_of_the_reference_engine_beyond_the_snapshot_is_planned_again_without_gap(table):
    table.append("f", "g")
    stream = table.stream()
    assert table.batch(stream, None, table.offset(3)) == "abcdefg"
    assert table.batch(stream, None, table.offset(2, 0)) == "abcdef"


# -- what a commit may do ---------------------------------------------------------------------------------------


def _remove(table, adds, *new):
    table.builder.commit(*(add.remove(deletion_timestamp=1, data_change=True) for add in adds), *new, operation="X")


@pytest.mark.parametrize(
    ("new", "options", "outcome"),
    [
        ("", {}, SourceRowsRemovedError),
        ("", {"ignoreDeletes": "true"}, "f"),
        ("", {"ignoreChanges": "true"}, "f"),
        ("", {"skipChangeCommits": "true"}, "f"),
        ("n", {}, SourceRowsChangedError),
        ("n", {"ignoreDeletes": "true"}, SourceRowsChangedError),
        ("n", {"ignoreChanges": "true"}, "nf"),
        ("n", {"skipChangeCommits": "true"}, "f"),
    ],
)
def test_commit_that_takes_rows_away_stops_the_stream_unless_it_may_pass(table, new, options, outcome):
    adds = table.append("k")
    _remove(table, adds, *(table.file(name) for name in new))
    table.append("f")
    start = table.offset(3)
    if isinstance(outcome, str):
        assert "".join(names for _, names in table.run(table.stream(**options), start)[0]) == outcome
        return
    with pytest.raises(outcome, match="Version 3 ") as caught:
        table.stream(**options).latest(start, AdmissionBudget())
    assert isinstance(caught.value, StreamStoppedError)
    assert "ignore" in caught.value.hint


def test_a_commit_that_stops_the_stream_stops_it_only_when_it_gets_there(table):
    _remove(table, table.append("k"))
    stream = table.stream(startingVersion=0)
    assert table.batch(stream, None, stream.latest(None, AdmissionBudget(max_files=3))) == "abc"


def _with_column(table, name="y", **changes):
    fields = [{"name": column, "type": "long", "nullable": True, "metadata": {}} for column in ("x", name)]
    schema = encode_json({"type": "struct", "fields": fields})
    table.builder.commit(table.builder.metadata.replace(schema_string=schema, **changes))


def test_new_column_stops_the_running_stream_and_is_there_after_a_restart(table):
    stream = table.stream()
    end = stream.latest(None, AdmissionBudget())
    _with_column(table)
    table.append("f")
    with pytest.raises(SourceSchemaChangedError, match="column y is new") as caught:
        stream.latest(end, AdmissionBudget())
    assert "same checkpoint" in caught.value.hint
    assert [names for _, names in table.run(table.stream(), end)[0]] == ["f"]


def test_table_that_was_replaced_stops_the_stream(table):
    stream = table.stream()
    end = stream.latest(None, AdmissionBudget())
    table.builder.commit(table.builder.metadata.replace(id="another"))
    with pytest.raises(SourceTableReplacedError, match="another"):
        stream.latest(end, AdmissionBudget())


def test_checkpoint_of_another_table_is_refused(table):
    end = StreamOffset(table_id="other", version=1)
    with pytest.raises(SourceTableReplacedError, match="other"):
        table.stream().latest(end, AdmissionBudget())
    with pytest.raises(SourceTableReplacedError, match="other"):
        table.stream().batch(None, end)


def test_table_that_is_gone_stops_the_stream(table):
    stream = table.stream()
    for version in (0, 1):
        table.builder.store.delete_many([f"_delta_log/{version:020d}.json"])
    with pytest.raises(TableNotFoundError, match="no longer exists"):
        stream.latest(None, AdmissionBudget())


# -- versions that are not there --------------------------------------------------------------------------------


def _lose(table, *versions):
    table.log.checkpoint()
    table.builder.store.delete_many([f"_delta_log/{version:020d}.json" for version in versions])


def test_versions_that_are_gone_stop_the_stream_unless_loss_is_allowed(table):
    table.append("f")
    _lose(table, 0, 1)
    stream = table.stream(startingVersion=0)
    with pytest.raises(SourceVersionsMissingError, match=r"version 0.*continues at version 2"):
        stream.latest(None, AdmissionBudget())
    lossy = table.stream(startingVersion=0, failOnDataLoss="false")
    assert table.run(lossy)[0] == [((3, -1, False), "f")]


def test_snapshot_that_cannot_be_rebuilt_stops_the_stream_either_way(table):
    table.append("f")
    _lose(table, 0, 1)
    with pytest.raises(SourceVersionsMissingError, match="initial snapshot"):
        table.stream(failOnDataLoss="false").latest(table.offset(1, 0, initial=True), AdmissionBudget())


def test_checkpoint_that_is_ahead_of_the_table_is_refused_unless_loss_is_allowed(table):
    with pytest.raises(SourceVersionsMissingError, match="older state"):
        table.stream().latest(table.offset(9), AdmissionBudget())
    assert table.stream(failOnDataLoss="false").latest(table.offset(9), AdmissionBudget()) == table.offset(9)


def test_beginning_behind_the_newest_version_is_refused_or_waited_for(table):
    assert table.stream(startingVersion=2).latest(None, AdmissionBudget()) is None
    with pytest.raises(VersionNotFoundError, match=r"version 3.*newest version is 1"):
        table.stream(startingVersion=3).latest(None, AdmissionBudget())


# -- change feed ------------------------------------------------------------------------------------------------


@pytest.fixture
def feed():
    made = Table(enableChangeDataFeed="true")
    made.append("a", "b")
    return made


def test_inserts_of_a_feed_are_split_and_recorded_changes_are_not(feed):
    changed = [
        AddCDCFile(path=f"_change_data/{name}", partition_values={}, size=9, data_change=False) for name in "uvw"
    ]
    feed.names |= {change.path: change.path[-1] for change in changed}
    feed.builder.commit(feed.file("n"), *changed, operation="UPDATE")
    feed.append("c", "d")
    batches, _ = feed.run(feed.stream(readChangeFeed="true", startingVersion=0), files=1)
    assert batches == [
        ((0, 0, False), "a"),
        ((1, -1, False), "b"),
        ((2, -1, False), "uvw"),
        ((2, 0, False), "c"),
        ((3, -1, False), "d"),
    ]
    behind = feed.stream(readChangeFeed="true", startingVersion=0)
    assert feed.batch(behind, feed.offset(1, 2), feed.offset(2, 0)) == "c"  # as the reference engine writes it


def test_initial_snapshot_of_a_feed_comes_as_inserts_of_its_version(feed):
    stream = feed.stream(readChangeFeed="true")
    found = stream.batch(None, stream.latest(None, AdmissionBudget()))
    assert [(feed.names[file.path], file.change_type, file.version) for file in found.changed] == [
        ("a", "insert", 0),
        ("b", "insert", 0),
    ]


def test_checkpoint_in_the_middle_of_unrecorded_changes_is_refused(feed):
    adds = feed.append("c", "d")
    _remove(feed, adds)
    stream = feed.stream(readChangeFeed="true", startingVersion=0)
    with pytest.raises(UnsupportedFeatureError, match="file 0 of version 2"):
        stream.latest(feed.offset(2, 0), AdmissionBudget())
    assert stream.latest(feed.offset(2, 1), AdmissionBudget()) == feed.offset(3)


def test_feed_that_was_not_recorded_stops_the_stream(table):
    with pytest.raises(ChangeDataNotRecordedError):
        table.stream(readChangeFeed="true", startingVersion=0).latest(None, AdmissionBudget())


# -- backlog ----------------------------------------------------------------------------------------------------


def test_backlog_counts_what_no_batch_has_taken(table):
    stream = table.stream()

    def files(offset):
        return stream.backlog(offset).num_files

    assert files(None) == 5
    assert files(table.offset(1, 1, initial=True)) == 3
    assert files(table.offset(2)) == 0
    table.append("f", "g")
    table.append("h")
    assert [files(table.offset(2)), files(table.offset(2, 0)), files(table.offset(3)), files(table.offset(4))] == [
        3, 2, 1, 0,
    ]  # fmt: skip
    assert stream.backlog(table.offset(2)).size_bytes > stream.backlog(table.offset(3)).size_bytes > 0


def test_commits_that_would_stop_the_stream_are_no_backlog(table):
    _remove(table, table.append("k"))
    assert table.stream().backlog(table.offset(3)).num_files == 0


def test_what_is_done_is_forgotten(table):
    stream = table.stream(startingVersion=0)
    stream.latest(None, AdmissionBudget())
    assert sorted(stream._commits) == [0, 1]
    stream.finish(table.offset(1, 0))
    assert sorted(stream._commits) == [1]


def test_reading_a_commit_is_total():
    read = ReadSchema(table_id="t", version=0, schema=None, partition_columns=(), mapped=False)
    record = CommitRecord(version=3, timestamp_ms=0, commit_info=CommitInfo({}))
    commit = read_commit(record, [], SourceOptions(), read)
    assert (commit.version, commit.files, commit.refusal) == (3, (), None)
    assert commit.advance(-1, AdmissionBudget(max_files=1)) is None
