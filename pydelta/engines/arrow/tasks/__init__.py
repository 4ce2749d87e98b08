"""Write and compact files on executors: Arrow and Parquet, no driver code, no pyspark."""
