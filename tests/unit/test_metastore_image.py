"""What the metastore's image is made of: libraries of Hive's archive that could be replaced or left out are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

IMAGE = Path(__file__).resolve().parents[2] / "images" / "hive-metastore"
JARS = [line.split()[1] for line in (IMAGE / "jars.sha256").read_text().splitlines()]
REMOVED = re.findall(r"\brm ([a-z0-9* -]+?-\*)(?: \\)?$", (IMAGE / "Dockerfile").read_text(), re.MULTILINE)

# what the archive of 3.1.3 brings, and the first version that is taken in its place
REPLACED = {
    "libthrift": (0, 14),
    "guava": (32, 0),
    "jackson-databind": (2, 18),
    "jackson-core": (2, 18),
    "jackson-annotations": (2, 18),
    "log4j-core": (2, 25),
    "log4j-api": (2, 25),
    "log4j-slf4j-impl": (2, 25),
    "log4j-1.2-api": (2, 25),
    "commons-lang3": (3, 18),
    "httpcore": (4, 4, 16),
}
LEFT_OUT = ("derby", "orc", "aircompressor", "protobuf")


def _versions(name: str) -> list[tuple[int, ...]]:
    found = [re.fullmatch(re.escape(name) + r"-(\d[\d.]*)(?:[.-][A-Za-z].*)?\.jar", jar) for jar in JARS]
    return [tuple(int(part) for part in match[1].split(".")) for match in found if match]


def _is_removed(jar: str) -> bool:
    patterns = [pattern.removesuffix("*") for line in REMOVED for pattern in line.split()]
    return any(jar.startswith(pattern) for pattern in patterns)


@pytest.mark.parametrize("name", REPLACED)
def test_an_old_library_gives_way_to_a_newer_one(name):
    assert _is_removed(f"{name}-0.jar")
    (version,) = _versions(name)
    assert version >= REPLACED[name]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_metastore_on_postgresql_does_not_load_is_not_there(name):
    assert _is_removed(f"{name}-0.jar")
    assert not [jar for jar in JARS if jar.startswith(f"{name}-")]
