"""A Delta Lake engine in Python over PySpark."""
