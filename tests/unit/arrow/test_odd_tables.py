"""Tables that are rare in public: very wide and very deep ones, the ends of the calendar, each decimal, moved ones.

Each is written, changed, checkpointed and read from its checkpoint alone; delta-rs reads the same rows where it can.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from decimal import Decimal
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import pydelta
from pydelta.commands.clone import absolute_add
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.commands.vacuum.command import Vacuum
from pydelta.errors import UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.paths import LOG_DIR
from pydelta.protocol.schema import parse_schema
from pydelta.storage import open_store
from pydelta.testing.commands import create_table, vacuum
from pydelta.testing.tables import TableBuilder


def create(folder: Path, columns: dict, *, partition_columns=()) -> None:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    schema = parse_schema(json.dumps({"type": "struct", "fields": fields}))
    log = DeltaLog(open_store(str(folder)))
    definition = TableDefinition(schema=schema, partition_columns=partition_columns)
    create_table(log, definition, mode=CreateMode.CREATE, settings=log.settings)


def from_checkpoint(folder: Path) -> pydelta.LocalTable:
    """The table, of which the checkpoint of the newest version is left and no commit before it."""
    log = DeltaLog(open_store(str(folder)))
    version = log.update().version
    log.checkpoint()
    for commit in sorted((folder / LOG_DIR).glob("*.json"))[:version]:
        commit.unlink()
    for hint in (folder / LOG_DIR).glob("*.crc"):
        hint.unlink()
    return pydelta.open(str(folder))


def by_delta_rs(folder: Path, key: str) -> list[dict]:
    return pl.from_arrow(deltalake.DeltaTable(str(folder)).to_pyarrow_table()).sort(key).to_dicts()


def rows_of(table, key: str) -> list[dict]:
    return pl.from_arrow(table.scan()).sort(key).to_dicts()


def test_a_table_of_2000_columns(tmp_path):
    names = [f"c{number}" for number in range(2_000)]
    create(tmp_path / "t", {"id": "long"} | dict.fromkeys(names, "integer"))
    table = pydelta.open(str(tmp_path / "t"))
    given = pl.DataFrame({"id": [1, 2, 3]}).with_columns(pl.Series(name, [1, 2, None], pl.Int32) for name in names)
    table.append(given)
    table.append(pl.DataFrame({"id": [4], "c1999": pl.Series([7], dtype=pl.Int32)}))
    assert table.delete("id = 1").num_deleted_rows == 1
    again = from_checkpoint(tmp_path / "t")
    assert len(again.schema) == 2_001
    assert again.scan(columns=["id", "c0", "c1999"]).sort_by("id").to_pydict() == {
        "id": [2, 3, 4], "c0": [2, None, None], "c1999": [2, None, 7],
    }  # fmt: skip
    assert again.scan("c1999 = 7", columns=["id"]).to_pydict() == {"id": [4]}, "beyond the columns with statistics"
    assert rows_of(again, "id") == by_delta_rs(tmp_path / "t", "id")


FIRST = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)


@pytest.mark.parametrize("partitioned", [False, True])
def test_the_first_and_the_last_moment_of_the_calendar(tmp_path, partitioned):
    by = ("day", "at") if partitioned else ()
    create(tmp_path / "t", {"id": "long", "day": "date", "at": "timestamp"}, partition_columns=by)
    table = pydelta.open(str(tmp_path / "t"))
    moments = [FIRST, LAST, dt.datetime(1582, 10, 10, tzinfo=dt.UTC), None]
    days = [None if at is None else at.date() for at in moments]
    table.append(pa.table({"id": [1, 2, 3, 4], "day": days, "at": pa.array(moments, pa.timestamp("us", "UTC"))}))
    again = from_checkpoint(tmp_path / "t")
    expected = [{"id": n, "day": day, "at": at} for n, (day, at) in enumerate(zip(days, moments, strict=True), start=1)]
    assert rows_of(again, "id") == expected  # delta-rs hands such moments on in nanoseconds, where they do not fit
    for where, ids in (
        ("day = DATE'0001-01-01'", [1]),
        ("day >= DATE'9999-12-31'", [2]),
        ("day < DATE'1582-10-15'", [1, 3]),
        ("at > TIMESTAMP'9999-12-31 23:59:59Z'", [2]),
        ("at <= TIMESTAMP'0001-01-01 00:00:00Z'", [1]),
    ):
        assert sorted(again.scan(where, columns=["id"])["id"].to_pylist()) == ids, where


def ends_of(width: int, scale: int) -> tuple[Decimal, Decimal]:
    """The largest and the smallest; negated as a number one of more than 28 digits would be rounded."""
    return Decimal((0, (9,) * width, -scale)), Decimal((1, (9,) * width, -scale))


def test_decimals_of_every_width_and_of_the_scales_at_their_ends(tmp_path):
    kinds = {f"d{width}_{scale}": (width, scale) for width in range(1, 39) for scale in {0, width // 2, width}}
    columns = {name: f"decimal({width},{scale})" for name, (width, scale) in kinds.items()}
    create(tmp_path / "t", {"id": "long"} | columns)
    table = pydelta.open(str(tmp_path / "t"))
    arrays: dict = {"id": pa.array([1, 2, 3])}
    for name, (width, scale) in kinds.items():
        arrays[name] = pa.array([*ends_of(width, scale), None], pa.decimal128(width, scale))
    table.append(pa.table(arrays))
    again = from_checkpoint(tmp_path / "t")
    found = rows_of(again, "id")
    for name, (width, scale) in kinds.items():
        assert [row[name] for row in found] == [*ends_of(width, scale), None], name
        assert again.scan(f"{name} IS NULL", columns=["id"]).to_pydict() == {"id": [3]}
    assert found == by_delta_rs(tmp_path / "t", "id")
    files = DeltaLog(open_store(str(tmp_path / "t"))).update().files
    (add,) = files.adds(files.core)
    texts = add.stats
    assert '"d9_0":999999999' in texts and '"d9_0":-999999999' in texts


def test_structs_lists_and_maps_in_one_another_24_deep(tmp_path):
    kind: object = "long"
    value: object = 7
    for level in range(24):
        kind, value = (
            (
                {"type": "struct", "fields": [{"name": "s", "type": kind, "nullable": True, "metadata": {}}]},
                {"s": value},
            ),
            ({"type": "array", "elementType": kind, "containsNull": True}, [value, None]),
            ({"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}, [("k", value)]),
        )[level % 3]
    create(tmp_path / "t", {"id": "long", "deep": kind})
    table = pydelta.open(str(tmp_path / "t"))
    schema = table.schema
    given = pa.table(
        {"id": pa.array([1, 2]), "deep": pa.array([value, None], schema.field("deep").type)}, schema=schema
    )
    table.append(given)
    assert table.delete("id = 2").num_deleted_rows == 1
    again = from_checkpoint(tmp_path / "t")
    assert again.scan().to_pylist() == [{"id": 1, "deep": value}]


def odd_names(folder: Path) -> pydelta.LocalTable:
    store = open_store(str(folder))
    built = TableBuilder(store, columns={"id": "long", "p": "string"}, partition_columns=("p",))
    files = (([1, 2], "a b%c"), ([3], "ü/="))
    built.commit(*[built.file(pa.table({"id": ids}), {"p": value}) for ids, value in files])
    return pydelta.open(str(folder))


@pytest.mark.parametrize("name", ["moved", "with a space", "with%20escape", "ü", "a=b"])
def test_a_table_that_was_moved_or_renamed_is_the_same_table(tmp_path, name):
    before = rows_of(odd_names(tmp_path / "here"), "id")
    (tmp_path / "else").mkdir()
    shutil.move(tmp_path / "here", tmp_path / "else" / name)
    place = tmp_path / "else" / name
    table = pydelta.open(str(place))
    assert rows_of(table, "id") == before
    table.append(pl.DataFrame({"id": [4], "p": ["a b%c"]}))
    assert table.delete("id = 1").num_deleted_rows == 1
    assert [row["id"] for row in rows_of(from_checkpoint(place), "id")] == [2, 3, 4]
    if "%" not in name:  # delta-rs decodes the location and looks for another folder
        assert sorted(row["id"] for row in by_delta_rs(place, "id")) == [2, 3, 4]


def test_files_outside_the_table_are_refused_without_spark_and_never_deleted(tmp_path):
    odd_names(tmp_path / "source")
    source = DeltaLog(open_store(str(tmp_path / "source"))).update()
    adds = [absolute_add(add, source.table_uri) for add in source.files.adds(source.files.core)]
    assert all(add.path.startswith("file:/") for add in adds)
    store = open_store(str(tmp_path / "copy"))
    built = TableBuilder(store, columns={"id": "long", "p": "string"}, partition_columns=("p",))
    built.commit(*adds)
    built.commit(*[add.remove(deletion_timestamp=0) for add in adds])
    with pytest.raises(UnsupportedFeatureError, match="a file outside the table's folder"):
        pydelta.open(str(tmp_path / "copy")).scan(version=0)
    before = sorted((tmp_path / "source").rglob("*.parquet"))
    vacuum(DeltaLog(store), Vacuum(retention_hours=0, enforce_retention=False))
    assert sorted((tmp_path / "source").rglob("*.parquet")) == before != []
    assert [row["id"] for row in rows_of(pydelta.open(str(tmp_path / "source")), "id")] == [1, 2, 3]


def test_what_arrow_would_not_open_again_is_refused_before_it_is_written(tmp_path):
    kind: object = "long"
    for _ in range(49):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    create(tmp_path / "deepest", {"id": "long", "deep": kind})
    create(tmp_path / "deeper", {"id": "long", "deep": {"type": "array", "elementType": kind, "containsNull": True}})
    deepest, deeper = (pydelta.open(str(tmp_path / name)) for name in ("deepest", "deeper"))
    ids = pa.table({"id": pa.array([1])})
    deepest.append(ids)
    assert deepest.scan(columns=["id"]).to_pylist() == [{"id": 1}]
    with pytest.raises(UnsupportedFeatureError, match="101 levels in Parquet"):
        deeper.append(ids)
    assert deeper.version == 0
    with pytest.raises(UnsupportedFeatureError, match="101 levels in Parquet"):
        deeper.scan()
