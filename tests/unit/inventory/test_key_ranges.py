"""The listing in ranges: every key once, whatever the layout, and what it costs."""

from __future__ import annotations

import bisect
import threading

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydelta.errors import InvalidArgumentError, StorageError
from pydelta.storage import open_store
from pydelta.tools.inventory.listing import StoreKeys, list_keys
from pydelta.tools.inventory.s3_keys import KEY_SCHEMA

PAGE = 1000


class Keys:
    """Sorted keys, a thousand a page, as S3 answers."""

    ordered = True

    def __init__(self, keys, fails_after=None):
        self.keys = sorted(keys)
        self.requests = 0
        self.fails_after = fails_after
        self._lock = threading.Lock()

    def pages(self, after=""):
        first = bisect.bisect_right(self.keys, after) if after else 0
        while True:
            with self._lock:
                self.requests += 1
                if self.fails_after is not None and self.requests > self.fails_after:
                    raise StorageError("no more")
            page = self.keys[first : first + PAGE]
            first += PAGE
            yield pl.DataFrame(
                {"key": page, "size": 1, "modified": None, "etag": None, "storage_class": None}, schema=KEY_SCHEMA
            )
            if first >= len(self.keys):
                return


def listed(source, workers=8):
    return sorted(key for frame in list_keys(source, workers=workers) for key in frame["key"])


LAYOUTS = {
    "hours": [
        f"t/year={y}/month={m:02}/day={d:02}/hour={h:02}/part-{n}"
        for y in (2023, 2024)
        for m in range(1, 13)
        for d in range(1, 29)
        for h in range(0, 24, 4)
        for n in range(4)
    ],
    "flat": [f"part-{n:05}" for n in range(12_000)],
    "tables": [f"db{n % 4}/t{n % 7}/d={n % 31}/{n}" for n in range(12_000)],
    "odd characters": [f"{chr(0x4E00 + n % 500)}/é{n}" for n in range(5_000)],
    "few": ["a", "b"],
    "none": [],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("workers", [1, 8])
def test_every_key_is_listed_once(layout, workers):
    source = Keys(LAYOUTS[layout])
    assert listed(source, workers) == source.keys
    pages = len(source.keys) // PAGE + 1
    assert source.requests <= pages + 8 * workers * 5
    if len(source.keys) <= PAGE:
        assert source.requests == 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["a/", "b", "c=1/", "09", "~", "é", "\U0010fffe", "x/y/"]), min_size=1, max_size=4),
    st.integers(1000, 4000),
)
def test_every_key_is_listed_once_whatever_it_is_made_of(parts, count):
    keys = {"".join(parts[: 1 + n % len(parts)]) + str(n) for n in range(count)}
    source = Keys(keys)
    assert listed(source) == source.keys


def test_a_failure_ends_the_listing_with_its_error():
    with pytest.raises(StorageError, match="no more"):
        listed(Keys(LAYOUTS["flat"], fails_after=6))
    with pytest.raises(InvalidArgumentError):
        list(list_keys(Keys([]), workers=0))


def test_a_file_system_is_walked_and_its_directories_are_keys_too(tmp_path):
    (tmp_path / "t" / "p=1").mkdir(parents=True)
    (tmp_path / "t" / "p=1" / "f").write_bytes(b"12")
    rows = [row for frame in list_keys(StoreKeys(open_store(str(tmp_path)), "data/")) for row in frame.iter_rows()]
    sizes = {row[0]: row[1] for row in rows}
    assert sizes["data/t/p=1/f"] == 2
    assert {key for key in sizes if key.endswith("/")} == {"data/t/", "data/t/p=1/"}
    assert all(row[2] is not None for row in rows)
