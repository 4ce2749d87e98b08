"""Tell what the metastore's entry of a table looks like: shared by the engine and ``catalog_sync``."""
