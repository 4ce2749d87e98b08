"""Run a section of the guide of tools, block by block, as the tests of tutorials run their pages.

The section is the one whose title is in ``PYDELTA_GUIDE_SECTION``. Its commands are those of the suite's environment,
behind them Spark's, and the folder of the recipe has ``jobs`` of the repository.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.suites.environment import ROOT

sys.path.insert(0, str(ROOT / "tests" / "tutorials"))

from tutorial_pages import Runner, in_shell

GUIDE = ROOT / "docs" / "guides" / "tools.md"


def section(title: str) -> str:
    """Return the text below a title of the guide."""
    found = re.split(r"^## (.+)\n", GUIDE.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))[title]


def test_the_recipe_prints_what_the_guide_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    title = os.environ["PYDELTA_GUIDE_SECTION"]
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    places = [str(Path(sys.executable).parent), str(Path(spark.origin).parent / "bin"), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    assert Runner(tmp_path, in_shell(tmp_path)).run(section(title)) > 0
