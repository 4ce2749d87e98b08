"""Rewrite files in better sizes or order: OPTIMIZE, REORG."""
