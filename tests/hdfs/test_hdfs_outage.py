"""A NameNode that is stopped and comes back: what is said, by whom, and what is there afterwards."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from jobs import inventory
from pydelta.api.cli.cli import main
from pydelta.errors import StorageError
from pydelta.log import DeltaLog
from pydelta.storage import open_store
from pydelta.testing.operations import add_file, append, create_table, rows_of

AT_ONCE = {"spark.hadoop.dfs.client.failover.max.attempts": "0"}


def test_a_stopped_name_node_is_told_by_us_and_the_table_goes_on_when_it_is_back(hdfs, root, tmp_path, capsys):
    log = DeltaLog(open_store(root, AT_ONCE))
    create_table(log, [add_file("a", [1])])
    with log.store.open_writer("p=a/open") as stream:
        stream.write(b"x")
        hdfs.end("namenode.NameNode")
        try:
            said = []
            for call in (
                lambda: log.store.read("x"),
                lambda: log.store.put("x", b"1"),
                lambda: log.store.put_if_absent("x", b"1"),
                lambda: list(log.store.list_all()),
                lambda: list(log.store.list_pages()),
                lambda: log.store.open_writer("x"),
                lambda: append("a", [2]).run(log),
                stream.close,
            ):
                with pytest.raises(StorageError) as caught:
                    call()
                assert caught.value.retryable
                assert "Check that the NameNode is reachable" in (caught.value.hint or "")
                said.append(str(caught.value))
            assert all(root in text and "\tat " not in text and "RPCError" not in text for text in said)
            report = log.store.delete_many(["x", "y"])
            assert (report.deleted, len(report.failed), report.retryable) == (0, 2, True)
            (listed,) = inventory.run(AT_ONCE, ["--source", root, "--destination", str(tmp_path)])
            assert (listed["error"], listed["exit_code"]) == ("DELTA_STORAGE_ERROR", 2)
            assert list(tmp_path.rglob("manifest*")) == []
            capsys.readouterr()
            option = [f"--option={name}={value}" for name, value in AT_ONCE.items()]
            with pytest.raises(SystemExit) as ended:
                main(["history", root, "--json", *option])
            out, err = capsys.readouterr()
            assert (ended.value.code, out) == (2, "")
            assert root in err and "Next: Check that the NameNode" in err and "Traceback" not in err
        finally:
            hdfs.start_name_node()
    append("a", [3]).run(log)  # by the same client
    again = DeltaLog(open_store(root))
    assert rows_of(again.update()) == Counter({("a", 1): 1, ("a", 3): 1})
    assert json.loads(again.store.read("_delta_log/00000000000000000001.json").split(b"\n")[0])
