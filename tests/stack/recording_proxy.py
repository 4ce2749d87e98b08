"""What a client asks of the object store, written down on the way: a proxy that passes requests and replies on."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class RecordingProxy:
    """Listens on the loopback; ``requests`` has method, path, query and body of each request."""

    def __init__(self, target: str) -> None:
        requests: list[tuple[str, str, dict[str, str], bytes]] = []
        netloc = urlsplit(target).netloc
        secure = urlsplit(target).scheme == "https"
        local = threading.local()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                requests.append((self.command, unquote(url.path), query, body))
                if getattr(local, "client", None) is None:
                    client = http.client.HTTPSConnection if secure else http.client.HTTPConnection
                    local.client = client(netloc, timeout=60)
                local.client.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():  # the host, too: it is signed
                    local.client.putheader(name, value)
                local.client.endheaders(body)
                reply = local.client.getresponse()
                data = reply.read()
                self.send_response(reply.status)
                for name, value in reply.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(name, value)
                length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815

            def log_message(self, *arguments: Any) -> None:
                """Nothing is printed."""

        self.requests = requests
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def listings(self) -> list[str]:
        """The prefix of every listing."""
        return [
            query.get("prefix", "")
            for method, _, query, _ in self.requests
            if method == "GET" and ("list-type" in query or "prefix" in query)
        ]

    def deletions(self) -> list[bytes]:
        """What bulk deletions say; those of probes, which a first commit makes, are left out."""
        return [
            body
            for method, _, query, body in self.requests
            if method == "POST" and "delete" in query and b"/_pydelta/" not in body
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
