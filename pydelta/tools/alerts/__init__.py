"""Define alerts once, for Prometheus and for a webhook.

::

    rules: names, conditions, texts --prometheus--> images/monitor/rules.yml
             |                      --guide-------> docs/guides/alerts.md
             +--> evaluate <-- the samples of /metrics, every 15 s
                     +--> queue: what has begun, what is to be posted; a file --> webhook: one POST each
"""
