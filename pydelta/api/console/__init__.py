"""Serve people at a terminal: arguments, addresses, tables, progress, and failures of standard output."""
