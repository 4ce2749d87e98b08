"""Which files of a listing make a version."""

from __future__ import annotations

import pytest

from pydelta.errors import LogCorruptedError, LogGapError
from pydelta.log.segment import plan_segment, read_listing
from pydelta.protocol.paths import (
    LogFileKind,
    checkpoint_file,
    checksum_file,
    commit_file,
    compacted_file,
    multipart_file,
    v2_checkpoint_file,
)
from pydelta.storage.interface import ObjectInfo

UUID = "6374b053-df23-479b-b2cf-c9c550132b49"


def listing(*names: str, times: dict[str, int] | None = None):
    at = times or {}
    return read_listing(
        ObjectInfo(path=f"_delta_log/{name}", size=10, modification_time_ms=at.get(name, 1000))
        for name in sorted(names)
    )


def commits(first: int, last: int) -> list[str]:
    return [commit_file(version) for version in range(first, last + 1)]


def names(segment) -> list[str]:
    checkpoint = segment.checkpoint.files if segment.checkpoint else ()
    files = [*checkpoint, *(commit.info for commit in segment.commits)]
    return [info.path.removeprefix("_delta_log/") for info in files]


def test_without_a_checkpoint_all_commits_are_replayed():
    segment = plan_segment(listing(*commits(0, 3)))
    assert (segment.version, segment.checkpoint_version) == (3, -1)
    assert names(segment) == commits(0, 3)


def test_the_newest_checkpoint_and_the_commits_after_it_are_enough():
    found = listing(*commits(0, 23), checkpoint_file(10), checkpoint_file(20))
    assert names(plan_segment(found)) == [checkpoint_file(20), *commits(21, 23)]


def test_time_travel_never_uses_a_newer_checkpoint():
    found = listing(*commits(0, 23), checkpoint_file(10), checkpoint_file(20))
    assert names(plan_segment(found, version=19)) == [checkpoint_file(10), *commits(11, 19)]
    assert names(plan_segment(found, version=10)) == [checkpoint_file(10)]
    assert names(plan_segment(found, version=2)) == commits(0, 2)


def test_commits_before_the_checkpoint_may_be_gone():
    assert names(plan_segment(listing(checkpoint_file(10), *commits(10, 12)))) == [
        checkpoint_file(10),
        *commits(11, 12),
    ]


def test_a_hole_after_the_checkpoint_names_the_missing_versions():
    with pytest.raises(LogGapError) as raised:
        plan_segment(listing(checkpoint_file(10), *commits(10, 11), *commits(14, 15)))
    assert raised.value.missing_versions == (12, 13)
    assert "versions 12, 13" in str(raised.value)


def test_a_log_that_does_not_begin_at_version_0_and_has_no_checkpoint_is_a_hole():
    with pytest.raises(LogGapError) as raised:
        plan_segment(listing(*commits(3, 5)))
    assert raised.value.missing_versions == (0, 1, 2)


def test_a_stray_file_with_a_huge_version_makes_a_short_error():
    with pytest.raises(LogGapError) as raised:
        plan_segment(listing(*commits(0, 1), commit_file(99_999_999_999_999)))
    assert len(raised.value.missing_versions) == 1000
    assert len(str(raised.value)) < 600


def test_a_checkpoint_without_the_commit_of_the_newest_version_is_refused():
    with pytest.raises(LogCorruptedError, match="commit file of version 10 is missing"):
        plan_segment(listing(*commits(0, 9), checkpoint_file(10)))


def test_an_empty_folder_makes_no_segment():
    assert plan_segment(listing()) is None
    assert plan_segment(listing("_last_checkpoint", checksum_file(0), "notes.txt")) is None


def test_a_multi_part_checkpoint_counts_only_when_all_parts_are_there():
    found = listing(*commits(0, 12), multipart_file(10, 1, 2), multipart_file(10, 2, 2), multipart_file(12, 1, 2))
    segment = plan_segment(found)
    assert segment.checkpoint.kind is LogFileKind.CHECKPOINT_PART
    assert names(segment) == [multipart_file(10, 1, 2), multipart_file(10, 2, 2), *commits(11, 12)]


def test_parts_of_two_attempts_are_not_mixed():
    found = listing(*commits(0, 10), multipart_file(10, 1, 2), multipart_file(10, 2, 3))
    assert plan_segment(found).checkpoint is None


def test_a_v2_checkpoint_is_preferred_at_the_same_version():
    found = listing(*commits(0, 10), checkpoint_file(10), v2_checkpoint_file(10, UUID, "json"))
    assert plan_segment(found).checkpoint.kind is LogFileKind.CHECKPOINT_V2
    without = plan_segment(found, excluded={f"_delta_log/{v2_checkpoint_file(10, UUID, 'json')}"})
    assert without.checkpoint.kind is LogFileKind.CHECKPOINT_CLASSIC


def test_an_empty_checkpoint_file_is_passed_over():
    objects = [ObjectInfo(path=f"_delta_log/{name}", size=1, modification_time_ms=0) for name in commits(0, 10)]
    objects.append(ObjectInfo(path=f"_delta_log/{checkpoint_file(10)}", size=0, modification_time_ms=0))
    assert plan_segment(read_listing(objects)).checkpoint is None


def test_the_longest_compacted_file_that_fits_replaces_its_commits():
    found = listing(*commits(0, 9), compacted_file(2, 4), compacted_file(2, 6), compacted_file(7, 12))
    assert names(plan_segment(found)) == [*commits(0, 1), compacted_file(2, 6), *commits(7, 9)]
    assert names(plan_segment(found, version=5)) == [*commits(0, 1), compacted_file(2, 4), commit_file(5)]


def test_a_compacted_file_never_hides_a_hole_and_can_be_excluded():
    found = listing(*commits(0, 2), *commits(4, 5), compacted_file(2, 4))
    with pytest.raises(LogGapError):
        plan_segment(found)
    whole = listing(*commits(0, 5), compacted_file(2, 4))
    assert names(plan_segment(whole, excluded={f"_delta_log/{compacted_file(2, 4)}"})) == commits(0, 5)


def test_a_compacted_file_whose_range_makes_no_sense_is_passed_over():
    found = listing(*commits(0, 5), compacted_file(4, 2), compacted_file(3, 3))
    assert names(plan_segment(found)) == commits(0, 5)


def test_the_time_of_a_version_is_never_before_the_one_before_it():
    times = {commit_file(0): 5000, commit_file(1): 4000, commit_file(2): 4500}
    assert plan_segment(listing(*commits(0, 2), times=times)).timestamp_ms == 5002
