"""Take what the webhook posts, and print a line for each: ``alert_receiver.py PORT SECONDS``. It ends by itself.

``scripts/test-stack-monitor`` runs it in the network of the status page.
"""

from __future__ import annotations

import http.server
import json
import sys
import threading
from typing import Any


class Handler(http.server.BaseHTTPRequestHandler):
    """Prints the alert, its status and its labels."""

    timeout = 10

    def do_POST(self) -> None:
        """Accept a message."""
        found = json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), 1 << 20)))
        assert found["text"]
        print(found["alert"], found["status"], *sorted(found["labels"].values()), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing else."""


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler)
    server.daemon_threads = True
    threading.Timer(float(sys.argv[2]), server.shutdown).start()
    server.serve_forever()
