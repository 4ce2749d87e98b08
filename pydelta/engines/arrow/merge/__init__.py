"""Merge rows into a table in this process: pair them by keys, in memory or through temporary files; rewrite files."""
