"""Run small work in this process on Arrow, without a Spark job or a JVM."""
