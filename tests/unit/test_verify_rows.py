"""What Polars says a verified table must hold, how differences are told, and which files a log names."""

from __future__ import annotations

import json

import polars as pl
import pytest

from jobs.verify import rows

FRAME = pl.DataFrame({"id": ["1", "2", "3"], "city": ["a", None, "c"]})


def test_the_input_survives_its_csv_file():
    made = rows.first_rows(500)
    again = rows.read_csv(rows.write_csv(made))
    assert again.equals(made)
    assert set(made.get_column("city").to_list()) == set(rows.CITIES)
    assert made.get_column("customer").null_count() > 0
    assert made.filter(pl.col("amount") * 100 % 100 != 0).height > 400, "amounts have cents"


def test_changes_do_what_their_statements_say():
    before = rows.first_rows(2_000)
    deleted = rows.deleted(before)
    assert sorted(set(rows.CITIES) - set(deleted.get_column("city").to_list())) == ["x=y"], "one partition goes"
    assert deleted.filter(pl.col("amount") > 900).height == 0
    assert 0 < deleted.height < before.height * 6 // 7, "and rows of others"
    updated = rows.updated(deleted)
    changed = updated.filter(pl.col("customer") == "changed")
    assert 0 < changed.height < updated.height
    assert updated.get_column("amount").sum() - deleted.get_column("amount").sum() == changed.height
    source = rows.merge_source(2_000)
    merged = rows.merged(updated, source)
    assert merged.get_column("id").is_unique().all()
    by_id = dict(merged.select("id", "customer").iter_rows())
    there = set(updated.get_column("id").to_list())
    for key in source.get_column("id").to_list():
        assert by_id.get(key) == (None if key in there and key % 20 == 0 else "merged")
    assert merged.height > updated.height - source.height
    wider = rows.added_column(rows.appended(merged, 10**6, "late", "b c"))
    assert dict(wider.select("id", "note").iter_rows())[10**6] == f"n{10**6}"
    assert wider.filter(pl.col("note").is_not_null()).height == wider.filter(pl.col("id") % 5 == 0).height


def test_the_same_rows_in_another_order_do_not_differ():
    assert rows.difference(FRAME, FRAME.reverse()) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (FRAME.head(1), "1 rows: 2 missing (id 2, 3)"),
        (FRAME.vstack(pl.DataFrame({"id": ["9"], "city": ["z"]})), "4 rows: 1 not expected (id 9)"),
        (FRAME.vstack(FRAME.head(1)), "4 rows: 1 there more than once (id 1)"),
        (FRAME.with_columns(city=pl.lit("a")), "with another city (id 2: 'a' for None)"),
        (FRAME.with_columns(city=pl.lit(None, dtype=pl.String())), "(id 1: None for 'a')"),
        (FRAME.rename({"city": "town"}), "the columns id, town"),
        (FRAME.clear(), "0 rows: 3 missing"),
    ],
    ids=["missing", "more", "twice", "a value for null", "null for a value", "columns", "empty"],
)
def test_each_kind_of_difference_is_told_with_keys(found, said):
    assert said in rows.difference(FRAME, found)


def test_live_files_are_those_added_and_not_removed_by_their_names_in_the_store():
    def add(path, city):
        return {"add": {"path": path, "partitionValues": {"city": city}}}

    commits = [
        [{"protocol": {}}, add("city=b%20c/1.parquet", "b c"), add("city=50%2525/2.parquet", "50%")],
        [{"remove": {"path": "city=b%20c/1.parquet"}}, add("city=b%20c/3.parquet", "b c")],
    ]
    texts = ["\n".join(map(json.dumps, commit)).encode() + b"\n" for commit in commits]
    assert rows.live_files(texts) == {"city=50%25/2.parquet": {"city": "50%"}, "city=b c/3.parquet": {"city": "b c"}}


def test_useless_files_are_data_files_that_are_not_live():
    listed = ["_delta_log/0.json", "_symlink_format_manifest/city=a/manifest", "city=a/1.parquet", "city=a/2.parquet"]
    assert rows.useless_files(listed, ["city=a/2.parquet"]) == ["city=a/1.parquet"]
