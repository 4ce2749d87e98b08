"""Check whether a key has the rights that a job will need, before the job begins."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Final

from pydelta.errors import StoragePermissionError
from pydelta.storage.interface import NearStore, Store

__all__ = ["require_rights"]

_CONTENT: Final = b"Written to learn what this key may do; it can be deleted."
_KEY_NAMES: Final = ("fs.s3a.access.key", "AWS_ACCESS_KEY_ID")


def require_rights(store: Store, what: str, options: Mapping[str, str]) -> None:
    """Write, read and delete an object below a store's root, and list it.

    Args:
        store: Store of the location.
        what: Purpose of the location, as a phrase: ``the stream's checkpoint``.
        options: Options of the store. The error shows the key's name in them, never its secret.

    Raises:
        StoragePermissionError: A right is missing. The error names the right, the key and the location.
        StorageError: The store failed for another reason.
    """
    if isinstance(store, NearStore):  # A local folder reports its errors itself, and must not be created here.
        return
    name = f".rights-{uuid.uuid4().hex}"
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("list", lambda: next(iter(store.list_from(name, prefix="")), None)),
        ("write", lambda: store.put(name, _CONTENT)),
        ("read", lambda: store.read(name)),
        ("delete", lambda: _delete(store, name)),
    )
    for right, ask in steps:
        try:
            ask()
        except StoragePermissionError as error:
            raise _refused(store, what, right, options) from error


def _delete(store: Store, name: str) -> None:
    report = store.delete_many([name])
    if report.denied:
        raise StoragePermissionError("; ".join(reason for _, reason in report.failed))


def _refused(store: Store, what: str, right: str, options: Mapping[str, str]) -> StoragePermissionError:
    key = next((options[name] for name in _KEY_NAMES if options.get(name)), None)
    return StoragePermissionError(
        f"{store.root} is {what}, but {f'the key {key}' if key else 'the key in use'} may not {right} objects there.",
        hint=f"Choose a place where it may write, read, list and delete, or give it the right to {right} there.",
    )
