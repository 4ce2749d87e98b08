"""Plan and run DELETE, UPDATE and MERGE."""
