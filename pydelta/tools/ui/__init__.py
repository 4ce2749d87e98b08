"""Show the state of tables, their twins and their streams on a read-only page.

::

    sources (locations, folders, databases) --find--> places
    place --tables, streams, services--> frozen values --watch: threads, deadlines, a short cache--+
                                                                  pages, JSON, Prometheus <-- server
"""
