"""Answer clients of JDBC, ODBC and Spark Connect by this engine, from one process."""
