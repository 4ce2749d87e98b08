"""Write a table on a cluster, change it in every way that starts Python in the workers, and print its rows."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pydelta
from pydelta.tables import DeltaTable

path = sys.argv[1]
spark = pydelta.enable(SparkSession.builder.appName("archive").getOrCreate())
spark.range(1000).withColumn("p", F.col("id") % 4).write.format("delta").partitionBy("p").save(path)
spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 0")
source = spark.range(990, 1010).withColumn("p", F.col("id") % 4)
merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
spark.sql(f"OPTIMIZE delta.`{path}`")
print("rows", spark.read.format("delta").load(path).count(), "on", spark.sparkContext.master)
