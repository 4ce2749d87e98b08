"""Run seeded concurrent histories over a store and check that every promise of the table held: ``pydelta certify``.

::

    plan     seed -> steps of each process, faults, kills                      pure
    run      plan -> child processes (worker) over the store -> events         engines: pydelta, delta-rs, Spark
    collect  the log and the files as found -> commits with their rows
    check    history (events + commits) -> broken promises, each explained     pure
    shrink   a plan that breaks a promise -> a smaller plan that still does
    report   JSON that can be replayed, and one page
"""
