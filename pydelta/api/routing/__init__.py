"""Send what users call on PySpark's own classes to this engine."""
