"""What operators run: the command line, the doctor, entry points of jobs."""
