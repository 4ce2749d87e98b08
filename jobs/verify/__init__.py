"""Verify a running stack from outside, hop by hop: ``make verify``.

::

    Polars: rows, and each change again          the same rows and changes: CSV -> Spark on the cluster
        |                                            -> store -> metastore -> manifests -> Trino, by each catalog
        v                                            -> DELETE, UPDATE, MERGE, ADD COLUMN -> inventory -> VACUUM
    expected  <---------- compared after each step ---------->  found
    a hop is right, wrong, or not run (it needs one that is wrong); at the end, everything that the run made is dropped
"""
