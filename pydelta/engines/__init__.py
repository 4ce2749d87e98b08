"""Run the parts of commands that read and write rows: in this process with Arrow, or as jobs of Spark."""
