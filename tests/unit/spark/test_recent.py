"""What was made last is kept, up to a number of bytes."""

from __future__ import annotations

from pydelta.engines.spark.lru import LruCache


def test_the_value_that_was_not_used_for_longest_goes_first():
    kept: LruCache[str, str] = LruCache(10)
    kept.put("a", "A", 4)
    kept.put("b", "B", 4)
    assert kept.get("a") == "A"
    kept.put("c", "C", 4)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ("A", None, "C")


def test_a_value_larger_than_all_that_may_be_kept_drives_nothing_out():
    kept: LruCache[str, str] = LruCache(10)
    kept.put("a", "A", 10)
    kept.put("b", "B", 11)
    assert (kept.get("a"), kept.get("b")) == ("A", None)


def test_a_value_that_is_put_twice_counts_once():
    kept: LruCache[str, str] = LruCache(10)
    for _ in range(3):
        kept.put("a", "A", 5)
    kept.put("b", "B", 5)
    assert (kept.get("a"), kept.get("b")) == ("A", "B")
