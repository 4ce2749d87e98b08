"""Upload a stream of bytes as one object: with one put if it is small, otherwise with a multipart upload."""

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
    """A writer that holds at most a few parts in memory, however large the object is.

    Args:
        store: The client's store.
        key: Full key in the bucket.
        to_error: Translates a client's exception into the error to raise.
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
    """A multipart upload in a thread that does not refer to the stream, so that an unused stream can be collected."""

    def __init__(self, store: Any, key: str) -> None:
        self.failure: Exception | None = None
        self._store = store
        self._key = key
        self._parts: queue.Queue[bytes | _DroppedError | None] = queue.Queue(maxsize=1)
        self._thread = threading.Thread(target=self._run, name="pydelta-upload", daemon=True)
        self._thread.start()

    def offer(self, part: bytes | _DroppedError | None) -> None:
        """Pass a part on as soon as there is room, or drop it if the upload has ended."""
        while self._thread.is_alive():
            try:
                self._parts.put(part, timeout=_POLL_S)
            except queue.Full:
                continue
            return

    def finish(self, last: _DroppedError | None) -> None:
        """Complete the upload, or have the client delete its parts, and wait for the end."""
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
        except Exception as error:  # noqa: BLE001 -- The stream raises it in the writing thread.
            self.failure = error

    def _taken(self) -> Iterator[bytes]:
        while True:
            part = self._parts.get()
            if isinstance(part, _DroppedError):
                raise part
            if part is None:
                return
            yield part
