"""What is in the wheel and in the source distribution: the source as it is, and nothing of an earlier build."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "PACKAGE.md", "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE")
FOLDERS = ("pydelta", "catalog_sync", "jobs", "docs/guides", "tests/unit/storage")
BUILD = "import sys; from hatchling import build; build.build_wheel(sys.argv[1]); build.build_sdist(sys.argv[1])"


@pytest.fixture
def source(tmp_path):
    """A checkout of what a distribution could take, and of some tests."""
    place = tmp_path / "source"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, place / name)
    return place


def built(source, where):
    """Names in the wheel, names in the source distribution, and the wheel's metadata."""
    subprocess.run([sys.executable, "-c", BUILD, str(where)], cwd=source, check=True, capture_output=True, text=True)
    (wheel,), (archive,) = where.glob("*.whl"), where.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(packed.read(metadata))
    with tarfile.open(archive) as packed:
        return names, {name.partition("/")[2] for name in packed.getnames()}, told


def test_a_module_that_was_deleted_is_in_no_later_wheel(source, tmp_path):
    added = source / "pydelta/storage/passing.py"
    added.write_text("")
    before = set(source.iterdir())
    wheel, archive, _ = built(source, tmp_path / "first")
    assert "pydelta/storage/passing.py" in wheel & archive
    assert set(source.iterdir()) == before, "a build leaves nothing beside the source"
    added.unlink()
    wheel, archive, _ = built(source, tmp_path / "second")
    assert "pydelta/storage/passing.py" not in wheel | archive


def test_distributions_have_the_programs_with_their_files_and_no_tests(source, tmp_path):
    wheel, archive, _ = built(source, tmp_path / "built")
    files = {
        str(path.relative_to(source))
        for name in ("pydelta", "catalog_sync")
        for path in (source / name).rglob("*")
        if path.is_file()
    }
    assert files == {name for name in wheel if ".dist-info/" not in name}
    assert files | {"LICENSE", "PACKAGE.md", "jobs/ingest.py", "docs/guides/sql.md"} <= archive
    assert not {name for name in archive if name.startswith("tests")}


def test_the_metadata_names_license_authors_and_what_it_runs_on(source, tmp_path):
    wheel, _, told = built(source, tmp_path / "built")
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Author"] == "The pydelta authors"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)
    pythons = {text for text in told.get_all("Classifier") if re.search(r"Python :: 3\.\d+$", text)}
    assert pythons == {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)}
    assert told["Requires-Python"] == "<3.15,>=3.11"


def test_what_an_index_shows_has_no_link_that_only_works_in_the_source(source, tmp_path):
    _, _, told = built(source, tmp_path / "built")
    text = told.get_payload()
    assert "Apache-2.0" in text
    assert not [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")]
