"""Talk to a Hive Metastore over Thrift."""
