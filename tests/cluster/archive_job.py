"""Write a table on a cluster, change it in every way that starts Python in the workers, and print its rows."""

import argparse
import os
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pydelta
from pydelta.tables import DeltaTable

parser = argparse.ArgumentParser()
parser.add_argument("path")
parser.add_argument("--gate", help="a folder: each task of the first write notes there that it has begun to write, "
                    "and goes on when there is a file named open")  # fmt: skip
parser.add_argument("--until-idle", action="store_true", help="go on after the first write when no executor is left")
parser.add_argument("--copy", action="store_true", help="a dry run of VACUUM, and a stream to a table PATH copied")
options = parser.parse_args()
path = options.path


def through_the_gate(folder):
    def passing(rows):
        for number, row in enumerate(rows):
            if number == 50:
                (Path(folder) / str(os.getpid())).write_text(os.getcwd())
                while not (Path(folder) / "open").exists():
                    time.sleep(0.1)
            yield row

    return passing


spark = pydelta.enable(SparkSession.builder.appName("archive").getOrCreate())
rows = spark.range(1000).withColumn("p", F.col("id") % 4)
if options.gate:
    passed = rows.repartition(6).rdd.mapPartitions(through_the_gate(options.gate))
    rows = spark.createDataFrame(passed, rows.schema)
rows.write.format("delta").partitionBy("p").save(path)
while options.until_idle and spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() > 1:
    time.sleep(0.2)
spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 0")
source = spark.range(990, 1010).withColumn("p", F.col("id") % 4)
merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
spark.sql(f"OPTIMIZE delta.`{path}`")
if options.copy:
    print("a dry run of VACUUM names", spark.sql(f"VACUUM delta.`{path}` DRY RUN").count(), "files")
    stream = spark.readStream.format("delta").load(path).writeStream.format("delta").partitionBy("p")
    stream = stream.option("checkpointLocation", f"{path} copied/_checkpoint").trigger(availableNow=True)
    stream.start(f"{path} copied").awaitTermination()


def place_of_the_engine(_):
    import pydelta

    return pydelta.__file__


(place,) = spark.sparkContext.parallelize([0], 1).map(place_of_the_engine).collect()
print("workers have the engine at", place)
print("rows", spark.read.format("delta").load(path).count(), "on", spark.sparkContext.master)
