"""What ``spark.catalog`` says of Delta tables, and does with them."""

from __future__ import annotations

from differ.programs import Corpus, Place

corpus = Corpus("catalog")

KINDS = {
    "plain": "CREATE TABLE {t} (id BIGINT, name STRING) USING delta",
    "described": (
        "CREATE TABLE {t} (id BIGINT NOT NULL COMMENT 'a key', name STRING COMMENT '') USING delta COMMENT 'of people'"
    ),
    "external": "CREATE TABLE {t} (id BIGINT, name STRING) USING delta LOCATION '{p}' COMMENT 'elsewhere'",
    "partitioned": "CREATE TABLE {t} (p STRING, id BIGINT, q INT, name STRING) USING delta PARTITIONED BY (q, p)",
    "clustered": "CREATE TABLE {t} (id BIGINT, name STRING, s STRUCT<a: INT>) USING delta CLUSTER BY (name, s.a)",
}


def shown(table: object) -> list[object]:
    """What is told of a table."""
    return [
        getattr(table, name) for name in ("name", "catalog", "namespace", "description", "tableType", "isTemporary")
    ]


def columns(place: Place, *names: str) -> list[list[object]]:
    """What is told of its columns, in their order."""
    keys = ("name", "description", "dataType", "nullable", "isPartition", "isBucket", "isCluster")
    return [[getattr(item, key, None) for key in keys] for item in place.spark.catalog.listColumns(*names)]


for kind, made in KINDS.items():

    @corpus.python(f"a table, {kind}", history=False)
    def read(place: Place, made: str = made) -> None:
        """Look."""
        place.sql(made)
        place.attempt(lambda: shown(place.spark.catalog.getTable(place.t)))
        place.attempt(lambda: [shown(it) for it in place.spark.catalog.listTables(place.t.split(".")[0])])
        place.attempt(lambda: columns(place, place.t))
        place.attempt(lambda: place.spark.catalog.tableExists("t", place.t.split(".")[0]))
        place.attempt(lambda: place.spark.catalog.refreshTable(place.t))
        place.attempt(lambda: place.sql("ALTER TABLE {t} ADD COLUMN late STRING COMMENT 'late' FIRST").collect()[1:])
        place.attempt(lambda: columns(place, place.t)[0])


NAMES = {
    "a path": "delta.`{p}`",
    "a path with nothing": "delta.`{p}x`",
    "nothing": "{t}x",
    "another catalog": "spark_catalog.{t}",
    "a view": "seen",
}
for label, name in NAMES.items():

    @corpus.python(f"every question by a name, {label}", history=False)
    def ask(place: Place, name: str = name) -> None:
        """Ask of a name."""
        place.sql("CREATE TABLE {t} (id BIGINT, p STRING) USING delta PARTITIONED BY (p) COMMENT 'c'")
        place.sql("INSERT INTO {t} VALUES (1, 'a')")
        place.spark.range(3).write.format("delta").save(place.p)
        place.sql("CREATE OR REPLACE TEMP VIEW seen AS SELECT * FROM {t}")
        named = place.named(name)
        place.attempt(lambda: place.spark.catalog.tableExists(named))
        place.attempt(lambda: shown(place.spark.catalog.getTable(named))[1:])
        place.attempt(lambda: columns(place, named))
        place.sql("DROP VIEW seen")


CONF = (
    "delta.schema.autoMerge.enabled",
    "delta.retentionDurationCheck.enabled",
    "delta.properties.defaults.enableChangeDataFeed",
    "delta.optimize.maxFileSize",
    "delta.optimize.minFileSize",
    "delta.merge.optimizeInsertOnlyMerge.enabled",
    "delta.replaceWhere.constraintCheck.enabled",
    "delta.write.txnVersion",
    "delta.commitInfo.userMetadata",
    "delta.vacuum.parallelDelete.enabled",
    "delta.nope",
)


@corpus.python("settings that were not set", history=False)
def settings(place: Place) -> None:
    """Read them with and without a value for when they are not set."""
    place.sql("CREATE TABLE {t} (id BIGINT) USING delta")  # the reference knows them only after its first table
    for name in CONF:
        key = f"spark.databricks.{name}"
        place.attempt(lambda key=key: place.spark.conf.get(key))
        place.attempt(lambda key=key: place.spark.conf.get(key, "mine"))
        place.attempt(lambda key=key: place.spark.conf.get(key, None))
