"""Write a table for each feature by each engine, and read it by all: docs/reference/interop.md is made from the answers."""
