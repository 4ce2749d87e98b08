"""Serve a read-only S3 of a million keys with slow listings: ``python -m benchmarks._s3_list_server``.

Arguments: a folder with the objects that have contents (a log), a text file with the keys of those that have none, the
milliseconds that a listing takes. Prints its port. ``GET /counts`` says how many requests there were, and begins anew.
"""

from __future__ import annotations

import bisect
import json
import re
import sys
import threading
import time
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

MODIFIED = "2024-06-01T00:00:00.000Z"
SIZE = 1_000
_HIGHEST = "\U0010ffff"


class Objects:
    """Keys in order; some have a file."""

    def __init__(self, folder: Path, keys: Path) -> None:
        self.files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
        self.keys = sorted({*keys.read_text().splitlines(), *self.files})

    def page(self, prefix: str, delimiter: str, after: str, most: int) -> tuple[list[str], list[str], str | None]:
        """Keys, common prefixes, and where the next page begins."""
        at = bisect.bisect_left(self.keys, prefix)
        if after:
            at = max(at, bisect.bisect_right(self.keys, after))
        end = bisect.bisect_right(self.keys, prefix + _HIGHEST) if prefix else len(self.keys)
        if not delimiter:
            found = self.keys[at : min(end, at + most)]
            return found, [], found[-1] if at + most < end else None
        keys: list[str] = []
        prefixes: list[str] = []
        while at < end:
            if len(keys) + len(prefixes) == most:
                return keys, prefixes, (prefixes[-1] + _HIGHEST if prefixes else keys[-1])
            key = self.keys[at]
            cut = key.find(delimiter, len(prefix))
            if cut < 0:
                keys.append(key)
                at += 1
            else:
                prefixes.append(key[: cut + 1])
                at = bisect.bisect_right(self.keys, key[: cut + 1] + _HIGHEST)
        return keys, prefixes, None


def handler_of(objects: Objects, latency_seconds: float) -> type[BaseHTTPRequestHandler]:
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            _, _, key = unquote(url.path).removeprefix("/").partition("/")
            if url.path == "/counts":
                with lock:
                    body = json.dumps(counts).encode()
                    counts.clear()
                self.reply(200, body, "application/json")
            elif key:
                self.give(key, with_body=True)
            else:
                self.list(parse_qs(url.query, keep_blank_values=True))

        def do_HEAD(self) -> None:
            _, _, key = unquote(urlsplit(self.path).path).removeprefix("/").partition("/")
            self.give(key, with_body=False)

        def list(self, query: dict[str, list[str]]) -> None:
            with lock:
                counts["LIST"] += 1
            time.sleep(latency_seconds)
            fields = {name: values[0] for name, values in query.items()}
            after = fields.get("continuation-token") or fields.get("start-after") or ""
            most = min(int(fields.get("max-keys", "1000")), 1000)
            keys, prefixes, more = objects.page(fields.get("prefix", ""), fields.get("delimiter", ""), after, most)
            encoded = fields.get("encoding-type") == "url"

            def shown(text: str) -> str:
                return quote(text, safe="/") if encoded else escape(text)

            parts = ['<?xml version="1.0" encoding="UTF-8"?>']
            parts.append('<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bench</Name>')
            parts.append(f"<Prefix>{shown(fields.get('prefix', ''))}</Prefix><MaxKeys>{most}</MaxKeys>")
            parts.append("<EncodingType>url</EncodingType>" if encoded else "")
            parts.append(f"<KeyCount>{len(keys) + len(prefixes)}</KeyCount>")
            parts.append(f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>")
            if more:
                parts.append(f"<NextContinuationToken>{escape(more)}</NextContinuationToken>")
            for key in keys:
                path = objects.files.get(key)
                size = path.stat().st_size if path else SIZE
                parts.append(
                    f"<Contents><Key>{shown(key)}</Key><LastModified>{MODIFIED}</LastModified><ETag>&quot;e&quot;"
                    f"</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                )
            parts += [f"<CommonPrefixes><Prefix>{shown(item)}</Prefix></CommonPrefixes>" for item in prefixes]
            parts.append("</ListBucketResult>")
            self.reply(200, "".join(parts).encode(), "application/xml")

        def give(self, key: str, *, with_body: bool) -> None:
            with lock:
                counts["GET" if with_body else "HEAD"] += 1
            path = objects.files.get(key)
            at = bisect.bisect_left(objects.keys, key)
            if path is None and (at == len(objects.keys) or objects.keys[at] != key):
                self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>" if with_body else b"", "application/xml")
                return
            size = path.stat().st_size if path else SIZE
            first, last, status, extra = 0, size - 1, 200, {}
            asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
            if asked and with_body:
                first = int(asked[1]) if asked[1] else size - int(asked[2])
                last = min(int(asked[2]), last) if asked[1] and asked[2] else last
                status, extra = 206, {"Content-Range": f"bytes {first}-{last}/{size}"}
            data = b""
            if path is not None and with_body:
                with path.open("rb") as file:
                    file.seek(first)
                    data = file.read(last - first + 1)
            elif with_body:
                data = b"\0" * (last - first + 1)
            self.reply(status, data, "application/octet-stream", size=None if with_body else size, **extra)

        def reply(self, status: int, body: bytes, kind: str, *, size: int | None = None, **extra: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) if size is None else size))
            self.send_header("ETag", '"e"')
            self.send_header("Last-Modified", formatdate(1_717_200_000, usegmt=True))
            for name, value in extra.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    return Handler


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    folder, keys, milliseconds = sys.argv[1:]
    handler = handler_of(Objects(Path(folder), Path(keys)), float(milliseconds) / 1000)
    server = _Server(("127.0.0.1", 0), handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
