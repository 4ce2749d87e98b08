"""``DataFrameWriterV2`` over what may be there, and ``saveAsTable`` of another format over a Delta table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from differ.programs import Corpus, Place
from pyspark.sql import functions as F

corpus = Corpus("writers")

THERE = {
    "nothing": (),
    "a table": ("CREATE TABLE {t} (id BIGINT, p STRING, v INT) USING delta", "INSERT INTO {t} VALUES (1, 'a', 1)"),
    "a partitioned table": (
        "CREATE TABLE {t} (id BIGINT, p STRING, v INT) USING delta PARTITIONED BY (p)",
        "INSERT INTO {t} VALUES (1, 'a', 1), (2, 'b', 2)",
    ),
    "a clustered table": (
        "CREATE TABLE {t} (id BIGINT, p STRING, v INT) USING delta CLUSTER BY (id)",
        "INSERT INTO {t} VALUES (1, 'a', 1)",
    ),
    "a Parquet table": ("CREATE TABLE {t} (id BIGINT, p STRING, v INT) USING parquet",),
    "a view": ("CREATE VIEW {t} AS SELECT 1L AS id, 'a' AS p, 1 AS v",),
}
ENDS: dict[str, Callable[[Any], Any]] = {
    "create": lambda writer: writer.create(),
    "replace": lambda writer: writer.replace(),
    "createOrReplace": lambda writer: writer.createOrReplace(),
    "append": lambda writer: writer.append(),
    "overwrite": lambda writer: writer.overwrite(F.col("p") == "a"),
    "overwritePartitions": lambda writer: writer.overwritePartitions(),
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "": lambda writer: writer,
    ", partitioned": lambda writer: writer.partitionedBy(F.col("p")),
    ", clustered": lambda writer: writer.clusterBy("v"),
}


def rows(place: Place, text: str = "1L AS id, 'a' AS p, 9 AS v") -> Any:
    """One row."""
    return place.spark.sql(f"SELECT {text}")


for there, made in THERE.items():
    for end, run in ENDS.items():
        for layout, laid in LAYOUTS.items():
            if (there, bool(layout)) not in (
                ("nothing", False),
                ("a partitioned table", False),
                ("a clustered table", True),
            ):
                continue
            if there == "a clustered table" and not end.endswith("eplace"):
                continue

            @corpus.python(f"writeTo {there}, {end}{layout}")
            def write(
                place: Place,
                made: tuple[str, ...] = made,
                run: Callable[[Any], Any] = run,
                laid: Callable[[Any], Any] = laid,
            ) -> None:
                """Write by name."""
                for text in made:
                    place.sql(text)
                place.attempt(lambda: run(laid(rows(place).writeTo(place.t).using("delta"))))
                if made[:1] and made[0].startswith("CREATE VIEW"):
                    place.sql("DROP VIEW IF EXISTS {t}")


@corpus.python("writeTo with properties and a path")
def described(place: Place) -> None:
    """Say more of a table."""
    writer = rows(place).writeTo(place.t).using("delta").tableProperty("a.b", "c").option("path", place.p)
    place.attempt(lambda: writer.tableProperty("delta.enableChangeDataFeed", "true").create())
    place.attempt(lambda: place.sql("SHOW TBLPROPERTIES {t} ('a.b')"))
    place.attempt(lambda: rows(place).writeTo(f"delta.`{place.p}`").append())


@corpus.python("writeTo by a path")
def by_path(place: Place) -> None:
    """Name a table by its path."""
    name = f"delta.`{place.p}`"
    place.attempt(lambda: rows(place).writeTo(name).append())
    place.attempt(lambda: rows(place).writeTo(name).create())
    place.attempt(lambda: rows(place).writeTo(name).using("delta").create())
    place.attempt(lambda: rows(place).writeTo(name).createOrReplace())
    place.attempt(lambda: rows(place).writeTo(name).overwrite(F.lit(True)))


for mode in ("error", "ignore", "append", "overwrite"):
    for form in ("parquet", "json"):
        for there in ("a table",):

            @corpus.python(f"saveAsTable over {there}, {mode}, {form}")
            def saved(place: Place, mode: str = mode, form: str = form, there: str = there) -> None:
                """Save by name in a format."""
                for text in THERE[there]:
                    place.sql(text)
                writer = rows(place).write.mode(mode)
                place.attempt(lambda: (writer if form == "default" else writer.format(form)).saveAsTable(place.t))
                place.attempt(lambda: place.spark.table(place.t))


for text in (
    "CREATE OR REPLACE TABLE {t} (id BIGINT, p STRING) USING delta PARTITIONED BY (p)",
    "CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (p) AS SELECT 1L AS id, 'b' AS p",
    "CREATE OR REPLACE TABLE {t} (id BIGINT, p STRING) USING delta",
    "INSERT OVERWRITE {t} SELECT 2L, 'b', 2",
):
    corpus.sql(
        f"a clustered table, then {text.partition('{t}')[0]}{text.partition('{t}')[2]}",
        f"CREATE TABLE {{t}} (id BIGINT, p STRING, v INT) USING delta CLUSTER BY (id);\n {text}",
    )

OPTIONS = {
    "of nobody": {"nope": "1"},
    "nearly mergeSchema": {"mergeShcema": "true"},
    "a negative version": {"txnAppId": "a", "txnVersion": "-1"},
    "a version without a name": {"txnVersion": "1"},
}
for label, given in OPTIONS.items():

    @corpus.python(f"options of a writer, {label}")
    def optioned(place: Place, given: dict[str, str] = given) -> None:
        """Write with options."""
        place.attempt(lambda: rows(place).write.format("delta").options(**given).save(place.p))
        place.attempt(lambda: rows(place).write.format("delta").mode("append").options(**given).saveAsTable(place.t))
        place.attempt(lambda: rows(place).writeTo(place.t).options(**given).append())
        place.attempt(lambda: place.spark.read.format("delta").options(**given).load(place.p))
