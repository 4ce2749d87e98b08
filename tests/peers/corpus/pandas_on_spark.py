"""``pandas_api().to_delta``, ``to_table`` and ``ps.read_delta``, as pandas on Spark sends them to an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from differ.programs import Corpus, Place

corpus = Corpus("pandas")


def of_range(at: Place, ends: int, p: str = "id % 2 AS p") -> Any:
    """A frame of pandas on Spark."""
    return at.spark.range(ends).selectExpr("id", p).pandas_api()


MODES = ("error", "ignore", "append", "overwrite", "nope", "w", "a")
SAVED: dict[str, Callable[[Place, Any, str], Any]] = {
    "to_delta": lambda at, frame, mode: frame.to_delta(at.p, mode=mode),
    "to_table": lambda at, frame, mode: frame.to_table(at.t, format="delta", mode=mode),
}
for label, save in SAVED.items():
    for mode in MODES:

        @corpus.python(f"{label}, {mode}")
        def saved(at: Place, save: Callable[[Place, Any, str], Any] = save, mode: str = mode) -> None:
            """Save where nothing is, and where a table is."""
            at.attempt(lambda: save(at, of_range(at, 2), mode))
            at.attempt(lambda: save(at, of_range(at, 4), mode))


WRITES: dict[str, Callable[[Place], Any]] = {
    "with partitions": lambda at: of_range(at, 4).to_delta(at.p, partition_cols="p"),
    "with a list of partitions": lambda at: of_range(at, 4).to_delta(at.p, partition_cols=["p"]),
    "with a partition that is not there": lambda at: of_range(at, 4).to_delta(at.p, partition_cols="nope"),
    "with an index": lambda at: of_range(at, 4).set_index("id").to_delta(at.p, index_col="id"),
    "with two indices": lambda at: of_range(at, 4).set_index(["id", "p"]).to_delta(at.p, index_col=["a", "b"]),
    "with too many indices": lambda at: of_range(at, 4).to_delta(at.p, index_col=["a", "b"]),
    "with another type": lambda at: of_range(at, 4, "'x' AS p").to_delta(at.p, mode="append"),
    "with another column": lambda at: of_range(at, 4, "1 AS q").to_delta(at.p, mode="append"),
    "with evolution": lambda at: of_range(at, 4, "1 AS q").to_delta(at.p, mode="append", mergeSchema="true"),
    "with another schema": lambda at: of_range(at, 4, "'x' AS p").to_delta(at.p, "overwrite", overwriteSchema="true"),
    "with replaceWhere": lambda at: of_range(at, 4, "1L AS p").to_delta(at.p, "overwrite", replaceWhere="p = 1"),
    "with rows that replaceWhere refuses": lambda at: of_range(at, 4).to_delta(at.p, "overwrite", replaceWhere="p = 1"),
    "of a series": lambda at: of_range(at, 4)["id"].to_frame().to_delta(at.p, mode="append"),
    "without columns": lambda at: of_range(at, 4)[[]].to_delta(at.p, mode="append"),
    "by spark.to_table of a path": lambda at: of_range(at, 4).to_table(f"delta.`{at.p}`", mode="append"),
    "by to_spark_io": lambda at: of_range(at, 4).to_spark_io(at.p, format="delta", mode="append"),
    "of what it reads": lambda at: _read(at).assign(p=7).to_delta(at.p, mode="overwrite"),
}
for label, write in WRITES.items():

    @corpus.python(f"to_delta {label}")
    def written(at: Place, write: Callable[[Place], Any] = write, label: str = label) -> None:
        """Write over a table, or where nothing is."""
        if "partition" not in label and "ind" not in label:
            at.spark.range(2).selectExpr("id", "id % 2 AS p").write.format("delta").save(at.p)
        at.attempt(lambda: write(at))


def _read(at: Place, **options: Any) -> Any:
    import pyspark.pandas as ps

    return ps.read_delta(at.p, **options)


READS: dict[str, Callable[[Place], Any]] = {
    "the newest": lambda at: _read(at),
    "a version": lambda at: _read(at, version="0"),
    "a version as a number": lambda at: _read(at, version=1),
    "a version that is not there": lambda at: _read(at, version="9"),
    "a version that is none": lambda at: _read(at, version="one"),
    "a time": lambda at: _read(at, timestamp="2001-01-01"),
    "a time that is none": lambda at: _read(at, timestamp="soon"),
    "a version and a time": lambda at: _read(at, version="0", timestamp="2001-01-01"),
    "with an index": lambda at: _read(at, index_col="id"),
    "with an index that is not there": lambda at: _read(at, index_col="nope"),
    "the change feed": lambda at: _read(at, readChangeFeed="true", startingVersion=0).drop(columns="_commit_timestamp"),
}
for label, read in READS.items():

    @corpus.python(f"read_delta, {label}")
    def seen(at: Place, read: Callable[[Place], Any] = read) -> None:
        """Read what three versions left."""
        at.sql(
            "CREATE TABLE delta.`{p}` (id BIGINT, p BIGINT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        at.sql("INSERT INTO delta.`{p}` VALUES (1, 1), (2, 0), (3, NULL)")
        at.sql("DELETE FROM delta.`{p}` WHERE id = 2")
        at.attempt(lambda: read(at).to_spark())
        at.attempt(lambda: sorted(map(str, read(at).dtypes.to_dict().items())))
        at.attempt(lambda: len(read(at)))


@corpus.python("read_delta where nothing is")
def nothing(at: Place) -> None:
    """Read what is not there."""
    at.attempt(lambda: _read(at))
    at.spark.range(2).write.parquet(at.p)
    at.attempt(lambda: _read(at))


@corpus.python("a frame that is kept over a change")
def kept(at: Place) -> None:
    """Read again with one frame."""
    import pyspark.pandas as ps

    of_range(at, 4).to_table(at.t, format="delta")
    frame = ps.read_table(at.t)
    at.tell(len(frame))
    at.sql("DELETE FROM {t} WHERE id = 1")
    at.attempt(lambda: len(frame))
    at.attempt(lambda: int(frame["id"].sum()))
    at.attempt(lambda: frame.groupby("p").size().sort_index().to_dict())
    at.attempt(lambda: ps.sql(f"SELECT count(*) AS n FROM {at.t}").to_spark())
