"""Run small work in this process on Arrow: no Spark job, no JVM."""
