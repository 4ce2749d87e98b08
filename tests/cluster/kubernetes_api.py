"""The part of a Kubernetes API server that a submission talks to: it keeps what it is sent, and runs nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Asked = tuple[str, str, dict[str, Any]]
"""Method, path without the query, and the body."""


class KubernetesApi:
    """Objects by their paths, and all requests in their order."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.objects: dict[str, dict[str, Any]] = {}
        self._turn = threading.Lock()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Keep a request and do what it asks for."""
        with self._turn:
            self.asked.append((method, path, body))
            if method == "POST":
                path = f"{path}/{body['metadata']['name']}"
            if method in ("POST", "PATCH", "PUT"):
                number = str(len(self.asked))
                metadata = {**body["metadata"], "uid": f"uid-{number}", "resourceVersion": number}
                self.objects[path] = {**body, "metadata": metadata}
                return 200 if method == "PUT" else 201, self.objects[path]
            if path in self.objects:
                return 200, self.objects[path]
            return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The objects of a kind that were made."""
        return [found for found in self.objects.values() if found["kind"] == kind]


@contextmanager
def kubernetes_api() -> Iterator[tuple[KubernetesApi, str]]:
    """Serve on a free port of the loopback: the record, and the address."""
    api = KubernetesApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, found = api.answer(self.command, urlsplit(self.path).path, json.loads(sent) if sent else {})
            body = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing: the record has it."""

    for method in ("GET", "POST", "PATCH", "PUT", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.serve)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
