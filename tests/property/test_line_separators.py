"""What parts lines in Unicode does not part the lines of manifests and lists: no file is lost between two halves."""

from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.inventory_sources import from_csv
from pydelta.errors import LogCorruptedError
from pydelta.manifests import publish, verify_manifests
from pydelta.manifests.contents import manifest_lines
from pydelta.protocol.partitions import partition_dir
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import vacuum
from pydelta.testing.garbage import Yard

_NAMES = itertools.count()
SEPARATORS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
names = st.text(st.sampled_from(SEPARATORS + "ab \u00e4%=\U0001f600"), min_size=1, max_size=6)


def test_these_are_all_that_python_parts_lines_at_and_readers_of_manifests_do_not():
    parting = {chr(code) for code in range(0x110000) if len(f"a{chr(code)}b".splitlines()) == 2}
    assert parting == {*SEPARATORS, "\n", "\r"}


@settings(max_examples=40, deadline=None)
@example([SEPARATORS], SEPARATORS)
@given(st.lists(names, min_size=1, max_size=4, unique=True), names)
def test_a_file_with_any_separator_in_its_name_or_partition_is_named_and_kept(values, name):
    yard = Yard(MemoryStore(f"memory://separators{next(_NAMES)}/t"), partition_columns=("p",))
    paths = [f"{partition_dir({'p': value})}/part-{name}-{number}" for number, value in enumerate(values)]
    adds = [
        yard.add(path, age=900).replace(partition_values={"p": value})
        for path, value in zip(paths, values, strict=True)
    ]
    yard.commit(*adds, age=900)
    publish(yard.log)
    report = verify_manifests(yard.log, files=0)
    assert report.ok, report
    assert report.lines == len(paths)
    yard.commit(*(yard.remove(add, age=800) for add in adds), age=800)
    assert vacuum(yard.log, now_ms=yard.now_ms).deleted == 0, "readers of the manifests still need them"
    assert yard.files() >= set(paths)


@settings(max_examples=25, deadline=None)
@example(SEPARATORS)
@given(names)
def test_a_row_of_a_list_is_one_file_whatever_its_name_holds(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("list")
    yard = Yard(MemoryStore(f"memory://separators{next(_NAMES)}/t"))
    kept = yard.add(f"live-{name}", age=900)
    yard.commit(kept, age=900)
    gone = yard.put(f"garbage-{name}", age=900)
    rows = pl.DataFrame(
        {
            "path": [f"live-{name}", gone],
            "length": [10, 10],
            "isDir": ["false"] * 2,
            "modificationTime": [1_600_000_000_000] * 2,
        }
    )
    rows.write_csv(folder / "list.csv")
    result = vacuum(yard.log, Vacuum(inventory=from_csv(str(folder / "list.csv"), encoded=False)), now_ms=yard.now_ms)
    assert result.files["path"].to_list() == [gone]
    assert yard.files() == {f"live-{name}"}


def test_a_manifest_that_is_no_text_is_no_reason_to_delete():
    yard = Yard(MemoryStore(f"memory://separators{next(_NAMES)}/t"))
    yard.commit(yard.add("x", age=900), age=900)
    yard.put("garbage", age=900)
    yard.store.put("_symlink_format_manifest/manifest", b"s3://b/t/\xff\xfe\n")
    with pytest.raises(LogCorruptedError, match="not UTF-8"):
        vacuum(yard.log, now_ms=yard.now_ms)
    assert "garbage" in yard.files()


def test_lines_end_at_line_feeds_and_carriage_returns_alone():
    assert manifest_lines(b"a\nb\r\nc\rd\n\n", source="m") == ["a", "b", "c", "d"]
    assert manifest_lines(f"a{SEPARATORS}b\n".encode(), source="m") == [f"a{SEPARATORS}b"]
    assert manifest_lines(b"", source="m") == []
