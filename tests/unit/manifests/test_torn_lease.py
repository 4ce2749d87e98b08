"""The reply to the making of a lease is lost, and what is read back is a part: it is ours once it is read whole."""

from __future__ import annotations

import itertools

import pytest

from pydelta.manifests.lease import acquire
from pydelta.storage.memory import MemoryStore
from pydelta.testing import Fault, FaultKind, FaultyStore

_NAMES = itertools.count()


@pytest.mark.parametrize("kept", [lambda size: 0, lambda size: 1, lambda size: size // 2, lambda size: size - 1])
def test_a_torn_reading_of_our_own_lease_is_nobody_elses(kept):
    inner = MemoryStore(f"memory://tornlease{next(_NAMES)}/t")
    store = FaultyStore(
        inner,
        Fault(kind=FaultKind.LOSE_REPLY, call=0, verb="put_if_absent"),
        Fault(kind=FaultKind.TEAR, call=0, verb="read", times=3, kept=kept),
    )
    waited = []
    lease = acquire(store, lambda: 0, wait_seconds=5, done=lambda: False, sleep=waited.append)
    assert lease is not None
    assert lease.generation == 1
    assert [info.path for info in inner.list_all("_pydelta")] == [lease.path]
    assert len(waited) == 3
