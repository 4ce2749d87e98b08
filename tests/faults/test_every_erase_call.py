"""An erasure of which a storage call goes wrong: rows of others stay, and running it again ends it.

Of the calls, every twelfth is tried, beginning with another one for each kind of fault.
"""

from __future__ import annotations

import contextlib

import pytest

from pydelta.api.python.local import LocalTable
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.parquet_rows import parquet_rows
from tests.erased import names_of_key
from tests.unit.commands.erase.test_erase import KEY, erase
from tests.unit.commands.erase.test_erase_races import KINDS, copy_of, made, without_key

_APART = 12


@pytest.mark.parametrize("fault", list(FaultKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_a_call_of_an_erasure(kind, fault):
    template = made(kind)
    before = parquet_rows(DeltaLog(template).update(), template)
    counting = CountingStore(copy_of(template))
    assert erase(LocalTable(DeltaLog(counting))).is_proven
    fired = 0
    first = list(FaultKind).index(fault) * 2 + list(KINDS).index(kind)
    for number in range(first, len(counting.calls), _APART):
        store = copy_of(template)
        faulty = FaultyStore(store, Fault(kind=fault, call=number))
        proven = False
        with contextlib.suppress(SimulatedCrash, DeltaError):
            proven = erase(LocalTable(DeltaLog(faulty))).is_proven
        what = f"{fault.value} at call {number} of {len(counting.calls)}"
        fired += faulty.fired
        if proven:
            assert names_of_key(store, KEY) == [], what
        seen = parquet_rows(DeltaLog(store).update(), store)
        assert without_key(seen) == without_key(before), what
        assert erase(LocalTable(DeltaLog(store))).is_proven, what
        assert names_of_key(store, KEY) == [], what
        assert parquet_rows(DeltaLog(store).update(), store) == without_key(before), what
    assert fired >= 5
