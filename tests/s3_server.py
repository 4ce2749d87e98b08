"""An S3 look-alike on the loopback that answers one request at a time, and misbehaves where it is told to.

moto looks whether a key exists and stores it afterwards, with nothing in between that keeps another thread out: its
conditional put is atomic only because the requests are serialised here. ``ignore_conditions`` is the look-alike that
does not know If-None-Match at all.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from leaks import secret

Start = Callable[..., Any]


@dataclass
class Misbehaviour:
    """What goes wrong with requests whose path contains ``path``: ``times`` times, then no more.

    ``status`` is answered instead of the real reply. ``applied`` says whether the request took effect before that.
    """

    path: str
    status: int
    applied: bool
    code: str = "InternalError"
    method: str = "PUT"
    times: int = 1


@dataclass
class S3Server:
    """The application with its faults; ``requests`` lists method and path of each request."""

    ignore_conditions: bool = False
    faults: list[Misbehaviour] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._inner = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if self.ignore_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        with self._one_at_a_time:
            self.requests.append((method, path))
            fault = next((item for item in self.faults if item.method == method and item.path in path), None)
            if fault is None:
                return list(self._inner(environ, start))
            fault.times -= 1
            if not fault.times:
                self.faults.remove(fault)
            if fault.applied:
                list(self._inner(environ, lambda *answer: None))
        body = f"<Error><Code>{fault.code}</Code><Message>on purpose</Message></Error>".encode()
        start(f"{fault.status} On Purpose", [("Content-Length", str(len(body))), ("Content-Type", "application/xml")])
        return [body]

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()

    def client(self) -> Any:
        """A boto3 client with the keys of ``options``."""
        import boto3

        options = self.options()
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=options["spark.hadoop.fs.s3a.access.key"],
            aws_secret_access_key=options["spark.hadoop.fs.s3a.secret.key"],
        )

    def versioned_bucket(self) -> str:
        """Make a bucket that keeps versions; its name."""
        name = f"versions-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        self.client().put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def options(self) -> dict[str, str]:
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.access.key": "AKIDEXAMPLE",
            "spark.hadoop.fs.s3a.secret.key": secret("s3"),
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
