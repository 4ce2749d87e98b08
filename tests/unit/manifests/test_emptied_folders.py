"""On a disk a folder is what MSCK takes for a partition: it goes with its manifest, and never with one in it."""

from __future__ import annotations

import os

import pytest

from pydelta.log import DeltaLog
from pydelta.manifests import ManifestOptions, forget_emptied, publish
from pydelta.manifests.publish import _folders_of
from pydelta.storage import open_store
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.operations import add_file, append, create_table, delete_partition, table_metadata
from pydelta.testing.stores import _Wrapper
from pydelta.txn import Operation, start_transaction


@pytest.fixture
def root(tmp_path):
    return tmp_path / "table"


@pytest.fixture
def log(root):
    return DeltaLog(open_store(str(root)))


def folders(root):
    """What a metastore that lists the tree takes for partitions."""
    tree = root / "_symlink_format_manifest"
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_dir())


def test_the_folder_of_a_partition_without_files_goes(log, root):
    create_table(log, [add_file("a", [1]), add_file("b", [2])])
    publish(log)
    assert folders(root) == ["p=a", "p=b"]
    delete_partition("a").run(log)
    publish(log)
    assert folders(root) == ["p=b"]
    delete_partition("b").run(log)
    publish(log, ManifestOptions(keep_emptied=True))
    assert folders(root) == ["p=b"], "it has an empty manifest, for as long as a metastore has the partition"
    forget_emptied(log, ["p=b"])
    assert folders(root) == []
    append("b", [3]).run(log)
    publish(log)
    assert (root / "_symlink_format_manifest" / "p=b" / "manifest").read_text().count("\n") == 1


def test_of_nested_ones_those_go_in_which_nothing_is_left(log, root):
    names = ("p", "q")
    text = table_metadata().schema_string.replace('"x"', '"q"').replace('"long"', '"string"')
    txn = start_transaction(log)
    txn.update_metadata(table_metadata().replace(schema_string=text, partition_columns=names))
    adds = [
        add_file("a", [1]).replace(path=f"f{p}{q}", partition_values={"p": p, "q": q}) for p, q in ("a1", "a2", "b1")
    ]
    txn.commit(adds, Operation(name="CREATE"))
    publish(log)
    assert folders(root) == ["p=a", "p=a/q=1", "p=a/q=2", "p=b", "p=b/q=1"]
    txn = start_transaction(log)
    txn.read_whole_table()
    txn.commit([adds[0].remove(deletion_timestamp=1), adds[2].remove(deletion_timestamp=1)], Operation(name="DELETE"))
    publish(log)
    assert folders(root) == ["p=a", "p=a/q=2"]


def test_a_folder_into_which_somebody_puts_a_manifest_meanwhile_stays(log, root):
    create_table(log, [add_file("a", [1]), add_file("b", [2])])
    publish(log)
    delete_partition("a").run(log)

    class Meanwhile(_Wrapper):
        def _call(self, verb, path, run):
            if verb == "remove_directories":
                self._inner.put("_symlink_format_manifest/p=a/manifest", b"file:///theirs\n")
            return run()

    publish(DeltaLog(Meanwhile(log.store)))
    assert folders(root) == ["p=a", "p=b"]
    assert (root / "_symlink_format_manifest" / "p=a" / "manifest").read_bytes() == b"file:///theirs\n"


def test_a_store_without_folders_is_not_asked():
    store = MemoryStore("memory://emptied-folders/table")
    create_table(DeltaLog(store), [add_file("a", [1]), add_file("b", [2])])
    publish(DeltaLog(store))
    delete_partition("a").run(DeltaLog(store))
    counting = CountingStore(store)
    publish(DeltaLog(counting))
    assert "_symlink_format_manifest/p=a/manifest" in counting.paths("delete_many")[0]
    assert counting.paths("remove_directories") == []


def test_which_folders_paths_lead_through():
    versioned = "_pydelta/manifests/00000000000000000012"
    assert _folders_of([f"{versioned}/p=a/q=1/manifest", "_symlink_format_manifest/manifest"]) == [
        f"{versioned}/p=a/q=1",
        f"{versioned}/p=a",
    ]


@pytest.mark.parametrize("put", ["put", "put_if_absent", "open_writer"])
def test_a_folder_that_is_removed_while_something_is_put_there_is_made_again(root, monkeypatch, put):
    from pydelta.storage import local

    store, made = open_store(str(root)), local._make_folder
    left = [2]

    def and_gone(folder):
        made(folder)
        if left[0]:
            left[0] -= 1
            os.rmdir(folder)

    monkeypatch.setattr(local, "_make_folder", and_gone)
    if put == "open_writer":
        with store.open_writer("p=a/manifest") as stream:
            stream.write(b"text")
    else:
        getattr(store, put)("p=a/manifest", b"text")
    assert store.read("p=a/manifest") == b"text"
    assert left == [0]
