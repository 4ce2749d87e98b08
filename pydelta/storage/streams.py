"""Collect writes into one object that appears as a whole at ``close``, for the writers of all stores."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["ObjectWriter"]


class ObjectWriter(io.RawIOBase):
    """A binary stream whose object appears as a whole at ``close``, or not at all.

    ``abort``, an exception inside ``with``, a failed ``close`` and a stream that is dropped without ``close`` all leave
    the store unchanged. A store implements ``_append``, ``_publish`` and ``_drop``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def write(self, data: Any, /) -> int:
        """Write all bytes of a buffer.

        Raises:
            StorageError: The store failed. The data is discarded at ``close`` or ``abort``.
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
        """Publish the object. A second call does nothing.

        Raises:
            StorageError: The object could not be published, and readers see nothing of it.
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
        """Discard the data and leave the store unchanged. Does nothing after ``close``."""
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
        # The inherited finalizer calls close, which would publish half an object after an error of its writer.
        if "_written" in self.__dict__ and not self.closed:
            self.abort()

    def _append(self, view: memoryview) -> None:
        raise NotImplementedError

    def _publish(self) -> None:
        raise NotImplementedError

    def _drop(self) -> None:
        raise NotImplementedError
