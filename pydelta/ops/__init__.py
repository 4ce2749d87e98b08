"""Run what operators need: the command line, the doctor, entry points of jobs."""
