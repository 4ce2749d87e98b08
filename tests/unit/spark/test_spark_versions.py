"""A Spark that this engine is not made for is refused in one sentence, before anything is imported or written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pydelta.engines.spark_versions import SPARKS, installed_spark, refuse_unsupported
from pydelta.errors import DeltaEnvironmentError

ROOT = Path(__file__).parents[3]
SESSION = "import pydelta\ntry:\n    pydelta.session()\nexcept Exception as error:\n    print(error)"
ROUTES = {
    "session": ["-c", SESSION],
    "tables": ["-c", SESSION.replace("pydelta.session()", "from pydelta.tables import DeltaTable")],
    "sql": ["-m", "pydelta", "sql", "-e", "SELECT 1"],
    "serve": ["-m", "pydelta", "serve"],
    "job": ["-m", "jobs.ingest", "--input", "x", "--format", "csv", "--table", "/tmp/none"],
}


@pytest.mark.parametrize("version", ["4.1.0", "4.1.4", "4.2.0.dev1", "4.3.0", None])
def test_versions_that_are_claimed_are_taken(version):
    refuse_unsupported(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.4.0", "5.0.0", "2.4"])
def test_other_versions_are_refused(version):
    with pytest.raises(DeltaEnvironmentError) as caught:
        refuse_unsupported(version)
    assert f"This is Spark {version}, but pydelta runs on Spark 4.1 to 4.3." in str(caught.value)
    assert "pip install 'pyspark>=4.1,<4.4'" in str(caught.value)


def test_the_versions_are_those_that_the_project_asks_for():
    import pyspark

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (asked,) = project["optional-dependencies"]["spark"]
    assert not any(item.startswith("pyspark") for item in project["dependencies"])
    low, high = re.fullmatch(r"pyspark>=(\d+\.\d+),<(\d+\.\d+)", asked).groups()
    numbers = [float(f"{major}.{minor}") for major, minor in SPARKS]
    assert (numbers[0], round(numbers[-1] + 0.1, 1)) == (float(low), float(high))
    assert installed_spark() == pyspark.__version__


@pytest.mark.parametrize(("route", "version"), [*((route, "3.5.9") for route in ROUTES), ("session", "4.0.0")])
def test_each_way_in_says_so_first(tmp_path, route, version):
    fake = tmp_path / "pyspark"
    fake.mkdir()
    (fake / "__init__.py").write_text("raise SystemExit('PySpark was imported')")
    (fake / "version.py").write_text(f"__version__: str = {version!r}\n")
    said = refused(tmp_path, route)
    assert f"This is Spark {version}, but pydelta runs on Spark 4.1 to 4.3." in said
    assert "PySpark was imported" not in said


def refused(folder, route) -> str:
    """What a way in says, beside the modules of a folder, when it refuses without a trace."""
    ended = run(folder, *ROUTES[route])
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said
    if route == "job":
        assert (ended.returncode, json.loads(ended.stdout)["error"]) == (1, "DELTA_ENVIRONMENT")
    elif route in ("sql", "serve"):
        assert (ended.returncode, ended.stderr.startswith("Error: ")) == (1, True)
    return said


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


WITHOUT = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
absent = ("pyspark", "py4j")
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in absent else find(name, *rest)
"""


@pytest.fixture
def without(tmp_path):
    """A folder that hides PySpark from programs with it on their path."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    return tmp_path


@pytest.mark.parametrize("route", ROUTES)
def test_without_pyspark_each_way_in_names_the_extra(without, route):
    said = refused(without, route)
    assert "This needs PySpark, which is not installed." in said
    assert "pip install 'pydelta-lakehouse[spark]'" in said


def test_without_pyspark_tables_are_made_and_changed(without):
    lines = (ROOT / "README.md").read_text().split("## Without a JVM\n\n```python\n")[1].split("```")[0]
    assert '"/tmp/plain"' in lines
    lines = lines.replace('"/tmp/plain"', repr(str(without / "t")))
    lines += "\nimport sys\nprint(sorted(table.scan()['id'].to_pylist()), 'pyspark' in sys.modules)"
    ended = run(without, "-c", lines)
    assert (ended.stderr, ended.stdout) == ("", "[1, 2, 3, 2001] False\n")
    shown = run(without, "-m", "pydelta", "history", str(without / "t"), "--json")
    assert (shown.returncode, len(json.loads(shown.stdout)) > 4) == (0, True), shown.stderr
    checked = run(without, "-m", "pydelta", "doctor")
    assert "pip install 'pydelta-lakehouse[spark]'" in checked.stdout
    assert "Traceback" not in checked.stdout + checked.stderr
