"""Benchmarks: one file a question, ratios against a peer in one run on the same data."""
