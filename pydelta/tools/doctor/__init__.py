"""Look over this machine, a store and a job's log, and say what to do about each finding."""
