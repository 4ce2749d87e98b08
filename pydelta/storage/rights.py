"""Ask a store whether a key may do what a job will need, before the job begins."""

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
        store: Of the place.
        what: The place is for, as a phrase: ``the stream's checkpoint``.
        options: Those that the store was opened with; of these the name of the key is shown, never its secret.

    Raises:
        StoragePermissionError: One of them is refused. Says which, to whom and where.
        StorageError: The store fails otherwise.
    """
    if isinstance(store, NearStore):  # a folder of this machine says at once what is wrong, and is not to be made here
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
