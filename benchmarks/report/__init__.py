"""Keep what benchmarks measured, judge it by the targets, and draw the report.

::

    make bench --keep--> build/bench/NAME.json --make bench-compare--> what changed since the runs in results/
                                      `--make bench-report--> results/NAME.json --targets.toml--> docs/benchmarks.md
"""
