"""Upload a stream of bytes as one object: one put for a small object, else a multipart upload meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError

from pydelta.storage.streams import ObjectWriter

__all__ = ["UploadWriter"]

PART_BYTES: Final = 5 * 1024 * 1024
_CONCURRENCY: Final = 2
_POLL_S: Final = 0.2


class _DroppedError(Exception):
    """Makes the client abort the upload and delete its parts."""


class UploadWriter(ObjectWriter):
    """Holds at most a few parts in memory, however large the object gets.

    Args:
        store: The client's store.
        key: Full key in the bucket.
        to_error: A client's exception -> the error to raise.
    """

    def __init__(self, store: Any, key: str, *, to_error: Callable[[Exception], Exception]) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._to_error = to_error
        self._buffer = bytearray()
        self._upload: _Upload | None = None

    def _append(self, view: memoryview) -> None:
        position = 0
        while position < view.nbytes:
            taken = min(PART_BYTES - len(self._buffer), view.nbytes - position)
            self._buffer += view[position : position + taken]
            position += taken
            if len(self._buffer) == PART_BYTES:
                self._send()

    def _publish(self) -> None:
        if self._upload is None:
            try:
                obstore.put(self._store, self._key, bytes(self._buffer), use_multipart=False)
            except (BaseError, OSError, ValueError) as error:
                raise self._to_error(error) from None
            return
        if self._buffer:
            self._send()
        self._upload.finish(None)
        if self._upload.failure is not None:
            raise self._to_error(self._upload.failure) from None

    def _drop(self) -> None:
        self._buffer.clear()
        if self._upload is not None:
            self._upload.finish(_DroppedError())

    def _send(self) -> None:
        if self._upload is None:
            self._upload = _Upload(self._store, self._key)
        self._upload.offer(bytes(self._buffer))
        self._buffer.clear()
        if self._upload.failure is not None:
            raise self._to_error(self._upload.failure) from None


class _Upload:
    """A multipart upload in a thread of its own, which knows nothing of the stream: a forgotten stream still dies."""

    def __init__(self, store: Any, key: str) -> None:
        self.failure: Exception | None = None
        self._store = store
        self._key = key
        self._parts: queue.Queue[bytes | _DroppedError | None] = queue.Queue(maxsize=1)
        self._thread = threading.Thread(target=self._run, name="pydelta-upload", daemon=True)
        self._thread.start()

    def offer(self, part: bytes | _DroppedError | None) -> None:
        """Hand over a part as soon as there is room; nothing, when the upload has ended."""
        while self._thread.is_alive():
            try:
                self._parts.put(part, timeout=_POLL_S)
            except queue.Full:
                continue
            return

    def finish(self, last: _DroppedError | None) -> None:
        """Complete the upload, or have the client delete its parts; returns when it is done."""
        self.offer(last)
        self._thread.join()

    def _run(self) -> None:
        try:
            obstore.put(
                self._store,
                self._key,
                self._taken(),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=_CONCURRENCY,
            )
        except _DroppedError:
            pass
        except Exception as error:  # noqa: BLE001 -- raised by the stream, in the thread that writes
            self.failure = error

    def _taken(self) -> Iterator[bytes]:
        while True:
            part = self._parts.get()
            if isinstance(part, _DroppedError):
                raise part
            if part is None:
                return
            yield part
