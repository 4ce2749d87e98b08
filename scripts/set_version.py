"""Set the project's version in every file that has it: ``python scripts/set_version.py 1.0.0rc1``.

pyproject.toml has the version; the package, the names of the stack's images and the pages that show such a name repeat
it. The changelog's headings and the kept interface of the last release are not changed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VERSION: Final = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_PLACES: Final = (
    ("pyproject.toml", r'(?m)^(version = "){}(")'),
    ("pydelta/__init__.py", r'(?m)^(__version__ = "){}(")'),
    ("docker-compose*.yml", r"(\$\{{LAKEHOUSE_VERSION:-){}(\}})"),
    ("compose/*.yml", r"(\$\{{LAKEHOUSE_VERSION:-){}(\}})"),
    ("docs/**/*.md", r"(lakehouse/[a-z-]+:){}(?![\w.]*\d)()"),
)
"""Files, and a pattern of what is around the version in them."""


def set_version(root: Path, version: str) -> list[Path]:
    """Write the version into the files of a checkout, and return those that changed.

    Raises:
        ValueError: It is not a version of three numbers, with ``a1``, ``b1`` or ``rc1`` after them before a release.
    """
    if VERSION.fullmatch(version) is None:
        raise ValueError(f"{version!r} is not a version. Write three numbers, such as 1.2.0 or 1.2.0rc1.")
    old = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    changed = []
    for file, pattern in list(_places(root)):
        text = file.read_text()
        new = re.sub(pattern.format(re.escape(old)), rf"\g<1>{version}\g<2>", text)
        if new != text:
            file.write_text(new)
            changed.append(file)
    return changed


def _places(root: Path) -> Iterator[tuple[Path, str]]:
    for names, pattern in _PLACES:
        for file in sorted(root.glob(names)):
            yield file, pattern


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name the version alone. Next: python scripts/set_version.py VERSION")
    try:
        print(f"{len(set_version(ROOT, sys.argv[1]))} files have the version {sys.argv[1]} now")
    except ValueError as error:
        sys.exit(str(error))
