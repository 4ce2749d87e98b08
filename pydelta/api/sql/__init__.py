"""Run the statements that concern Delta tables, as Spark parsed them."""
