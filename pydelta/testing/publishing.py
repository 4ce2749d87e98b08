"""Run GENERATE as an operation that stops between its steps, for tests of interleavings and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydelta.errors import UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests import ManifestOptions, ManifestsBusyError, publish
from pydelta.storage import Store
from pydelta.testing.operations import LogOperation
from pydelta.testing.stores import _Wrapper
from pydelta.txn.commit import SILENT, Observer

__all__ = ["ObservedStore", "generate"]


class ObservedStore(_Wrapper):
    """Notifies an observer before each call on a lease or on the published state.

    Several threads write the manifests themselves between these calls.
    """

    def __init__(self, inner: Store, observer: Observer) -> None:
        super().__init__(inner)
        self._observer = observer

    def _call(self, verb: str, path: str, run: Callable[[], Any]) -> Any:
        if path.startswith(("_pydelta/manifest", "_pydelta/leases")) and not path.startswith("_pydelta/manifests/"):
            self._observer.at(f"{verb} {path}")
        return run()


def generate() -> LogOperation:
    """Publish the newest version's manifests, unless another publisher is busy or deletion vectors forbid it."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> None:
        try:
            publish(DeltaLog(ObservedStore(log.store, observer)), ManifestOptions(wait_seconds=0))
        except (ManifestsBusyError, UnsupportedFeatureError):
            return

    return LogOperation(name="generate", run=run, model=lambda rows: rows)
