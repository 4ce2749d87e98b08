"""Provide the engine's interfaces: Python, SQL, Spark's readers and writers, streams, servers, command lines."""
