"""The classes of a remote table have the methods of the classic ones: names, parameters, texts, checks."""

from __future__ import annotations

import inspect
import pydoc

import pytest

from pydelta.api.python.builder import DeltaTableBuilder, IdentityGenerator, RemoteTableBuilder
from pydelta.api.python.merge import DeltaMergeBuilder, RemoteMergeBuilder
from pydelta.api.python.optimize import DeltaOptimizeBuilder, RemoteOptimizeBuilder
from pydelta.api.python.remote_calls import Chain
from pydelta.api.python.table import DeltaTable, RemoteDeltaTable
from pydelta.api.python.wire import Call, WireIdentity

TWINS = {
    DeltaTable: RemoteDeltaTable,
    DeltaMergeBuilder: RemoteMergeBuilder,
    DeltaOptimizeBuilder: RemoteOptimizeBuilder,
    DeltaTableBuilder: RemoteTableBuilder,
}
CLASSIC_ALONE = {
    "DeltaTable": {"toDFWithRowTracking", "create", "createIfNotExists", "replace", "createOrReplace"},
    "DeltaMergeBuilder": {"run"},
}
"""Builders are made by ``DeltaTable`` for either kind of session."""
OWN_TEXT = {"toDF"}


def methods(kind):
    return {name for name, it in inspect.getmembers(kind, inspect.isroutine) if not name.startswith("_")}


PAIRS = [(classic, twin, name) for classic, twin in TWINS.items() for name in sorted(methods(twin))]


@pytest.mark.parametrize(("classic", "twin"), TWINS.items(), ids=lambda kind: kind.__name__)
def test_a_remote_class_has_the_methods_of_its_classic_one(classic, twin):
    assert methods(classic) - methods(twin) == CLASSIC_ALONE.get(classic.__name__, set())
    assert methods(twin) <= methods(classic)


@pytest.mark.parametrize(("classic", "twin", "name"), PAIRS, ids=lambda it: getattr(it, "__name__", it))
def test_a_remote_method_has_the_signature_and_the_text_of_the_classic_one(classic, twin, name):
    ours, theirs = getattr(twin, name), getattr(classic, name)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert inspect.getdoc(ours)
    if name not in OWN_TEXT:
        assert inspect.getdoc(ours) == inspect.getdoc(theirs)
        assert pydoc.render_doc(ours, "%s").split("\n")[2:] == pydoc.render_doc(theirs, "%s").split("\n")[2:]


def test_a_call_is_sent_with_the_arguments_that_were_given():
    merge = (
        RemoteMergeBuilder(Chain(None)).whenMatchedUpdate(set={"a": "1"}).whenMatchedDelete("b").withSchemaEvolution()
    )
    assert merge.chain.calls == (
        Call("whenMatchedUpdate", (), {"set": {"a": "1"}}),
        Call("whenMatchedDelete", ("b",), {}),
        Call("withSchemaEvolution", (), {}),
    )


def test_a_builder_is_the_one_that_it_was_and_names_come_one_by_one():
    build = RemoteTableBuilder(None, "create", DeltaTable)
    assert build.addColumn("a", "long", generatedAlwaysAs=IdentityGenerator(2, 3)) is build
    build.partitionedBy(["a", "b"], "c").clusterBy()
    assert build.chain.calls == (
        Call("create"),
        Call("addColumn", ("a", "long"), {"generatedAlwaysAs": WireIdentity(2, 3)}),
        Call("partitionedBy", ("a", "b", "c"), {}),
        Call("clusterBy", (), {}),
    )


@pytest.mark.parametrize("kind", [DeltaTable, RemoteDeltaTable])
def test_python_refuses_arguments_that_a_method_does_not_have(kind):
    table = object.__new__(kind)
    with pytest.raises(TypeError, match=r"DeltaTable.alias\(\) missing 1 required positional argument: 'aliasName'"):
        table.alias()
    with pytest.raises(TypeError, match=r"DeltaTable.history\(\) got an unexpected keyword argument 'limits'"):
        table.history(limits=1)
