"""Read versions of tables through Spark's own Parquet scan."""
