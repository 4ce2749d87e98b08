"""What a program imports, pyproject.toml declares: found by reading, where a machine that has more would not tell."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = ("pydelta", "catalog_sync", "jobs", "benchmarks", "tests")
IMPORT_NAMES = {
    "grpcio": "grpc",
    "protobuf": "google",
    "moto": "moto",
    "import-linter": "importlinter",
    "pytest-xdist": "xdist",
    "pyyaml": "yaml",
}
PART_OF_PYSPARK = "py4j"  # PySpark asks for the one version that fits
OPTIONAL = {
    "hdfs_native": "hdfs",
    "gssapi": "kerberos",
    "grpc": "serve",
    "google": "serve",
    "zstandard": "serve",
    "jinja2": "ui",
    "pyiceberg": "iceberg",
    "waitress": "ui",
    "prometheus_client": "ui",
    "deltalake": "dev",
    "boto3": "erasure",
    "botocore": "erasure",
}
"""For a place, a service or another engine that not everybody has: without them an error says what to install."""
PROGRAMS = {
    "pydelta.api.cli.cli": ("spark",),
    "pydelta.tables": ("spark",),
    "catalog_sync.cli": ("spark", "sync"),
    "jobs.demo.__main__": ("demo",),
    **{f"jobs.{path.stem}": ("spark", "sync") for path in (ROOT / "jobs").glob("*.py") if path.stem != "__init__"},
    "jobs.erase": ("spark", "sync", "erasure"),
}


def _declared(*extras: str) -> set[str]:
    """Import names of the project's dependencies and of those of some extras."""
    listed = list(PROJECT["dependencies"])
    for extra in extras:
        listed += PROJECT["optional-dependencies"][extra]
    found = set()
    for requirement in listed:
        name, chosen = re.fullmatch(r"([\w.-]+)(?:\[([\w,-]+)\])?.*", requirement).groups()
        if name == PROJECT["name"]:
            found |= _declared(*chosen.split(","))
        else:
            found.add(IMPORT_NAMES.get(name, name.replace("-", "_")))
    return found


def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((item for item in (path.with_suffix(".py"), path / "__init__.py") if item.is_file()), None)


@functools.cache
def _imports(path: Path) -> set[str]:
    """Modules that a file names in its imports, at the top and inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{item.name}" for item in node.names)}
    return found


def _reached(start: str) -> dict[str, set[str]]:
    """Packages of others that a program can come to import -> the files that do."""
    found: dict[str, set[str]] = {}
    seen, queue = set(), [start]
    while queue:
        module = queue.pop()
        path = _file(module)
        if path is None or path in seen:
            continue
        seen.add(path)
        for name in _imports(path):
            top = name.split(".")[0]
            if top in OURS:
                queue.append(name)
            elif top not in sys.stdlib_module_names:
                found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


def test_the_walk_goes_through_our_own_packages():
    assert {"polars", "pyspark", "pymetastore", "rich"} <= set(_reached("jobs.demo.__main__"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_imports_only_what_its_packages_declare(program):
    reached = _reached(program)
    allowed = _declared(*PROGRAMS[program]) | {PART_OF_PYSPARK}
    undeclared = {name: sorted(files) for name, files in reached.items() if name not in allowed | set(OPTIONAL)}
    assert undeclared == {}


def test_what_is_optional_is_declared_by_the_extra_that_its_error_names():
    assert {name: extra for name, extra in OPTIONAL.items() if name not in _declared(extra)} == {}


@pytest.mark.parametrize(("folder", "beside"), [("tests", "stack-tests"), ("benchmarks", "bench")])
def test_tests_and_benchmarks_import_only_what_their_extras_declare(folder, beside):
    allowed = _declared("dev", beside) | {PART_OF_PYSPARK}
    files = [
        path for name in {folder, "tests"} for path in (ROOT / name).rglob("*.py")
    ]  # benchmarks use tests' servers
    helpers = {path.stem for path in files} | {path.parent.name for path in files}
    brought = {"boto3", "botocore", "cryptography", "werkzeug"}  # by moto[server]
    brought |= {"_pytest", "TCLIService"}  # by pytest itself; by pyhive
    brought |= {"lakehouse_superset"}  # a folder of an image
    brought |= {"ibis"}  # by the environment that tests/suites makes
    brought |= {
        "chdb",
        "daft",
        "dask",
        "dask_deltatable",
        "datafusion",
        "pysail",
        "ray",
    }  # by tests/peers/matrix/readers.txt
    brought |= {"airflow", "lakehouse_airflow"}  # by the image of Airflow, whose own package a unit test imports
    lists = (ROOT / "tests" / "suites" / "packages").glob("*.txt")  # dbt-core has the module dbt
    pinned = {re.split("[-_=]", line)[0].lower() for path in lists for line in path.read_text().splitlines()}
    undeclared = {}
    for path in (ROOT / folder).rglob("*.py"):
        known = allowed | (_declared("bench") if "peers" in path.parts else set())  # SUITE=interop installs both
        known |= pinned if path.parent.name == "programs" else set()
        names = {name.split(".")[0] for name in _imports(path)}
        odd = names - set(sys.stdlib_module_names) - set(OURS) - helpers - known - brought - {"delta"}
        if odd:
            undeclared[str(path.relative_to(ROOT))] = sorted(odd)
    assert undeclared == {}
