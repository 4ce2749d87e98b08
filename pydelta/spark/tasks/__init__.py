"""Do what executors do: Arrow and Parquet, no driver code, no pyspark."""
