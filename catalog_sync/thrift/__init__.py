"""Speak to a Hive Metastore over Thrift."""
