"""Follow the changes of a database's tables, as Debezium writes them to topics: one Delta table per topic.

::

    schema within a record --columns--> columns of the table, key of its rows
    records of a batch     --following--> known columns: jobs/ingest_stream.py merges the batch
                                          a new column:  nothing is merged; the table gets it, and the batch runs again
"""
