"""The checker of pydelta certify: a table of histories, those that are right and look odd first."""

from __future__ import annotations

import msgspec
import pytest
from certify.histories import START_MS, Story, row

from pydelta.tools.certify.checker import check
from pydelta.tools.certify.history import EngineRead, History, LostFile
from pydelta.tools.certify.order import Edge, find_cycles, isolation
from pydelta.tools.certify.rows import Effect

RIGHT, WRONG = {}, {}


def right(story):
    RIGHT[story.__name__] = story
    return story


def wrong(promise: str, says: str):
    def keep(story):
        WRONG[story.__name__] = (story, promise, says)
        return story

    return keep


# --- right, though some look odd -------------------------------------------------------------------------------------


@right
def appends_and_a_delete(s: Story):
    s.append("1-1", key=3)
    s.append("2-1", key=4)
    s.delete("1-2", 3, [row("1-1", 3)])
    s.read("2-2", 3, [row("2-1", 4)])


@right
def an_unknown_append_that_landed(s: Story):
    s.commit("1-1", added=[row("1-1")])
    s.event("append", "1-1", "unknown", dead=True)
    s.read("2-1", 1, [row("1-1")])


@right
def an_unknown_append_that_did_not_land(s: Story):
    s.event("append", "1-1", "unknown", dead=True)
    s.append("2-1")
    s.read("2-2", 1, [row("2-1")])


@right
def a_batch_that_was_tried_again_after_a_death_and_stands_once(s: Story):
    s.commit("1-1", added=[row("1-1")])
    s.event("stream", "1-1", "unknown", dead=True)
    s.event("stream", "1-1", version=None, attempt=2)  # skipped: it had landed


@right
def a_batch_that_failed_first_and_landed_then(s: Story):
    s.event("stream", "1-1", "failed", trouble="store")
    version = s.commit("1-1", added=[row("1-1")])
    s.event("stream", "1-1", version=version, attempt=2)


@right
def a_conflict_leaves_nothing(s: Story):
    s.append("1-1", key=1)
    s.event("delete", "2-1", "failed", key=1, trouble="conflict", error="ConcurrentAppendException")


@right
def an_unknown_append_that_lands_late_after_reads_that_did_not_see_it(s: Story):
    s.event("append", "1-1", "unknown", dead=True)
    s.read("2-1", 0, [])
    s.append("2-2")
    s.commit("1-1", added=[row("1-1")])


@right
def a_read_beside_a_commit_may_see_it_or_not(s: Story):
    s.append("1-1", during=(10, 100))
    s.read("2-1", 0, [], during=(20, 60))
    s.read("3-1", 1, [row("1-1")], during=(20, 60))


@right
def a_commit_is_read_before_its_writer_is_told(s: Story):
    s.append("1-1", during=(10, 1000))
    s.read("2-1", 1, [row("1-1")], during=(20, 30))


@right
def a_delete_that_found_nothing_while_rows_came(s: Story):
    s.append("1-1", key=2, during=(10, 100))
    s.event("delete", "2-1", key=2, during=(50, 60))


@right
def an_optimize_rewrites_rows_as_they_are(s: Story):
    s.append("1-1")
    s.commit("2-1", "OPTIMIZE", added=[row("1-1")], removed=[row("1-1")])
    s.event("optimize", "2-1", version=2)


@right
def a_vacuum_makes_two_commits(s: Story):
    s.commit("1-1", "VACUUM START")
    s.event("vacuum", "1-1", version=s.commit("1-1", "VACUUM END"))


@right
def a_write_with_an_optimize_after_it(s: Story):
    s.append("1-1")
    s.commit("1-1", "OPTIMIZE", added=[row("1-1")], removed=[row("1-1")])


@right
def an_update_and_a_merge_change_rows_of_their_key(s: Story):
    s.append("1-1", key=1)
    s.append("1-2", key=2)
    first = s.commit("2-1", "UPDATE", added=[row("1-1", 1, "2-1")], removed=[row("1-1", 1)])
    s.event("update", "2-1", version=first, key=1)
    second = s.commit("2-2", "MERGE", added=[row("1-1", 1, "2-2")], removed=[row("1-1", 1, "2-1")])
    s.event("merge", "2-2", version=second, key=1)
    third = s.commit("2-3", "MERGE", added=[row("2-3", 3, "2-3")])
    s.event("merge", "2-3", version=third, key=3)


@right
def a_restore_brings_back_and_takes_away(s: Story):
    s.append("1-1", key=1)
    s.delete("1-2", 1, [row("1-1", 1)])
    s.append("1-3", key=2)
    version = s.commit("2-1", "RESTORE", added=[row("1-1", 1)], removed=[row("1-3", 2)])
    s.event("restore", "2-1", version=version, target=1)


@right
def a_restore_that_died_may_have_gone_back_to_any_version(s: Story):
    s.append("1-1", key=1)
    s.append("1-2", key=2)
    s.commit("2-1", "RESTORE", removed=[row("1-2", 2)])
    s.event("restore", "2-1", "unknown", dead=True)


def missed_append(s: Story):
    """A DELETE that began before an append, and stands behind it without having seen its row."""
    s.append("1-1", key=1)
    s.commit("2-1", added=[row("2-1", 1)])
    s.event("append", "2-1", version=2, key=1, during=(1_100, 1_200))
    s.commit("3-1", "DELETE", removed=[row("1-1", 1)])
    s.event("delete", "3-1", version=3, key=1, during=(1_000, 1_500))


@right
def a_delete_may_miss_an_append_where_writes_alone_are_serializable(s: Story):
    s.level = "WriteSerializable"
    missed_append(s)


@right
def a_file_that_only_expired_versions_need_may_go(s: Story):
    s.append("1-1", key=1)
    s.delete("1-2", 1, [row("1-1", 1)])
    s.commit("1-3", "VACUUM START", time_ms=START_MS + 100_000)
    s.event("vacuum", "1-3", version=3, wall_ms=START_MS + 400_000)
    s.lost.append(LostFile(path="a.parquet", since=1, until=2))
    s.more["retention_seconds"] = 300


@right
def an_engine_may_fail_to_read_what_is_not_retained(s: Story):
    a_file_that_only_expired_versions_need_may_go(s)
    s.engine_reads.append(EngineRead(engine="delta-rs", version=0, error="file not found"))


# --- wrong -----------------------------------------------------------------------------------------------------------


@wrong("durable", "its commit is nowhere in the log")
def an_acknowledged_commit_was_written_over(s: Story):
    s.commit("2-1", added=[row("2-1")])
    s.event("append", "1-1", version=1, during=(10, 30))
    s.event("append", "2-1", version=1, during=(20, 40))


@wrong("durable", "there is no such version")
def the_log_ends_before_an_acknowledged_version(s: Story):
    s.event("append", "1-1", version=1)


@wrong("durable", "no version has them")
def an_append_was_told_that_it_is_done_without_a_version(s: Story):
    s.event("append", "1-1", version=None)


@wrong("immutable", "it was written over")
def the_bytes_of_a_version_changed(s: Story):
    s.commit("2-1", added=[row("2-1")], rewritten=True, first_op="1-1")
    s.event("append", "1-1", "unknown", dead=True)
    s.event("append", "2-1", version=1)


@wrong("once", "2 times: versions 1, 2")
def a_lost_reply_and_a_second_commit(s: Story):
    s.commit("1-1", added=[row("1-1")])
    s.append("1-1")


@wrong("effects", "Rows doubled")
def a_lost_reply_doubles_rows(s: Story):
    s.commit("1-1", added=[row("1-1")])
    s.append("1-1")


@wrong("failed", "ServiceUnavailable")
def what_failed_is_in_the_log(s: Story):
    s.commit("1-1", added=[row("1-1")])
    s.event("append", "1-1", "failed", trouble="store", error="ServiceUnavailable")


@wrong("gapless", "without 2")
def a_version_is_missing(s: Story):
    for number in range(1, 4):
        s.append(f"1-{number}")
    del s.commits[2]


@wrong("gapless", "not JSON")
def a_version_is_torn(s: Story):
    s.more["unreadable"] = ((1, "not JSON"),)


@wrong("put-if-absent", "two")
def a_race_has_two_winners(s: Story):
    s.more["race"] = "two of 64 writers were told that they created the object"


@wrong("effects", "Rows lost: 1-1.0 went away")
def an_append_takes_a_row_away(s: Story):
    s.append("1-1")
    version = s.commit("2-1", added=[row("2-1")], removed=[row("1-1")])
    s.event("append", "2-1", version=version)


@wrong("effects", "should have brought 1-1.0")
def an_append_without_its_rows(s: Story):
    s.event("append", "1-1", version=s.commit("1-1"))


@wrong("effects", "Rows doubled: 1-1.0")
def two_compactions_of_the_same_files_both_commit(s: Story):
    s.append("1-1")
    for op in ("2-1", "3-1"):  # the second removes files that are gone already
        removed = [row("1-1")] if op == "2-1" else []
        s.event(
            "optimize", op, version=s.commit(op, "OPTIMIZE", added=[row("1-1")], removed=removed), during=(900, 950)
        )


@wrong("effects", "Rows came back: 1-1.0")
def a_compaction_brings_deleted_rows_back(s: Story):
    s.append("1-1", key=1)
    s.delete("1-2", 1, [row("1-1", 1)])
    s.event("optimize", "2-1", version=s.commit("2-1", "OPTIMIZE", added=[row("1-1", 1)]))


@wrong("effects", "Rows came back: 1-1.0")
def an_update_from_an_old_row_loses_an_update(s: Story):
    s.append("1-1", key=1)
    first = s.commit("2-1", "UPDATE", added=[row("1-1", 1, "2-1")], removed=[row("1-1", 1)])
    s.event("update", "2-1", version=first, key=1)
    second = s.commit("3-1", "REPLACE", added=[row("1-1", 1)], removed=[row("1-1", 1, "2-1")])
    s.event("replace", "3-1", version=second, key=1)


@wrong("effects", "went away in version 2 (DELETE")
def a_delete_takes_rows_of_another_key(s: Story):
    s.append("1-1", key=1)
    s.event("delete", "2-1", version=s.commit("2-1", "DELETE", removed=[row("1-1", 1)]), key=2)


@wrong("effects", "made by nobody of this run")
def somebody_else_writes(s: Story):
    s.commit(None, added=[row("9-9")])


@wrong("effects", "restored version 1 without 1-1.0")
def a_restore_without_a_row(s: Story):
    s.append("1-1", key=1)
    s.delete("1-2", 1, [row("1-1", 1)])
    s.event("restore", "2-1", version=s.commit("2-1", "RESTORE"), target=1)


@wrong("isolation", "G-single")
def a_delete_misses_an_append_of_a_serializable_table(s: Story):
    missed_append(s)


@wrong("isolation", "was answered before it began")
def a_delete_misses_an_append_that_was_acknowledged_before_it_began(s: Story):
    s.level = "WriteSerializable"
    s.append("1-1", key=1)
    s.append("2-1", key=1)
    s.delete("3-1", 1, [row("1-1", 1)])


@wrong("isolation", "which it may have read, has some")
def a_delete_found_nothing_though_rows_were_there_all_the_time(s: Story):
    s.append("1-1", key=2)
    s.event("delete", "2-1", key=2)


@wrong("snapshot", "saw the rows of version 1")
def a_read_shows_an_old_version_under_a_new_number(s: Story):
    s.append("1-1")
    s.append("1-2")
    s.read("2-1", 2, [row("1-1")])


@wrong("snapshot", "1-1.1 missing")
def a_read_shows_half_a_commit(s: Story):
    both = [row("1-1"), row("1-1", number=1)]
    s.event("append", "1-1", version=s.commit("1-1", added=both), count=2)
    s.read("2-1", 1, both[:1])


@wrong("snapshot", "2-1.0 on top")
def a_read_shows_rows_that_were_never_committed(s: Story):
    s.append("1-1")
    s.event("append", "2-1", "failed", trouble="conflict")
    s.read("3-1", 1, [row("1-1"), row("2-1")])


@wrong("snapshot", "which is not in the log")
def a_read_shows_a_version_that_is_not_there(s: Story):
    s.read("1-1", 7, [])


@wrong("fresh", "version 1 had been acknowledged")
def a_read_does_not_see_what_was_acknowledged(s: Story):
    s.append("1-1")
    s.read("2-1", 0, [])


@wrong("fresh", "or read, before it began")
def a_read_sees_less_than_the_one_before_it(s: Story):
    s.append("1-1", during=(10, 1000))
    s.read("2-1", 1, [row("1-1")], during=(20, 30))
    s.read("3-1", 0, [], during=(40, 50))


@wrong("times", "is not after that of version 1")
def a_clock_goes_back(s: Story):
    s.append("1-1")
    s.commit("1-2", added=[row("1-2")], time_ms=START_MS)
    s.event("append", "1-2", version=2)


@wrong("times", "in-commit timestamp")
def an_in_commit_timestamp_goes_back(s: Story):
    s.event("append", "1-1", version=s.commit("1-1", added=[row("1-1")], stamp_ms=20))
    s.event("append", "1-2", version=s.commit("1-2", added=[row("1-2")], stamp_ms=20))


@wrong("files", "a.parquet is gone, and version 2 needs it")
def a_live_file_is_gone(s: Story):
    s.append("1-1")
    s.append("1-2")
    s.lost.append(LostFile(path="a.parquet", since=1))


@wrong("files", "version 1 needs it")
def a_removed_file_went_before_its_time(s: Story):
    s.append("1-1", key=1)
    s.delete("1-2", 1, [row("1-1", 1)])
    s.event("vacuum", "1-3", version=None, wall_ms=START_MS + 10)
    s.lost.append(LostFile(path="a.parquet", since=1, until=2))


@wrong("engines", "1-1.0 missing")
def another_engine_sees_other_rows(s: Story):
    s.append("1-1")
    s.engine_reads.append(EngineRead(engine="trino", version=1, rows=()))


@wrong("engines", "delta-rs cannot read version 1")
def another_engine_cannot_read_it(s: Story):
    s.append("1-1")
    s.engine_reads.append(EngineRead(engine="delta-rs", version=1, error="bad"))


@wrong("checkpoints", "1-1.0 missing")
def a_checkpoint_lacks_a_file(s: Story):
    s.append("1-1")
    s.engine_reads.append(EngineRead(engine="pydelta", version=1, rows=(), how="checkpoint"))


@wrong("errors", "KeyError")
def an_operation_fails_for_no_reason_that_may_be(s: Story):
    s.event("append", "1-1", "failed", trouble="broken", error="KeyError: 'x'")


@pytest.mark.parametrize("name", RIGHT)
def test_a_history_that_is_right(name):
    story = Story()
    RIGHT[name](story)
    assert check(story.history()) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_history_that_is_wrong(name):
    write, promise, says = WRONG[name]
    story = Story()
    write(story)
    assert promise in story.broken()
    assert says in story.said()


def test_a_history_is_judged_the_same_after_json():
    story = Story()
    an_acknowledged_commit_was_written_over(story)
    again = msgspec.json.decode(msgspec.json.encode(story.history()), type=History)
    assert check(again) == check(story.history()) != []


def test_a_finding_names_the_operations_and_versions_concerned():
    story = Story()
    an_acknowledged_commit_was_written_over(story)
    (found,) = check(story.history())
    assert (found.versions, found.ops) == ((1,), ("1-1", "2-1"))


def test_the_shortest_cycle_of_each_group_is_found():
    ring = [Edge(1, 2, "wr"), Edge(2, 3, "wr"), Edge(3, 1, "rw"), Edge(3, 2, "rw"), Edge(3, 4, "wr"), Edge(4, 5, "rt")]
    (cycle,) = find_cycles(ring)
    assert sorted((edge.first, edge.then) for edge in cycle) == [(2, 3), (3, 2)]
    assert find_cycles(ring[:2]) == []
    assert len(find_cycles([*ring, Edge(5, 4, "rw")])) == 2


def test_two_commits_that_each_miss_a_row_of_the_other_are_a_write_skew():
    story = Story("WriteSerializable")
    for op in ("1-1", "2-1"):
        story.append(op, key=1)
    one, other = row("1-1", 1), row("2-1", 1)
    for op in ("3-1", "4-1"):
        story.commit(op, "MERGE")
    effects = [
        *(Effect(version=version) for version in range(3)),
        Effect(version=3, saw=frozenset({one}), missed=frozenset({other})),
        Effect(version=4, saw=frozenset({other}), missed=frozenset({one})),
    ]
    (found,) = isolation(story.level, story.commits, effects, {})
    assert "G2" in found.says
    assert found.versions == (1, 2, 3, 4)


def test_a_long_chain_needs_no_recursion():
    chain = [Edge(number, number + 1, "order") for number in range(20_000)]
    assert find_cycles(chain) == []
    assert len(find_cycles([*chain, Edge(20_000, 0, "rw")])) == 1
