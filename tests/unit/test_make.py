"""``make`` and ``scripts/lake``: few targets, one screen of help each, and every form that a page names exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("docs", "scripts", "tests", ".ci", "jobs", "pydelta", "catalog_sync", "benchmarks", "images", "compose")
_TEXTS = (".md", ".py", ".toml", ".yml", ".ipynb", ".sh", "")
TARGETS = tuple(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
RENAMED = tuple(
    name
    for line in re.findall(r"^[A-Z]+_TARGETS \+?:?= (.+)$", (ROOT / "scripts/renamed.mk").read_text(), re.MULTILINE)
    for name in line.split()
)
STAND_IN = r"""#!/bin/bash
echo {name}
printf '<%s>' "$@"
echo
env | grep -E "^(RAW_|SERVICE|PROFILES)" | sort
"""
HARD = """SELECT "a", `b`, '$5', $(touch made), '$$' FROM t WHERE x <> 'it''s; * ' -- \\n"""


def _run(*command, folder=ROOT, **env):
    """Run a command without the variables of a make that runs these tests."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"]} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def suites():
    code, _, said = _run("make", "-s", "test", "SUITE=unheard-of")
    assert (code, said.splitlines()[0][:34]) == (2, "There is no suite unheard-of. Next")
    return set(" ".join(said.split("one of: ")[1].split("make: ***")[0].split()).split())


def _verbs():
    code, said, _ = _run("scripts/lake")
    assert code == 0
    return set(re.findall(r"^  ([a-z][a-z-]*)", said, re.MULTILINE))


@pytest.fixture(scope="module")
def pages():
    """Return the project's texts by path, but for those that define the names."""
    listed = [path for folder in _FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in _TEXTS]
    listed += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "pyproject.toml")]
    left_out = {Path(__file__).resolve(), ROOT / "scripts/renamed.mk", ROOT / "scripts/lake"}
    files = [path for path in listed if path.is_file() and path not in left_out]
    texts = {str(path.relative_to(ROOT)): path.read_text(errors="replace") for path in files}
    upgrading = "docs/upgrading.md"  # its table of deprecated names has the former targets, and nothing else may
    texts[upgrading] = re.sub(r"^\| `make [a-z-]+` \| target \|.*\n", "", texts[upgrading], flags=re.MULTILINE)
    return texts


def test_there_are_few_targets_and_help_lists_them_all_on_one_screen():
    code, said, _ = _run("make", "help")
    assert code == 0
    lines = said.splitlines()
    assert sorted(re.findall(r"^  make ([a-z-]+) ", said, re.MULTILINE)) == sorted(TARGETS)
    assert len(TARGETS) == len(set(TARGETS)) <= 25
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert _run("make")[1] == said


def test_the_verbs_of_lake_are_listed_on_one_screen():
    code, said, _ = _run("scripts/lake", "help")
    assert code == 0
    assert len(said.splitlines()) <= 30
    assert max(map(len, said.splitlines())) <= 80
    assert _run("scripts/lake")[1] == said


def test_a_suite_that_is_not_there_is_refused_with_the_list(suites):
    assert {"selected", "fast", "servers", "whole", "peers", "programs", "fuzz", "stack-kafka"} <= suites
    scripts = {path.name.removeprefix("test-") for path in (ROOT / "scripts").glob("test-stack-*")}
    assert scripts == {name for name in suites if name.startswith("stack-")}
    for odd in ("it's", "$(touch made)", "fast whole"):
        code, _, said = _run("make", "-s", "test", f"SUITE={odd}")
        assert code == 2
        assert f"There is no suite {odd}. Next: make test SUITE=" in " ".join(said.split())


def test_each_suite_runs_something_of_its_own(suites):
    planned = {name: _run("make", "-n", "-o", ".venv/.dev", "test", f"SUITE={name}")[1] for name in suites}
    assert all(planned.values())
    assert len(set(planned.values())) == len(suites)
    assert planned["selected"] == _run("make", "-n", "-o", ".venv/.dev", "test")[1]


def test_each_make_form_that_a_page_names_exists(pages, suites):
    unknown = []
    guides = ("docs", "README", "CONTRIBUTING", "SECURITY")
    for path, text in pages.items():
        for named in re.findall(r"make (?:-s )?test SUITE=([a-z][a-z-]*)", text):
            if named not in suites:
                unknown.append(f"{path}: SUITE={named}")
        for named in re.findall(r"(?:`+|^)make (?:-s )?([a-z][a-z-]*)(?=[`\s])", text, re.MULTILINE):
            if named not in TARGETS and path.startswith(guides):
                unknown.append(f"{path}: make {named}")
    assert unknown == []


def test_no_text_names_a_former_target(pages):
    former = re.compile(rf"\bmake (?:-s )?({'|'.join(sorted(RENAMED, key=len, reverse=True))})(?![\w-])")
    found = [f"{path}: make {named[1]}" for path, text in pages.items() for named in former.finditer(text)]
    assert found == []


def test_each_verb_that_a_page_names_exists(pages):
    verbs = _verbs()
    named = {(path, verb) for path, text in pages.items() for verb in re.findall(r"scripts/lake ([a-z][a-z-]+)", text)}
    unknown = {(path, verb) for path, verb in named if verb not in verbs}
    assert unknown == set()
    assert {verb for _, verb in named} > {"cluster-sql", "presto", "policies", "archive", "sbom", "inventory", "run"}


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("statsu", "status"), ("clustersql", "cluster-sql"), ("policy", "policies"), ("pispark", "pyspark"), ("u", "up")],
)
def test_a_verb_that_is_not_there_is_refused_with_the_nearest(given, nearest):
    code, said, refused = _run("scripts/lake", given)
    assert (code, said) == (1, "")
    assert refused.startswith(f"scripts/lake has no verb {given}. The nearest is {nearest}. Next: scripts/lake lists")


@pytest.mark.parametrize("given", ["up kafka", "put a b c", "trino a b", "run", "archive a b", "verify x=1"])
def test_arguments_that_a_verb_does_not_take_are_refused_with_its_form(given):
    code, said, refused = _run("scripts/lake", *given.split())
    assert (code, said) == (1, "")
    verb = given.split()[0]
    assert re.search(rf"Next: scripts/lake {verb}( |$)", refused)


@pytest.fixture
def tried(tmp_path):
    """A copy of the Makefile and scripts, in which each script prints its name, its arguments and what it was given."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("lake", "suites.mk", "packages.mk", "renamed.mk"):
        shutil.copy(ROOT / "scripts" / name, scripts)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for path in (ROOT / "scripts").iterdir():
        stand_in = scripts / path.name
        if not stand_in.exists() and path.is_file():
            stand_in.write_text(STAND_IN.format(name=path.name))
            stand_in.chmod(0o755)
    os.utime(scripts / "install-peer", (0, 0))
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/bash\nprintf '<%s>' python \"$@\"\n")
    python.chmod(0o755)
    for folder in (".venv", ".venv-peer", "tests/peers"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))  # older than the stamps below, so that nothing is installed
    for stamp in (".venv/.run", ".venv/.demo", ".venv/.dev", ".venv/.bench", ".venv-peer/.installed"):
        (tmp_path / stamp).touch()
    return lambda *command, **env: _run(*command, folder=tmp_path, **env)


@pytest.mark.parametrize("name", RENAMED)
def test_a_former_target_says_its_new_form_and_runs_it(tried, name):
    given = [] if name in ("sbom", "archive") else [f"SQL={HARD}", "ARGS=--one two"]
    code, ran, said = tried("make", "-s", name, *given)
    assert code == 0, said
    (line,) = said.splitlines()
    new = re.fullmatch(rf"make {name} is now (make (?:test|bench) .+|scripts/lake .+)", line)[1]
    if not new.startswith("make"):
        given = []
        ran_new = tried(*new.split(), RAW_SQL=HARD if name not in ("sbom", "archive") else "", RAW_ARGS="--one two")[1]
        assert ran.splitlines()[:2] == ran_new.splitlines()[:2]
        assert f"RAW_SQL={HARD}" in ran or name in ("sbom", "archive")
    else:
        assert ran == tried("make", "-s", *new.split()[1:], *given)[1]


def test_arguments_of_lake_arrive_as_typed(tried):
    code, ran, _ = tried("scripts/lake", "cluster-sql", HARD, "--format", "a  b", "")
    assert code == 0
    assert ran.splitlines()[:2] == ["stack-cluster-sql", "<--format><a  b><>"]
    assert f"RAW_SQL={HARD}\n" in ran
    for verb in ("trino", "presto"):
        assert f"RAW_SQL={HARD}\n" in tried("scripts/lake", verb, HARD)[1]
        assert f"RAW_SQL={HARD}\n" in tried("scripts/lake", verb, SQL=HARD)[1]
    ran = tried("scripts/lake", "submit", "delete", "--where", HARD)[1].splitlines()
    assert ran[:2] == ["stack-submit", f"<--where><{HARD}>"]
    assert "RAW_JOB=delete" in ran
    assert tried("scripts/lake", "run", "pydelta", HARD)[1].splitlines()[:2] == ["stack-run", f"<pydelta><{HARD}>"]
    assert "PROFILES=kafka,presto" in tried("scripts/lake", "up", "PROFILES=kafka,presto")[1]
    ran = tried("scripts/lake", "logs", "trino", "-f")[1].splitlines()
    assert (ran[:2], "SERVICE=trino" in ran) == (["stack-logs", "<-f>"], True)
    assert "RAW_USERS=trino presto" in tried("scripts/lake", "policies", "trino", "presto")[1]
    ran = tried("scripts/lake", "put", "a b.csv", "s3a://work/$HOME")[1].splitlines()
    assert {"RAW_FILE=a b.csv", "RAW_TO=s3a://work/$HOME"} <= set(ran)
    assert "RAW_FILE=b.tar.gz" in tried("scripts/lake", "restore", "b.tar.gz")[1]
