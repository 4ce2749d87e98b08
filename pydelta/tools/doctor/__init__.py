"""Examine this machine, a store and a job's log, and suggest what to do about each finding."""
