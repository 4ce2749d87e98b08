"""``python -m tests.support`` draws the page of the kept runs; ``… keep FILE …`` first takes outcomes into them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.page import KEPT, PAGE, keep, kept_runs, support_page

if __name__ == "__main__":
    runs = kept_runs()
    if sys.argv[1:2] == ["keep"]:
        runs = keep(runs, [json.loads(Path(name).read_text()) for name in sys.argv[2:]])
        KEPT.write_text(json.dumps(runs, indent=1) + "\n")
    PAGE.write_text(support_page(runs))
    print(f"{PAGE.name} has {len(runs)} runs")
