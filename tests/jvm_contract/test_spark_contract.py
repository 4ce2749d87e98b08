"""Spark has what the engine uses of its JVM classes, and a version that lacks something is noticed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import pytest

from jvm_contract.calls import ROOT, Use
from jvm_contract.checking import Difference, Lack, compared, differences, lacks
from jvm_contract.classes import classes_of
from jvm_contract.compiling import compile_errors
from jvm_contract.register import ANY, MANY, PATH, Member, member_of, read, uses, written
from jvm_contract.sources import implementations
from jvm_contract.watching import Watch, complaint

SPARK = importlib.util.find_spec("pyspark")
JARS = Path(SPARK.submodule_search_locations[0]) / "jars"
FILTER = "org.apache.spark.sql.catalyst.plans.logical.Filter"


@pytest.mark.parametrize(
    ("text", "member"),
    [
        (
            "public static scala.Option scala.Option.apply(java.lang.Object)",
            ("scala.Option", "apply", ("java.lang.Object",)),
        ),
        ("public a.B(int,java.lang.String[])", ("a.B", "new", ("int", "java.lang.String[]"))),
        ("a.B()", ("a.B", "new", ())),
        ("public abstract boolean a.B$C.$plus(a.B) throws a.E", ("a.B$C", "$plus", ("a.B",))),
        ("default java.lang.Object a.B.c()", ("a.B", "c", ())),
        ("field a.B$.MODULE$", ("a.B$", "MODULE$", None)),
        ("any a.B.isSet", ("a.B", "isSet", ANY)),
    ],
)
def test_what_java_says_of_a_member(text, member):
    assert member_of(text) == Member(*member)


def test_a_register_is_read_as_it_was_written():
    register = {
        Member("a.B", "new", ("int", "a.C")): frozenset({"x/y", "x/z"}),
        Member("a.B", "c", ()): frozenset({"x/y"}),
        Member("a.B$", "MODULE$", None): frozenset({"x/y"}),
        Member("a.B", "isSet", ANY): frozenset({"x/y"}),
    }
    assert read(written(register, ["Filter", "a.B"])) == (register, ["Filter", "a.B"])
    expected = {("x/y", "new", 2), ("x/z", "new", 2), ("x/y", "c", 0), ("x/y", "MODULE$", 0), ("x/y", "isSet", MANY)}
    assert uses(register) == {Use(*use) for use in expected}


def test_a_known_difference_is_expected_and_must_be_there():
    known = [Difference(("4.1", "4.2.0"), ("a.B c()",), "not used there")]
    lack, other = Lack("a.B c()", "x"), Lack("a.B d()", "y", ["d(int)"])
    assert compared([lack], known, "4.1.3") == []
    assert compared([lack, other], known, "4.2.0") == ["  a.B d()\n    used by: y\n    it has: d(int)"]
    assert len(compared([lack], known, "4.2.1")) == 1
    (stale,) = compared([], known, "4.1.0")
    assert "is there, although" in stale
    assert compared([lack], [Difference(("*",), ("a.B c()",), "never called")], "5.0.0") == []


def test_a_call_that_is_not_registered_is_noticed():
    watch = Watch(frozenset({Use("x", "c", 1)}))
    watch.see(Use("x", "c", 1), None, None, ())
    assert watch.unknown == set()
    Watch(frozenset({Use("x", "c", MANY)})).see(Use("x", "c", 3), None, None, ())
    watch.see(Use("x", "c$default$2", 0), None, None, ())
    watch.see(Use("x", "toString", 0), None, None, ())
    assert watch.unknown == set()
    watch.see(Use("x", "c", 2), None, None, ())
    assert "x: c with 2 arguments" in complaint(watch.unknown)


def test_java_that_a_version_does_not_have_the_classes_for_is_noticed(tmp_path):
    for source in resources.files("pydelta.engines.spark").joinpath("java").iterdir():
        (tmp_path / source.name).write_text(source.read_text().replace("ArrowBatchStreamWriter", "NoSuchWriter"))
    (error,) = compile_errors(JARS, tmp_path)
    assert "NoSuchWriter" in error
    assert compile_errors(JARS) == []


def test_the_register_names_modules_and_versions_that_there_are():
    register, _ = read(PATH.read_text())
    modules = frozenset().union(*register.values())
    assert len(modules) > 50
    assert [module for module in sorted(modules) if not (ROOT / f"{module}.py").is_file()] == []
    from pydelta.engines.spark_versions import SPARKS

    supported = {f"{major}.{minor}" for major, minor in SPARKS}
    for row in differences():
        assert {".".join(version.split(".")[:2]) for version in row.versions} <= {*supported, "*"}, row
        assert len(row.reason) > 20, row


@pytest.fixture(scope="module")
def classes():
    with classes_of(JARS) as found:
        yield found


def test_each_planted_lack_is_found(classes):
    register = {
        Member(FILTER, "condition", ()): frozenset({"x"}),
        Member(FILTER, "conditions", ()): frozenset({"renamed method"}),
        Member(FILTER, "copy", ("int",)): frozenset({"another parameter"}),
        Member(FILTER.replace("Filter", "Filters"), "condition", ()): frozenset({"renamed class"}),
        Member(FILTER, "new", ("int",)): frozenset({"another constructor"}),
        Member("org.apache.spark.unsafe.Platform", "BYTE_ARRAY_OFFSETS", None): frozenset({"renamed field"}),
        Member("org.apache.spark.unsafe.bitset.BitSetMethods", "isSets", ANY): frozenset({"renamed static"}),
        Member("org.apache.spark.unsafe.bitset.BitSetMethods", "isSet", ANY): frozenset({"x"}),
        Member(FILTER, "output", ()): frozenset({"inherited"}),
    }
    names = ["Filter", FILTER, "FilterExecutioner", FILTER + "er"]
    index = "org.apache.spark.sql.execution.datasources.FileIndex"
    implemented = {index: {"x.Index": frozenset({"rootPaths"})}, "org.apache.spark.Gone": {"x.Y": frozenset()}}
    found = lacks(classes, register, names, implemented)
    users = {lack.used_by for lack in found}
    expected = {"renamed method", "another parameter", "renamed class", "another constructor", "renamed field"}
    assert users >= expected | {"renamed static", "x.Y"}
    assert "x" not in users
    assert "inherited" not in users
    whats = {lack.what for lack in found}
    assert {"class FilterExecutioner", f"class {FILTER}er", "interface org.apache.spark.Gone"} <= whats
    assert "x.Index listFiles" in whats
    assert not {"class Filter", f"class {FILTER}", "x.Index rootPaths"} & whats


def test_what_is_implemented_for_the_jvm_is_found():
    found = implementations()
    assert "org.apache.spark.sql.execution.streaming.Source" in found
    assert len(found) > 8


def checked(jars):
    return subprocess.run(
        [sys.executable, "-m", "jvm_contract", "check", "--jars", str(jars)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_the_installed_spark_has_all_that_the_engine_uses():
    result = checked(JARS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "all are there" in result.stdout


def test_a_spark_whose_class_was_renamed_is_refused(tmp_path):
    for jar in JARS.glob("*.jar"):
        if jar.name.startswith("spark-catalyst_"):
            _renamed(jar, tmp_path / jar.name, f"{FILTER.replace('.', '/')}.class")
        else:
            (tmp_path / jar.name).symlink_to(jar)
    result = checked(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{FILTER} new(" in result.stdout
    assert "used by: pydelta/engines/spark/" in result.stdout


def _renamed(jar, copy, name):
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as new:
        assert name in old.namelist()
        for item in old.infolist():
            if item.filename != name:
                new.writestr(item, old.read(item))
