"""Read and write tables as streams: Spark's ``Source`` and ``Sink`` over the engine's scan and writer."""
