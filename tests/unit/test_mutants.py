"""The tool behind ``make test SUITE=mutants``: what it changes, leaves alone, and says of each change."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.mutation.areas import AREAS, WITH_SESSION
from tests.mutation.in_place import put
from tests.mutation.operators import marked, mutants_of
from tests.mutation.runner import importers_of
from tests.mutation.survivors import compare, read_kept

ROOT = Path(__file__).resolve().parents[2]


def changes(source):
    """What becomes of what, in the order of the source."""
    return [mutant.name.split(" | ")[2] for mutant in mutants_of(source, "m")]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = a < b", ["a < b -> <=", "a < b -> >="]),
        ("x = a == b", ["a == b -> !="]),
        ("x = a not in b", ["a not in b -> in"]),
        ("x = a and b", ["a and b -> without part 1", "a and b -> without part 2"]),
        ("x = a | b", ["a ¦ b -> left side", "a ¦ b -> right side"]),
        ("x = not a", ["not a -> without its sign"]),
        ("x = a + b", ["a + b -> -"]),
        ("x = 7", ["7 -> 8", "7 -> 6"]),
        ("x = True", ["True -> False"]),
        ("x = 'min'", ["'min' -> 'min~'"]),
        ("x = a.strip('0')", ["a.strip('0') -> without .strip()", "'0' -> '~'"]),
        ("x = b if a else c", ["b if a else c -> always the first", "b if a else c -> always the second"]),
        ("x = a[b:]", ["b: -> without lower"]),
        ("x = sorted(a)", ["sorted(a) -> without sorted"]),
        ("x = min(a, b)", ["min(a, b) -> max"]),
        ("x = [a for a in b if a < c]", ["a < c -> True", "a < c -> False", "a < c -> <="]),
        ("if a == b:\n    f(c)", ["condition -> True", "condition -> False"]),
        ("if a and b:\n    f(c)", ["condition -> False", "a and b -> without part 1", "a and b -> without part 2"]),
        ("def f():\n    g(c)\n    return c", ["statement -> dropped"]),
        ("def f():\n    if a:\n        return b\n    return c", ["condition -> True", "condition -> False"]),
        ("def f() -> int | None:\n    return c", ["value -> None"]),
        ("for a in b:\n    g(a)\n    continue", ["statement -> dropped"] * 2 + ["continue -> break"]),
        ("def f():\n    try:\n        return a\n    except E:\n        return b",
         ["statement -> dropped", "except E -> raise on", "statement -> dropped"]),
        ("def f(a):\n    a.b = c", ["statement -> dropped"]),
    ],
)  # fmt: skip
def test_each_kind_of_change(source, found):
    assert changes(source) == found


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring 1."""',
        "import a.b as c",
        "__all__ = ['x']",
        "x: int",
        "assert a < 7, 'seven'",
        "x = f'{a + b} of 7'",
        "x = 'a text for people'",
        "x = E(hint='how')",
        "_LOG.info('x', extra={'a': 1})",
        "x = zip(a, b, strict=True)",
        "if TYPE_CHECKING:\n    import a",
        "T: TypeAlias = tuple[int, 7]",
    ],
)
def test_texts_for_people_and_declarations_are_left_alone(source):
    assert changes(source) == []


def test_an_error_is_raised_or_not_and_its_text_is_left_alone():
    source = "def f():\n    if a < b:\n        raise E(f'{a + 1}', 'x')"
    assert changes(source) == ["condition -> True", "condition -> False", "a < b -> <="]


def test_each_mutant_of_the_modules_is_another_program_and_has_a_name_of_its_own():
    for path in (*AREAS, *WITH_SESSION):
        source = (ROOT / path).read_text()
        found = mutants_of(source, path)
        assert len({mutant.name for mutant in found}) == len(found) > 10
        original = ast.unparse(ast.parse(source))
        for mutant in found[:: max(1, len(found) // 5)]:
            changed = mutant.source()
            assert changed != original
            compile(changed, path, "exec")
        assert found[0].source() == found[0].source()


REACHED = """
_SMALL = 5
_LARGE = _SMALL + 5
OPEN = 7

def f(a):
    if a < _SMALL:
        return a + _LARGE
    try:
        return g(
            a + 1)
    except E:
        return 3
"""


def test_a_mutant_runs_where_its_statement_does_or_those_that_use_its_constant():
    reach = {mutant.name: mutant.reach for mutant in mutants_of(REACHED, "m")}
    assert {name.partition(":")[2]: sorted(lines) for name, lines in reach.items() if lines is not None} == {
        " | _LARGE = _SMALL + 5 | 5 -> 6": [8],
        " | _LARGE = _SMALL + 5 | 5 -> 4": [8],
        " | _LARGE = _SMALL + 5 | _SMALL + 5 -> -": [8],
        "f | if a < _SMALL | condition -> True": [7],
        "f | if a < _SMALL | condition -> False": [7],
        "f | if a < _SMALL | a < _SMALL -> <=": [7],
        "f | return a + _LARGE | a + _LARGE -> -": [8],
        "f | return g(a + 1) | statement -> dropped": [10],
        "f | return g(a + 1) | a + 1 -> -": [10],
        "f | return g(a + 1) | 1 -> 2": [10],
        "f | return g(a + 1) | 1 -> 0": [10],
        "f | return 3 | except E -> raise on": [13],
        "f | return 3 | statement -> dropped": [13],
        "f | return 3 | 3 -> 4": [13],
        "f | return 3 | 3 -> 2": [13],
    }
    assert {name.split(" | ")[1] for name, lines in reach.items() if lines is None} == {"_SMALL = 5", "OPEN = 7"}


def test_the_marks_of_a_module_say_which_statements_ran():
    seen = []
    names = {"mark": seen.append, "E": ValueError, "g": lambda a: [][a]}
    exec(marked(REACHED.replace("E:", "IndexError:"), "mark"), names)
    assert (names["f"](1), seen) == (11, [7, 8])
    seen.clear()
    assert (names["f"](9), seen) == (3, [7, 9, 10, 13])


IN_USE = """
from functools import cache
_STEP = 1

class C:
    limit = 5

    @property
    def twice(self):
        return self.limit * 2

    def step(self, by=_STEP):
        return by + _STEP

def f(a):
    return C().step() + a

@cache
def g():
    return 1
"""


def test_a_module_that_is_in_use_does_what_another_text_of_it_says(tmp_path, monkeypatch):
    (tmp_path / "in_use.py").write_text(IN_USE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import in_use

    monkeypatch.setitem(sys.modules, "pydelta.user_of_in_use", SimpleNamespace(g=in_use.g, table={"f": in_use.f}))
    user, made = sys.modules["pydelta.user_of_in_use"], in_use.C()
    assert (user.table["f"](1), made.twice, made.step(3), user.g()) == (3, 10, 4, 1)
    changed = {
        "_STEP = 1": "_STEP = 10",
        "limit = 5": "limit = 6",
        "* 2": "* 3",
        "+ a": "+ a * 2",
        "return 1": "return 2",
    }
    text = IN_USE
    for old, new in changed.items():
        text = text.replace(old, new)
    put(in_use, text)
    assert (user.table["f"](1), made.twice, made.step(3), user.g()) == (22, 18, 13, 2)
    assert isinstance(made, in_use.C) and in_use.f is user.table["f"]
    put(in_use, IN_USE)
    assert (user.table["f"](1), made.twice, made.step(3), user.g()) == (3, 10, 4, 1)


def test_a_mutant_keeps_its_name_when_its_code_moves_or_is_laid_out_anew():
    before = "def f(a):\n    return a + 1 if a else 0"
    value = "(\n        a + 1  # one more\n        if a\n        else 0\n    )"
    after = f'"""A module."""\n\nX = 5\n\n\ndef f(\n    a,\n):\n    return {value}'
    names = [mutant.name for mutant in mutants_of(after, "m")]
    assert [mutant.name for mutant in mutants_of(before, "m")] == names[2:]
    assert mutants_of(after, "m")[2].line == 9


def test_two_equal_places_have_two_names():
    assert changes("x = f(7, 7)") == ["7 -> 8", "7 -> 6", "7 -> 8 #2", "7 -> 6 #2"]


def test_a_kept_line_names_a_mutant_of_today_and_says_why():
    names = {mutant.name for path in (*AREAS, *WITH_SESSION) for mutant in mutants_of((ROOT / path).read_text(), path)}
    kept = read_kept()
    assert sorted(set(kept) - names) == []
    assert [name for name, reason in kept.items() if len(reason.split()) < 4] == []


def test_a_new_survivor_fails_and_so_does_a_line_whose_mutant_is_noticed():
    kept = {"m.py:f | x | 1 -> 2": "why", "n.py:g | y | 3 -> 4": "why"}
    assert compare(["m.py:f | x | 1 -> 2"], kept, ["m.py"]) == ([], [])
    assert compare(["m.py:f | x | 1 -> 0"], kept, ["m.py"]) == (["m.py:f | x | 1 -> 0"], ["m.py:f | x | 1 -> 2"])
    assert compare([], kept, ["n.py"]) == ([], ["n.py:g | y | 3 -> 4"])


@pytest.mark.parametrize("text", ["m.py:f | x | 1 -> 2", "m.py:f | x | 1 -> 2 || ", "a || b\na || c"])
def test_a_kept_line_without_a_reason_or_twice_there_is_refused(tmp_path, text):
    (tmp_path / "kept.txt").write_text(f"# a comment\n\n{text}\n")
    with pytest.raises(ValueError, match="reason"):
        read_kept(tmp_path / "kept.txt")


def test_what_imports_a_module_as_it_is_loaded_does_so_by_way_of_others_and_of_its_packages(tmp_path):
    texts = {
        "p": "",
        "p.bitmaps": "import struct",
        "p.vectors": "from p.bitmaps import decode",
        "p.files": "import p.vectors as v",
        "p.whole": "from p import bitmaps",
        "p.later": "def f():\n    from p import bitmaps",
        "p.typed": "if TYPE_CHECKING:\n    from p.bitmaps import B",
        "p.other": "from p.later import f",
        "q": "import p.files",
        "q.inner": "import json",
        "lazy": "def __getattr__(name): ...",
        "lazy.one": "import p.bitmaps",
        "lazy.two": "",
        "asks": "from lazy import One",
        "named": "from lazy import two",
    }
    files = {}
    for name, text in texts.items():
        files[name] = tmp_path / f"{name}.py"
        files[name].write_text(text)
    assert importers_of("p.bitmaps", files) == {
        "p.bitmaps",
        "p.vectors",
        "p.files",
        "p.whole",
        "q",
        "q.inner",
        "lazy.one",
        "asks",
    }


MODULE = """
def total(values):
    at, found = 0, 0
    while at < len(values):
        found += values[at]
        at += 1
    return found or 0
"""
TEST = """
import sums

def test_two():
    assert sums.total([1, 2]) == 3

def test_none():
    assert sums.total([]) == 0
"""
SCRIPT = """
import json, sys
from pathlib import Path
import pytest
from tests.mutation.operators import mutants_of
from tests.mutation.runner import Runner, copy_tree
root, tree, scratch = map(Path, sys.argv[1:])
copy_tree(root, tree)
runner = Runner(tree, "sums.py", ["test_sums.py"], scratch, options=("-p", "no:cacheprovider"), spare=1)
first = runner.baseline()
found = mutants_of((tree / "sums.py").read_text(), "sums.py")
three = ("found += values[at] | + -> -", "found or 0 -> without part 2", "at += 1 | statement -> dropped")
chosen = [(mutant.name, mutant.source) for mutant in found if mutant.name.endswith(three)]
outcomes = {name: (outcome.survived, outcome.by) for name, outcome in runner.run(chosen)}
print(json.dumps([first.survived, outcomes, sorted(path.name for path in scratch.iterdir())]))
"""


def test_mutants_are_noticed_survive_or_are_stopped_and_the_working_tree_stays_as_it_is(tmp_path):
    root, tree, scratch = (tmp_path / name for name in ("root", "tree", "scratch"))
    for folder in (root, scratch):
        folder.mkdir()
    (root / "sums.py").write_text(MODULE)
    (root / "test_sums.py").write_text(TEST)
    (root / "ignored.txt").write_text("x")
    (root / ".gitignore").write_text("ignored.txt\n__pycache__\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    command = [sys.executable, "-c", SCRIPT, root, tree, scratch]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    passed, outcomes, left = json.loads(done.stdout)
    assert (passed, left) == (True, [])
    assert {name.split(" | ")[1]: outcome for name, outcome in outcomes.items()} == {
        "found += values[at]": [False, "test_sums.py::test_two"],
        "return found or 0": [True, ""],
        "at += 1": [False, "signal 9"],  # it loops
    }
    assert (root / "sums.py").read_text() == MODULE
    assert sorted(path.name for path in tree.iterdir() if path.is_file()) == [".gitignore", "sums.py", "test_sums.py"]
