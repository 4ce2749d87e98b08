"""Collect writes into one whole object at ``close``: what every store's writer has in common."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["ObjectWriter"]


class ObjectWriter(io.RawIOBase):
    """A binary stream whose object appears whole at ``close``, or not at all.

    ``abort``, an exception inside ``with``, a failed ``close`` and a stream that is dropped without ``close`` all leave
    the store as it was. A store implements ``_append``, ``_publish`` and ``_drop``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written so far."""
        return self._written

    def write(self, data: Any, /) -> int:
        """Take all the bytes of a buffer.

        Raises:
            StorageError: The store failed; what was written is dropped at ``close`` or ``abort``.
            ValueError: The stream is closed.
        """
        if self.closed:
            raise ValueError("The stream is closed.")
        view = memoryview(data).cast("B")
        if view.nbytes:
            self._append(view)
            self._written += view.nbytes
        return view.nbytes

    def close(self) -> None:
        """Publish the object; a second call does nothing.

        Raises:
            StorageError: The object could not be published, and nothing of it is left that a reader could see.
        """
        if self.closed:
            return
        try:
            self._publish()
        except BaseException:
            self.abort()
            raise
        super().close()

    def abort(self) -> None:
        """Drop what was written; the store stays as it was. Does nothing after ``close``."""
        if self.closed:
            return
        super().close()
        self._drop()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # The inherited finalizer closes, which would publish half an object when its writer died of an error.
        if "_written" in self.__dict__ and not self.closed:
            self.abort()

    def _append(self, view: memoryview) -> None:
        raise NotImplementedError

    def _publish(self) -> None:
        raise NotImplementedError

    def _drop(self) -> None:
        raise NotImplementedError
