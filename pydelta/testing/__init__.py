"""Provide what tests of the engine, ours and its users', need: faulty stores, deterministic interleavings.

::

    CountingStore(inner)         which calls were made, how many bytes were read
    FaultyStore(inner, Fault…)   fail, lose the reply, die before or after the n-th call
    lockstep                     two transactions stopped at each phase, no sleeps
    TableBuilder(store)          a table written commit by commit, without Spark
"""

from pydelta.testing.stores import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.tables import TableBuilder

__all__ = ["CountingStore", "Fault", "FaultKind", "FaultyStore", "SimulatedCrash", "TableBuilder"]
