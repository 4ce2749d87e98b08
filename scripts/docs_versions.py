"""Build this checkout's site as one version among others, for the theme's version selector.

Usage, after ``make docs``: ``.venv-docs/bin/python scripts/docs_versions.py DIR``. It makes ``DIR/0.1.0`` (the
project's version), ``DIR/latest`` and ``DIR/versions.json``; any web server can serve DIR. Run it in a checkout of each
version with the same DIR; a version that is there already is replaced. The list has the format of the tool mike, which
the theme reads; mike itself keeps built sites in a branch of the repository.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_START = '<!doctype html>\n<meta charset="utf-8">\n<title>Latest version</title>\n'
_START += (
    '<meta http-equiv="refresh" content="0; url=latest/index.html">\n<a href="latest/index.html">Latest version</a>\n'
)


def publish(built: Path, folder: Path, version: str) -> None:
    """Put a built site into a folder of versions, point ``latest`` to the newest one, and list them."""
    if re.fullmatch(r"\d+(\.\d+)*\w*", version) is None:
        raise ValueError(f"{version!r} is not a version. Expected numbers with dots, such as 0.1.0.")
    folder.mkdir(parents=True, exist_ok=True)
    _replace(built, folder / version)
    there = [path.name for path in folder.iterdir() if re.fullmatch(r"\d+(\.\d+)*\w*", path.name)]
    newest, *_ = ordered = sorted(there, key=_order, reverse=True)
    _replace(folder / newest, folder / "latest")
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == newest else []} for name in ordered]
    (folder / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (folder / "index.html").write_text(_START)


def _order(version: str) -> tuple[list[int], bool, str]:
    """Return the order of a version; a pre-release such as 1.0rc1 comes before 1.0."""
    numbers, rest = re.fullmatch(r"([\d.]+?)([a-z]\w*)?", version).groups()  # type: ignore[union-attr]
    return [int(part) for part in numbers.split(".")], rest is None, rest or ""


def _replace(source: Path, target: Path) -> None:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target)


def main(folder: str) -> None:
    """Build the site and publish it under the project's version."""
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / "site"
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(built)]
        subprocess.run(command, cwd=_ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
        publish(built, Path(folder).absolute(), version)
    print(f"Version {version} is in {folder}/{version} and listed in {folder}/versions.json")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: .venv-docs/bin/python scripts/docs_versions.py DIR")
    main(sys.argv[1])
