"""Read and write the pieces of the Delta format: values and text alone, no I/O, no Spark.

::

    actions      one JSON line of a commit <-> one frozen action
    paths        file names in _delta_log, data paths <-> locations
    types schema evolution     schemaString <-> values; physical names; does this data fit?
    partitions   values <-> text <-> typed columns <-> directory names
    stats        per-file statistics <-> typed bounds
    features     protocol -> may this engine read it, write it?
"""
