"""Answer the pages of the catalog: databases, columns, a search, rows, runs of engines, the cluster and lineage.

::

    request --answers--> what Watch has read (browse), or a question about one table, the engines or the lineage
    question --questions: the lanes of Watch--> statistics, preview, engines, lineage --> facts (frozen values)
"""
