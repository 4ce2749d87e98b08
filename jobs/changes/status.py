"""Keep the state of each table that is followed, and answer with it over HTTP: 200 while all is right, else 503."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Board", "serve"]


class Board:
    """The state of each table. Threads write to it, and requests read it.

    Args:
        tables: Names of the tables.
        clock: Returns epoch seconds.
    """

    def __init__(self, tables: list[str], clock: Callable[[], float] = time.time) -> None:
        self._states: dict[str, dict[str, Any]] = {name: {"state": "no change since its start"} for name in tables}
        self._clock = clock
        self._lock = threading.Lock()

    def applied(self, table: str, batch: Mapping[str, Any]) -> None:
        """Note a batch that was applied."""
        kept = {name: batch[name] for name in ("batch", "rows", "version", "seconds", "lag") if name in batch}
        with self._lock:
            self._states[table] = {"state": "follows", "at": round(self._clock(), 3), **kept}

    def failed(self, table: str, error: str) -> None:
        """Note why a table is not followed."""
        with self._lock:
            self._states[table] = {"state": "stopped", "at": round(self._clock(), 3), "error": error}

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of an answer."""
        with self._lock:
            states = {name: dict(state) for name, state in self._states.items()}
        stopped = [name for name, state in states.items() if state["state"] == "stopped"]
        return (503 if stopped else 200), {"stopped": stopped, "tables": states}


def serve(board: Board, port: int) -> ThreadingHTTPServer:
    """Answer requests in the background, at each address of this host."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, found = board.answer()
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write nothing: a check asks every few seconds."""

    server = ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
