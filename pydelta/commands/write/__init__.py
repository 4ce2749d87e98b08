"""Plan and run a write: append, overwrite, replaceWhere."""
