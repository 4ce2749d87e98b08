"""Run a section of the guide of tools, block by block, as the tests of tutorials run their pages.

The section is the one whose title begins with the suite's word in ``PYDELTA_GUIDE_SECTION``.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.suites.environment import ROOT

sys.path.insert(0, str(ROOT / "tests" / "tutorials"))

from tutorial_pages import Runner, in_shell

GUIDE = ROOT / "docs" / "guides" / "tools.md"


def section(title: str) -> str:
    """Return the text below a title of the guide."""
    found = re.split(r"^## (.+)\n", GUIDE.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))[title]


def test_the_recipe_prints_what_the_guide_shows(tmp_path: Path) -> None:
    title = os.environ["PYDELTA_GUIDE_SECTION"]
    assert Runner(tmp_path, in_shell(tmp_path)).run(section(title)) > 0
