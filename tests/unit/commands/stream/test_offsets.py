"""Offsets: the JSON that the reference engine writes (seen with delta-spark 4.4), and what is refused."""

from __future__ import annotations

import pytest

from pydelta.commands.stream.offsets import StreamOffset
from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError

TEXT = '{"sourceVersion":1,"reservoirId":"4aa0ea36","reservoirVersion":%d,"index":%d,"isStartingVersion":%s}'


@pytest.mark.parametrize(("version", "index", "initial"), [(1, 0, True), (2, -1, False), (0, 1, False), (1, 3, True)])
def test_offset_of_the_reference_engine_is_read_and_written_again_byte_by_byte(version, index, initial):
    text = TEXT % (version, index, str(initial).lower())

    offset = StreamOffset.parse(text)

    assert (offset.version, offset.index, offset.is_initial) == (version, index, initial)
    assert offset.to_json() == text


def test_an_old_offset_without_the_flag_is_of_a_commit():
    assert not StreamOffset.parse('{"sourceVersion":1,"reservoirId":"t","reservoirVersion":1,"index":0}').is_initial


@pytest.mark.parametrize(
    ("index", "version", "read"), [(-100, 7, (7, -1)), (3, 7, (7, 3)), (2**63 - 1 - 100, 7, (8, -1))]
)
def test_offset_of_format_three_is_read(index, version, read):
    text = '{"sourceVersion":3,"reservoirId":"t","reservoirVersion":%d,"index":%d,"isStartingVersion":false}'
    offset = StreamOffset.parse(text % (version, index))
    assert (offset.version, offset.index) == read


@pytest.mark.parametrize("index", [-20, -19])
def test_offset_at_a_change_of_schema_lies_between_the_versions_and_is_written_as_it_was(index):
    text = f'{{"sourceVersion":3,"reservoirId":"t","reservoirVersion":7,"index":{index},"isStartingVersion":false}}'
    offset = StreamOffset.parse(text)
    assert offset.to_json() == text
    assert offset.at_change
    assert offset.taken == -1
    before, first = StreamOffset(table_id="t", version=7), StreamOffset(table_id="t", version=7, index=0)
    assert before.position < offset.position < first.position
    assert StreamOffset(table_id="t", version=7, index=-20).position <= offset.position
    with pytest.raises(InvalidArgumentError, match="not an offset"):
        StreamOffset.parse(text.replace('"sourceVersion":3', '"sourceVersion":1'))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "{",
        "[]",
        '{"logOffset":3}',
        '{"sourceVersion":1,"reservoirId":"t"}',
        '{"sourceVersion":0,"reservoirId":"t","reservoirVersion":1,"index":0}',
        '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":-1,"index":0}',
        '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":true,"index":0}',
        '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":1,"index":-20}',
        '{"sourceVersion":1,"reservoirId":4,"reservoirVersion":1,"index":0}',
    ],
)
def test_checkpoint_of_another_source_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="checkpoint") as caught:
        StreamOffset.parse(text)
    assert "checkpointLocation" in caught.value.hint


def test_offset_of_a_later_format_is_refused():
    with pytest.raises(UnsupportedFeatureError, match="format 4"):
        StreamOffset.parse('{"sourceVersion":4,"reservoirId":"t","reservoirVersion":1,"index":0}')


def test_offsets_are_ordered_by_version_snapshot_before_commits_and_index():
    def at(version, index, initial=False):
        return StreamOffset(table_id="t", version=version, index=index, is_initial=initial)

    mixed = [at(3, -1), at(2, 0), at(1, 4, True), at(2, -1), at(1, -1, True)]
    ascending = [at(1, -1, True), at(1, 4, True), at(2, -1), at(2, 0), at(3, -1)]
    assert sorted(mixed, key=lambda offset: offset.position) == ascending
