"""Answer readers of Iceberg as a small read-only REST catalog, over a metastore or over folders.

::

    GET /v1/… --routes (pure)--> application --tables--> metastore entries, or folders
                                     `-- metadata.json of the table, as its folder has it
"""
