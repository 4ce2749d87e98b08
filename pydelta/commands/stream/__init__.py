"""Plan streams over a table from its log alone: offsets, admission, commits; and write a stream's batches once."""
