"""The shape of the code base: file sizes, what packages export, the error tree."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pydelta
from pydelta import errors

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path
    for folder in ("pydelta", "catalog_sync", "jobs", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)
PACKAGES = sorted(module.name for module in pkgutil.walk_packages(pydelta.__path__, "pydelta.") if module.ispkg)


def test_the_walk_finds_the_sources():
    assert len(SOURCES) > 60
    assert "pydelta.log" in PACKAGES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_has_at_most_600_lines(path):
    assert len(path.read_text().splitlines()) <= 600


_STORY = "This is a story from top to bottom: each step starts from the result of the previous one."

# Functions over a limit: file and function -> the reason, which also stands above the function.
LARGE = {
    ("jobs/demo/flights.py", "run"): _STORY,
    ("jobs/demo/sql.py", "_tell"): _STORY,
}


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function below a node with its qualified name, those inside functions too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + child.name, child
        inner = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _functions(child, f"{prefix}{child.name}." if inner else prefix)


def _is_large(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """More than six arguments (a Typer command's are its options) or 60 lines beside the docstring."""
    given = function.args
    names = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if arg]
    is_command = any(ast.unparse(item).startswith("app.command(") for item in function.decorator_list)
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        lines -= function.body[0].end_lineno - function.body[0].lineno + 1
    return (len({*names} - {"self", "cls"}) > 6 and not is_command) or lines > 60


def test_a_function_has_at_most_six_arguments_and_60_lines():
    """What travels together becomes one value; what is done in steps becomes a function per step."""
    large, count = set(), 0
    for path in SOURCES:
        file = str(path.relative_to(ROOT))
        if file.startswith(("pydelta/", "catalog_sync/", "jobs/")):
            text = path.read_text()
            for name, function in _functions(ast.parse(text)):
                count += 1
                if _is_large(function):
                    large.add((file, name))
                    reason = LARGE.get((file, name))
                    assert reason is not None, f"{name} in {file} has more than six arguments or 60 lines"
                    assert text.split("\n")[function.lineno - 2] == f"# {reason}", f"the reason stands above {name}"
    assert count > 2000
    assert LARGE.keys() - large == set(), "no longer over a limit"


def test_test_files_have_names_of_their_own():
    """pytest takes two files of one name in two folders for the same module."""
    names = [path.name for path in SOURCES if path.name.startswith("test_") and "stack" not in path.parts]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_test_files_have_memory_stores_of_their_own():
    """Stores of one name share their objects, so that two files with one name see each other's tables."""
    users: dict[str, set[str]] = {}
    for path in SOURCES:
        for name in re.findall(r"MemoryStore\(f?\"memory://([a-z][\w-]*)", path.read_text()):
            users.setdefault(name, set()).add(path.name)
    assert len(users) > 15
    assert {name: sorted(files) for name, files in users.items() if len(files) > 1} == {}


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.name == "__init__.py"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_a_package_file_only_re_exports(path):
    rooms = ("", "log", "manifests/iceberg")
    if path in [ROOT / "pydelta" / room / "__init__.py" for room in rooms]:
        return  # their lazy attributes need a function
    allowed = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.If)
    assert [node for node in ast.parse(path.read_text()).body if not isinstance(node, allowed)] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_exists_once(name):  # that they are sorted is ruff's to check (RUF022)
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert len(set(exported)) == len(exported)
    assert [item for item in exported if not hasattr(module, item)] == []


def _error_classes() -> list[type[errors.DeltaError]]:
    found, queue = [], [errors.DeltaError]
    while queue:
        cls = queue.pop()
        if getattr(errors, cls.__name__, None) is cls:  # not the twins that pydelta.engines.spark.errors makes
            found.append(cls)
            queue.extend(cls.__subclasses__())
    return found


def test_every_error_has_a_code_of_its_own_and_a_docstring():
    classes = _error_classes()
    codes = [cls.code for cls in classes]
    assert len(classes) > 30
    assert len(set(codes)) == len(codes)
    assert [cls.__name__ for cls in classes if not inspect.getdoc(cls)] == []


def test_a_public_class_name_means_one_thing():
    homes = {}
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] in ("pydelta", "catalog_sync") and "testing" not in path.parts:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(path)
    assert {name for name, paths in homes.items() if len(paths) > 1} == set()


def test_every_error_in_the_tree_is_exported_and_drawn():
    drawn = errors.__doc__ or ""
    for cls in _error_classes():
        assert cls.__name__ in errors.__all__
        assert cls.__name__ in drawn


def test_the_engine_below_spark_imports_with_pyspark_absent():
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['py4j'] = None\n"
        "import pydelta, pydelta.api.cli.cli, pydelta.commands.change.delete, pydelta.commands.write.command\n"
        "import pydelta.commands.create\n"
        "import pydelta.commands.restore, pydelta.commands.describe, pydelta.txn, pydelta.log, pydelta.exceptions\n"
        "print('imported')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "imported", done.stderr


def test_nothing_names_a_machine_path_or_a_registry():
    # Written in pieces so that this file does not find itself.
    forbidden = ["/" + "work/", "/" + "farm/", "registry-1." + "docker", "files." + "pythonhosted", "repo1." + "maven"]
    found = []
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path.suffix not in {".parquet", ".png"}:
            text = path.read_text(errors="replace")
            for root in ("s3a:/" + "/", "hdfs://namenode:8020" + "/"):  # one of the places of the stack's store
                text = text.replace(root + "work/", "")
            found += [f"{name}: {word}" for word in forbidden if word in text]
    assert found == []


def test_a_module_says_first_what_it_does():
    """A verb and its object, on one line; see docs/style.md. A new verb is added to the list; a noun is not."""
    verbs, wrong, lines = set((ROOT / "tests" / "verbs.txt").read_text().split()), [], []
    for path in SOURCES:
        doc = ast.get_docstring(ast.parse(path.read_text()))
        if doc is None or path.relative_to(ROOT).parts[0] == "tests":
            continue
        first = doc.split("\n")[0]
        lines.append(first)
        verb, then = first.split()[:2]
        noun = then == "of"  # "List of …", as opposed to "List the …"
        if verb.rstrip(",") not in verbs or noun or re.search(r"\bin[,;] .*\bout\b", first):
            wrong.append(f"{path.relative_to(ROOT)}: {first}")
    assert len(lines) > 200
    assert wrong == []
    assert sorted(line for line in set(lines) if lines.count(line) > 1) == []


def _imports(path: Path, names: dict[str, Path]) -> set[str]:
    """The modules of ours that a module imports, anywhere in it, for types too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module)
    return found & names.keys()


def test_no_modules_import_each_other():
    """Neither in a circle of any length: what is in one cannot be understood, tested or moved alone."""
    names = {}
    for path in SOURCES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in ("pydelta", "catalog_sync", "jobs"):
            names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    assert len(names) > 200
    left = {name: _imports(path, names) - {name} for name, path in names.items()}
    while True:  # take away what imports nothing that is left; a circle stays
        done = {name for name, imports in left.items() if not imports & left.keys()}
        if not done:
            break
        left = {name: imports - done for name, imports in left.items() if name not in done}
    assert sorted(left) == []
