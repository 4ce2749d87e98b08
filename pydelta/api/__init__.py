"""Bring the engine to its users: Python, SQL, Spark's readers and writers, streams, servers, command lines."""
