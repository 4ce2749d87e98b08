"""Changes that a metastore does and does not answer in time: looked for, never sent twice; patience by their size."""

from __future__ import annotations

import uuid

import pytest
from thrift.transport.TTransport import TTransportException

from catalog_sync.errors import MetastoreUnavailableError, TooLongToWaitError
from catalog_sync.inspect import verify_sync
from catalog_sync.names import TableName
from catalog_sync.native import sync_native
from catalog_sync.sync import sync_table
from catalog_sync.thrift.client import BATCH
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.commands.alter.requests import AddColumns, NewColumn
from pydelta.log import DeltaLog
from pydelta.protocol.types import PrimitiveType
from pydelta.settings.clock import Deadline
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import alter_table
from pydelta.testing.operations import add_file, append, create_table, delete_partition

TWIN = TableName(database="lake_symlink", name="orders")
NATIVE = TableName(database="lake", name="orders")
READS = ("get_table_req", "get_database", "get_partition_names", "get_partitions_by_names")
LATE = TTransportException(type=TTransportException.TIMED_OUT, message="read timeout")
BROKEN = TTransportException(type=TTransportException.END_OF_FILE, message="closed")


class _Silent(MemoryMetastore):
    """Does not answer the change of some number, which it has done or has not."""

    def __init__(self, content, at, error, *, done):
        super().__init__(content)
        self.at, self.error, self.done = at, error, done
        self.sent, self.patience = [], {}
        self._sleep = lambda seconds: None

    def _connected(self):
        return _Calls(self)


class _Calls:
    def __init__(self, metastore):
        self._metastore = metastore

    def __getattr__(self, verb):
        whole = self._metastore

        def call(*arguments):
            whole.patience[verb] = whole._answer_by.seconds
            if verb in READS:
                return getattr(whole, verb)(*arguments)
            whole.sent.append(verb)
            if len(whole.sent) - 1 != whole.at:
                return getattr(whole, verb)(*arguments)
            if whole.done:
                getattr(whole, verb)(*arguments)
            raise whole.error

        return call


def new_log():
    store = MemoryStore(f"memory://unanswered-{uuid.uuid4()}/orders")
    return DeltaLog.for_table(store.root, store=store)


def change(log):
    """All that a sync of a twin tells a metastore: other columns, a partition more, one less."""
    alter_table(log, AddColumns(columns=(NewColumn(path=("y",), data_type=PrimitiveType("date")),)))
    append("new", [1]).run(log)
    delete_partition("a").run(log)


def both(log, metastore):
    sync_table(log, metastore, TWIN)
    sync_native(metastore, NATIVE, log.update())


@pytest.fixture
def life():
    """A table that was synced and changed: what each metastore of a test starts with."""

    def begin(fresh):
        log, metastore = new_log(), MemoryMetastore()
        create_table(log, [add_file("a", [1]), add_file("b", [1])])
        if not fresh:
            both(log, metastore)
            change(log)
        counted = _Silent(MemoryMetastore(), -1, LATE, done=True)
        counted.entries, counted.parts = dict(metastore.entries), {key: dict(p) for key, p in metastore.parts.items()}
        both(log, counted)
        return log, metastore, counted.sent

    return begin


@pytest.mark.parametrize("error", [LATE, BROKEN, TimeoutError("no answer in time")], ids=["late", "broken", "over"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_change_that_was_done_is_not_sent_again(life, fresh, error):
    at = 0
    while True:
        log, metastore, changes = life(fresh)
        if at >= len(changes):
            break
        silent = _Silent(metastore, at, error, done=True)
        both(log, silent)
        assert silent.sent == changes, f"{changes[at]} once, as all others"
        assert verify_sync(log, metastore, TWIN, files=0).ok
        at += 1
    assert at >= 4


@pytest.mark.parametrize("fresh", [True, False])
def test_a_change_that_was_not_answered_in_time_may_still_be_under_way(life, fresh):
    at = 0
    while True:
        log, metastore, changes = life(fresh)
        if at >= len(changes):
            break
        silent = _Silent(metastore, at, LATE, done=False)
        with pytest.raises(MetastoreUnavailableError, match=f"has not answered {changes[at]} within") as caught:
            both(log, silent)
        assert caught.value.exit_code == 2
        assert silent.sent == changes[: at + 1], "not sent again, and nothing after it"
        both(log, metastore)
        assert verify_sync(log, metastore, TWIN, files=0).ok
        at += 1
    assert at >= 4


def test_a_change_that_was_lost_with_its_connection_is_sent_again(life):
    at = 0
    while True:
        log, metastore, changes = life(False)
        if at >= len(changes):
            break
        silent = _Silent(metastore, at, BROKEN, done=False)
        both(log, silent)
        assert silent.sent == [*changes[: at + 1], *changes[at:]]
        assert verify_sync(log, metastore, TWIN, files=0).ok
        at += 1
    assert at >= 4


def test_patience_grows_with_the_number_of_partitions():
    log, metastore = new_log(), _Silent(MemoryMetastore(), -1, LATE, done=True)
    create_table(log, [add_file(f"p{number}", [1]) for number in range(3 * BATCH)])
    sync_table(log, metastore, TWIN)
    assert metastore.patience["add_partitions_req"] == 2 * metastore.address.timeout_seconds
    alter_table(log, AddColumns(columns=(NewColumn(path=("y",), data_type=PrimitiveType("date")),)))
    metastore.patience.clear()
    seen = []
    metastore._alter_table_with_environment_context = lambda *arguments: (
        seen.append((arguments[3].properties.get("CASCADE"), metastore._answer_by.seconds))
        or MemoryMetastore._alter_table_with_environment_context(metastore, *arguments)
    )
    sync_table(log, metastore, TWIN)
    assert seen[0] == ("true", 4 * metastore.address.timeout_seconds)


def test_who_may_not_wait_does_not_begin_what_takes_thousands_of_partitions():
    log, metastore = new_log(), MemoryMetastore()
    create_table(log, [add_file(f"p{number}", [1]) for number in range(BATCH + 1)])
    sync_table(log, metastore, TWIN)
    alter_table(log, AddColumns(columns=(NewColumn(path=("y",), data_type=PrimitiveType("date")),)))
    hurried = _Silent(metastore, -1, LATE, done=True)
    hurried.deadline = Deadline(10)
    with pytest.raises(TooLongToWaitError, match="1,001 partitions") as caught:
        sync_table(log, hurried, TWIN)
    assert (hurried.sent, caught.value.retryable) == ([], True)
    sync_table(log, metastore, TWIN)
    assert verify_sync(log, metastore, TWIN, files=0).ok
