"""Compare the pandas API on Spark over Delta tables with pandas itself, over frames that seeds draw.

Each seed draws columns with types, missing values and awkward names. A frame is stored by path and by name, in
partitions or not, with an index or without; more rows are appended, rows are replaced and deleted. After each change
both sides answer the same questions, and earlier versions stay readable.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

os.environ["PYARROW_IGNORE_TIMEZONE"] = "1"  # PySpark's modules read it when they are loaded.

from tests.suites.programs.pandas_drawn import answers, assert_same, drawn_columns, frame_of, partitions_of, rows_of

SEEDS = range(12)
FEW_SEEDS = range(100, 105)
BY_NAME = {"delta.columnMapping.mode": "name"}
"""Without it Delta tables have no column with a blank or a comma in its name."""
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark() -> Any:
    """Start a session of pydelta with a warehouse in the folder of this run."""
    import pydelta

    warehouse = {"spark.sql.warehouse.dir": str(Path.cwd() / "warehouse")}
    session = pydelta.session("pandas", master="local[2]", conf=CONF | warehouse)
    yield session
    session.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_frame_is_stored_by_path_and_read_as_pandas_has_it(spark: Any, tmp_path: Path, seed: int) -> None:
    import pyspark.pandas as ps

    draw = random.Random(seed)
    columns = drawn_columns(draw)
    first, more, other = (frame_of(draw, columns, start) for start in (0, 1000, 2000))
    both = pd.concat([first, more], ignore_index=True)
    path, parts = str(tmp_path / "table"), partitions_of(draw, columns)

    ps.from_pandas(first).to_delta(path, partition_cols=parts, **BY_NAME)
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(first)

    ps.from_pandas(more).to_delta(path, mode="append", partition_cols=parts)
    read = ps.read_delta(path)
    assert rows_of(read.to_pandas()) == rows_of(both)
    assert_same(answers(read, columns), answers(both, columns))
    joined = read.merge(ps.read_delta(path)[["row"]], on="row").to_pandas()
    assert rows_of(joined) == rows_of(both)

    ps.from_pandas(other).to_delta(path, mode="overwrite", partition_cols=parts)
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(other)
    for version, expected in enumerate((first, both, other)):
        assert rows_of(ps.read_delta(path, version=str(version)).to_pandas()) == rows_of(expected)


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_a_frame_is_stored_by_name_and_asked_in_sql(spark: Any, seed: int) -> None:
    import pyspark.pandas as ps

    draw = random.Random(seed)
    columns = drawn_columns(draw)
    frame, more = frame_of(draw, columns, 0), frame_of(draw, columns, 1000)
    name, parts = f"frames_{seed}", partitions_of(draw, columns)

    ps.from_pandas(frame).to_table(name, format="delta", mode="overwrite", partition_cols=parts, **BY_NAME)
    assert spark.sql(f"DESCRIBE DETAIL {name}").first()["format"] == "delta"
    ps.from_pandas(more).spark.to_table(name, format="delta", mode="append", partition_cols=parts)

    both = pd.concat([frame, more], ignore_index=True)
    assert rows_of(ps.read_table(name).to_pandas()) == rows_of(both)
    asked = ps.sql(f"SELECT * FROM {name} WHERE row % 2 = 0 AND few IS NOT NULL")
    assert rows_of(asked.to_pandas()) == rows_of(both[(both["row"] % 2 == 0) & both["few"].notna()])
    assert rows_of(ps.sql(f"SELECT * FROM {name} VERSION AS OF 0").to_pandas()) == rows_of(frame)


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_an_index_of_one_or_two_columns_comes_back(spark: Any, tmp_path: Path, seed: int) -> None:
    import pyspark.pandas as ps

    draw = random.Random(seed)
    columns = drawn_columns(draw)
    frame = frame_of(draw, columns, 0)
    frame["third"] = frame["row"] % 3
    index = draw.choice((["row"], ["third", "row"]))
    stored = frame.set_index(index)
    path = str(tmp_path / "table")

    ps.from_pandas(stored).to_delta(path, index_col=index, **BY_NAME)

    found = ps.read_delta(path, index_col=index).sort_index()
    assert list(found.to_pandas().index.names) == index
    assert [*found.index.to_pandas()] == [*stored.sort_index().index]
    assert rows_of(found.to_pandas().reset_index()) == rows_of(frame)
    assert rows_of(ps.read_delta(path, index_col=index).reset_index().to_pandas()) == rows_of(frame)
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(frame)


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_rows_that_a_command_changed_are_those_that_pandas_changes(spark: Any, tmp_path: Path, seed: int) -> None:
    import pyspark.pandas as ps

    from pydelta.tables import DeltaTable

    draw = random.Random(seed)
    columns = drawn_columns(draw)
    frame, replacing = frame_of(draw, columns, 0), frame_of(draw, columns, 5)
    path = str(tmp_path / "table")
    vectors = {"delta.enableDeletionVectors": draw.choice(("true", "false"))}
    ps.from_pandas(frame).to_delta(path, **BY_NAME, **vectors)
    table = DeltaTable.forPath(spark, path)

    table.delete("row % 4 = 1")
    left = frame[frame["row"] % 4 != 1]
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(left)

    table.update("row % 3 = 0", {"few": "'new'"})
    left = left.assign(few=left["few"].mask(left["row"] % 3 == 0, "new"))
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(left)

    source = ps.from_pandas(replacing).to_spark()
    merge = table.alias("t").merge(source.alias("s"), "t.row = s.row")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    left = pd.concat([left[~left["row"].isin(replacing["row"])], replacing], ignore_index=True)
    read = ps.read_delta(path)
    assert rows_of(read.to_pandas()) == rows_of(left)
    assert_same(answers(read, columns), answers(left, columns))


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_options_of_a_write_replace_some_rows_and_add_a_column(spark: Any, tmp_path: Path, seed: int) -> None:
    import pyspark.pandas as ps

    draw = random.Random(seed)
    columns = drawn_columns(draw)
    frame, other, wider = (frame_of(draw, columns, start) for start in (0, 100, 200))
    frame["third"], other["third"], wider["third"] = frame["row"] % 3, 1, 2
    wider["added"] = [f"added {row}" for row in wider["row"]]
    path = str(tmp_path / "table")
    ps.from_pandas(frame).to_delta(path, partition_cols="third", **BY_NAME)

    ps.from_pandas(other).to_delta(path, mode="overwrite", replaceWhere="third = 1")
    left = pd.concat([frame[frame["third"] != 1], other], ignore_index=True)
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(left)

    with pytest.raises(Exception, match="added"):
        ps.from_pandas(wider).to_delta(path, mode="append")
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(left)

    ps.from_pandas(wider).to_delta(path, mode="append", mergeSchema=True)
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(pd.concat([left, wider], ignore_index=True))

    some = draw.sample(sorted(columns), 2)
    ps.from_pandas(frame[["row", *some]]).to_delta(path, mode="overwrite", overwriteSchema=True)
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(frame[["row", *some]])


def test_a_time_names_the_version_that_was_there(spark: Any, tmp_path: Path) -> None:
    import pyspark.pandas as ps

    from pydelta.tables import DeltaTable

    path = str(tmp_path / "table")
    frames = [frame_of(random.Random(seed), {}, 1000 * seed) for seed in range(3)]
    for frame in frames:
        ps.from_pandas(frame).to_delta(path, mode="overwrite", **{"delta.enableInCommitTimestamps": "true"})
    history = DeltaTable.forPath(spark, path).history().toPandas().set_index("version")["timestamp"]
    assert history.is_monotonic_decreasing
    assert history.is_unique  # Commits have different times in the log, whatever the clock says.
    for version, frame in enumerate(frames):
        found = ps.read_delta(path, timestamp=str(history[version]))
        assert rows_of(found.to_pandas()) == rows_of(frame)


def test_a_table_or_a_version_that_is_not_there_is_an_error(spark: Any, tmp_path: Path) -> None:
    import pyspark.pandas as ps

    path = str(tmp_path / "table")
    with pytest.raises(Exception, match="table"):
        ps.read_delta(path)
    ps.from_pandas(frame_of(random.Random(0), {}, 0)).to_delta(path)
    with pytest.raises(Exception, match="7"):
        ps.read_delta(path, version="7")
    with pytest.raises(Exception, match="There is a Delta table at"):
        ps.from_pandas(frame_of(random.Random(1), {}, 0)).to_delta(path, mode="error")
    assert rows_of(ps.read_delta(path).to_pandas()) == rows_of(frame_of(random.Random(0), {}, 0))
