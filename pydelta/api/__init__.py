"""Offer the engine to its users: Python, SQL, Spark's own readers and writers, streams, servers, command lines."""
