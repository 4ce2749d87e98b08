"""Each tutorial is run as it stands, and prints what its page shows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from run_in_stack import renamed
from tutorial_pages import FOLDER, TUTORIALS, Runner, blocks_of, commands_of, in_shell, matches

ROOT = TUTORIALS.parents[1]
WITHOUT_JVM = ("delete-a-customer", "run-without-spark")
IN_SPARK = ("load-a-csv", "move-from-the-jvm-engine")
IN_STACK = ("query-from-trino", "stream-from-kafka")
"""Run by ``scripts/test-stack-tutorials`` in the running stack."""


def page_of(name: str) -> str:
    return (TUTORIALS / f"{name}.md").read_text()


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """Runs pages in a folder of the test, with the ``pydelta`` of this interpreter in the path."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("COLUMNS", "120")
    return Runner(tmp_path, in_shell(tmp_path))


@pytest.mark.parametrize("name", WITHOUT_JVM)
def test_a_tutorial_without_a_jvm_prints_what_it_shows(name, runner):
    assert runner.run(page_of(name)) > 4


@pytest.mark.spark
@pytest.mark.parametrize("name", IN_SPARK)
def test_a_tutorial_in_spark_prints_what_it_shows(name, runner, spark):
    assert runner.run(page_of(name)) > 2


def test_every_tutorial_is_run_by_a_test():
    there = {path.stem for path in TUTORIALS.glob("*.md")}
    assert there == {*WITHOUT_JVM, *IN_SPARK, *IN_STACK}
    script = (ROOT / "scripts/test-stack-tutorials").read_text()
    assert [name for name in IN_STACK if name not in script] == []
    assert "scripts/test-stack-tutorials" in (ROOT / "scripts/test-stack").read_text()


def test_every_tutorial_is_on_the_start_page():
    links = set(re.findall(r"\(tutorials/([\w-]+)\.md\)", (ROOT / "docs/index.md").read_text()))
    assert links == {path.stem for path in TUTORIALS.glob("*.md")}


@pytest.mark.parametrize("name", [*WITHOUT_JVM, *IN_SPARK, *IN_STACK])
def test_files_of_a_tutorial_are_in_its_folder(name):
    page = page_of(name)
    assert [block.file for block in blocks_of(page) if block.file and not block.file.startswith(f"{FOLDER}/")] == []
    assert set(re.findall(r"/(?:home|root|Users)/", page)) == set()


def test_every_make_target_of_a_tutorial_is_there():
    """The tutorials of the stack run there; that their targets and jobs have these names is seen here."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    jobs = {path.stem for path in (ROOT / "jobs").glob("*.py")}
    used = 0
    for name in IN_STACK:
        for block in blocks_of(page_of(name)):
            for command in commands_of(block) if block.kind == "console" else ():
                if found := re.match(r"make ([a-z-]+)(?: JOB=(\S+))?", command.line):
                    used += 1
                    assert found[1] in targets, command.line
                    assert found[2] is None or found[2] in jobs or found[2].startswith(FOLDER), command.line
    assert used >= 7


@pytest.mark.parametrize("name", IN_STACK)
def test_a_tutorial_in_the_stack_touches_no_table_of_somebody_who_followed_it(name):
    page = renamed(page_of(name), "hdfs://namenode:8020/", "word-1")
    assert "lake.stack_tests_tutorial_" in page
    assert re.findall(r"[._]symlink\.tutorial_|lake\.tutorial_|s3a://|--topic tutorial", page) == []


def test_output_that_differs_fails_the_page(tmp_path):
    runner = Runner(tmp_path, in_shell(tmp_path))
    assert runner.run("```console\n$ echo a b\na …\n$ echo Error: x; exit 3\nError: x\n```\n") == 2
    for wrong in (
        "```console\n$ echo a\nb\n```\n",
        "```console\n$ exit 3\n```\n",
        "```console\n$ true\nError: no\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```sh\ntrue\n```\n",
    ):
        with pytest.raises(AssertionError):
            runner.run(wrong)


def test_an_ellipsis_stands_for_text_on_one_line():
    assert matches("a … c\n", "a b c  \n")
    assert not matches("a … c", "a b\n c")
    assert matches("…\n", "two\nlines\n")
