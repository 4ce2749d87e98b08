"""Turn DataFrames into data files and commits."""
