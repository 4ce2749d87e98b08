"""Run OPTIMIZE, VACUUM, CONVERT and CLONE in Spark."""
