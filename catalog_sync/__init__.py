"""Keeps a Hive Metastore in step with Delta tables."""
