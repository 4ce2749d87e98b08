"""Print Prometheus' rules (``rules``) or the guide's table (``guide``)."""

from __future__ import annotations

import sys

from pydelta.tools.alerts.prometheus import guide_table, prometheus_rules

if __name__ == "__main__":
    sys.stdout.write(guide_table() if sys.argv[1:] == ["guide"] else prometheus_rules())
