"""Bind and run DELETE, UPDATE and MERGE in Spark."""
