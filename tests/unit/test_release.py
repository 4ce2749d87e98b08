"""A release is the commit's files, the same bytes from every build, and refused where that does not hold."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)
KEPT = ("pydelta/errors", "pydelta/__init__.py", "pydelta/py.typed", "catalog_sync/cli.py", "jobs/ingest.py",
        "docs/guides/sql.md", "pyproject.toml", "PACKAGE.md", "README.md", "CHANGELOG.md", "SECURITY.md",
        "LICENSE")  # fmt: skip


@pytest.fixture
def checkout(tmp_path):
    """A repository with one commit: enough of the project to build both archives."""
    root = tmp_path / "checkout"
    for name in KEPT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    for command in (["init", "-q"], ["config", "user.email", "a@example.org"], ["config", "user.name", "a"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return commit(root)


def commit(root):
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "a"], cwd=root, check=True)
    return root


def built(root, scratch):
    scratch.mkdir()
    wheel, sdist = release.build(root, release.commit_of(root), scratch)
    release.check_contents(wheel, sdist, scratch / "source")
    return wheel, sdist


def test_two_builds_of_a_commit_are_the_same_anywhere(checkout, tmp_path):
    wheel, sdist = built(checkout, tmp_path / "a")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(checkout), str(clone)], check=True)
    again = built(clone, tmp_path / "b")
    assert [path.read_bytes() for path in again] == [wheel.read_bytes(), sdist.read_bytes()]
    told = [release.provenance([wheel, sdist], root, release.commit_of(root)) for root in (checkout, clone)]
    assert told[0] == told[1]
    assert [item["digest"]["sha256"] for item in told[0]["subject"]] == [release.digest(wheel), release.digest(sdist)]
    assert str(tmp_path) not in json.dumps(told)


def test_a_build_that_depends_on_where_it_runs_is_no_release(checkout, tmp_path, monkeypatch):
    planted = release.BUILD.replace(
        "import sys;", "import os, sys; open('pydelta/zone.py', 'w').write(repr(os.environ['TZ']));"
    )
    monkeypatch.setattr(release, "BUILD", planted)
    with pytest.raises(release.ReleaseError, match=r"differ: pydelta/zone\.py, pydelta_lakehouse-.*RECORD"):
        built(checkout, tmp_path / "a")


def test_uncommitted_changes_are_no_release(checkout):
    (checkout / "pydelta" / "new.py").write_text("")
    with pytest.raises(release.ReleaseError, match=r"1 files differ from the commit, such as pydelta/new\.py"):
        release.commit_of(checkout)


WRONG = {
    "another version": ("pydelta/__init__.py", '__version__ = "9.9"', r"pydelta\.__version__ is 9\.9"),
    "no heading": ("CHANGELOG.md", "# Changelog\n\n## 0.0.1\n", "has no heading for"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_commit_that_contradicts_itself_is_no_release(checkout, tmp_path, name):
    file, text, says = WRONG[name]
    (checkout / file).write_text(text)
    commit(checkout)
    with pytest.raises(release.ReleaseError, match=says):
        built(checkout, tmp_path / "a")


def added(archive: Path, name: str, data: bytes) -> None:
    """Put a file into an archive, in the place of one with its name."""
    held = release.members(archive) | {name: data}
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive, "w") as packed:
            for path, content in held.items():
                packed.writestr(path, content)
        return
    shutil.rmtree(archive.parent / "packed", ignore_errors=True)
    folder = archive.parent / "packed" / archive.name.removesuffix(".tar.gz")
    for path, content in held.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, folder.name)


@pytest.mark.parametrize("place", [0, 1], ids=["wheel", "source"])
def test_an_archive_with_another_file_than_the_commit_s_is_no_release(checkout, tmp_path, place):
    archives = built(checkout, tmp_path / "a")
    for name, data, says in (
        ("pydelta/secret.py", b"", r"1 files beyond the commit's, such as pydelta/secret\.py"),
        ("pydelta/__init__.py", b"other", r"pydelta/__init__\.py in .* differs"),
    ):
        kept = archives[place].read_bytes()
        added(archives[place], name, data)
        with pytest.raises(release.ReleaseError, match=says):
            release.check_contents(*archives, tmp_path / "a" / "source")
        archives[place].write_bytes(kept)


def test_a_distribution_that_cannot_be_installed_says_how_it_ended(tmp_path):
    broken = tmp_path / "pydelta_lakehouse-0.1.0-py3-none-any.whl"
    broken.write_bytes(b"no archive")
    with pytest.raises(release.ReleaseError, match=r"pip install .*ended with 1:\n(.|\n)*"):
        release.try_out(broken, ROOT, tmp_path / "empty", spark=False)
