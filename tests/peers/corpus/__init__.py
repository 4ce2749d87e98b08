"""Programs in SQL and Python, each run on the reference engine and on this one; a module for each subject."""
