"""``python -m tests.api`` writes the interface and the generated parts of docs/upgrading.md.

``python -m tests.api released`` keeps the interface as that of a release.
"""

from __future__ import annotations

import sys

from tests.api.entries import CURRENT, RELEASED, text_of
from tests.api.page import CHANGELOG, PAGE, upgrading_page
from tests.api.surface import surface

if __name__ == "__main__":
    path = RELEASED if sys.argv[1:] == ["released"] else CURRENT
    path.write_text(text_of(surface(), path))
    print(f"{path.name} has {len(path.read_text().splitlines()) - 1} entries")
    PAGE.write_text(upgrading_page(PAGE.read_text(), CHANGELOG.read_text()))
