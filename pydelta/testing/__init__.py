"""Provide test tools for the engine and its users: faulty stores and deterministic interleavings.

::

    CountingStore(inner)         records calls and the number of bytes read
    FaultyStore(inner, Fault…)   fails, loses the reply, or dies before or after the n-th call
    lockstep                     stops two transactions at each phase, without sleeps
    TableBuilder(store)          writes a table commit by commit, without Spark
"""

from pydelta.testing.stores import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.tables import TableBuilder

__all__ = ["CountingStore", "Fault", "FaultKind", "FaultyStore", "SimulatedCrash", "TableBuilder"]
