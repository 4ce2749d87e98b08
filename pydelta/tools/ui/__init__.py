"""Show what tables, their twins and their streams are like, on a page that only reads.

::

    sources (locations, folders, databases) --find--> places
    place --tables, streams, services--> frozen values --watch: threads, deadlines, a short cache--+
                                                                  pages, JSON, Prometheus <-- server
"""
