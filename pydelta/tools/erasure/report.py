"""Write, sign, chain and verify the reports of erasures.

A report is a JSON document. It shows keys and paths only as keyed digests, so that it can be kept after the rows are
gone; with its salt, a user who knows a key can check that it was in the request. ``previous`` is the digest of the
report before it in the same folder: a report that is taken out, or changed, breaks the chain. The signature (Ed25519)
covers every byte of the document but itself.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import html
import json
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from pydelta.commands.erase.command import Erasure
from pydelta.commands.erase.look import Look
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.settings.clock import epoch_ms
from pydelta.tools.erasure.elsewhere import SearchedPlace
from pydelta.tools.erasure.running import ErasureOutcome, ErasureRequest
from pydelta.txn.commit import author, engine_info

__all__ = ["FORMAT", "as_html", "plan_of", "report_of", "verify", "write_report"]

FORMAT: Final = "pydelta erasure report 1"
_SUFFIX: Final = ".erasure.json"
_NOT_SEARCHED: Final = (
    "backups, copies and clones that are not in this report, and snapshots of the file system",
    "event logs, metrics and messages of other systems",
)


def report_of(
    outcomes: Sequence[ErasureOutcome],
    request: ErasureRequest,
    *,
    passed_over: Mapping[str, str] | None = None,
    elsewhere: Sequence[SearchedPlace] = (),
) -> dict[str, Any]:
    """Describe the erasures of one request as a JSON document, without a signature.

    Args:
        outcomes: One per table.
        request: The request.
        passed_over: Tables that were not touched, with the reason.
        elsewhere: What was found outside of the tables.
    """
    done = [outcome.erasure for outcome in outcomes if outcome.erasure is not None]
    proven = all(outcome.erasure is not None and outcome.erasure.is_proven for outcome in outcomes)
    proven = proven and all(place.is_clean for place in elsewhere)
    now = epoch_ms()
    return {
        "format": FORMAT,
        "id": str(uuid.uuid4()),
        "status": "proven" if proven and outcomes else "incomplete",
        "began": _time(min((item.began_ms for item in done), default=now)),
        "ended": _time(max((item.ended_ms for item in done), default=now)),
        "by": {"user": author(), "host": socket.gethostname(), "engine": engine_info()},
        "history": request.history,
        "objectVersions": request.object_versions,
        "tables": [_outcome(outcome) for outcome in outcomes],
        "passedOver": dict(passed_over or {}),
        "elsewhere": [
            {
                "location": place.location,
                "files": place.num_files,
                "found": list(place.found),
                "notRead": [path for path, _ in place.unread],
            }
            for place in elsewhere
        ],
        "notSearched": list(_NOT_SEARCHED),
    }


def _outcome(outcome: ErasureOutcome) -> dict[str, Any]:
    if outcome.erasure is not None:
        return _table(outcome.erasure)
    assert outcome.error is not None
    return {"table": outcome.target.context.log.uri, "status": "failed", "error": outcome.error.code}


def _table(done: Erasure) -> dict[str, Any]:
    salt = bytes.fromhex(done.salt)
    found = done.plan.look
    return {
        "table": done.table,
        "tableId": done.table_id,
        "status": "proven" if done.is_proven else "dry run" if done.dry_run else "incomplete",
        "request": {"salt": done.salt, "keys": {name: list(keys) for name, keys in done.digests.items()}},
        "versions": {
            "before": done.plan.version,
            "after": done.version,
            "givenUp": None if done.given_up is None else list(done.given_up),
            "commits": [rows.version for rows in done.rows],
        },
        "rows": {
            "erased": sum(rows.num_rows for rows in done.rows),
            "hidden": sum(rows.num_hidden_rows for rows in done.rows),
            "copied": sum(rows.num_copied_rows for rows in done.rows),
        },
        "files": {
            "found": _by_state(found),
            "rewritten": sum(rows.num_removed_files for rows in done.rows),
            "written": sum(rows.num_added_files for rows in done.rows),
            "deleted": done.deleted_files,
            "deletedBytes": done.deleted_bytes,
            "olderVersions": {
                "deleted": done.older.versions,
                "markers": done.older.markers,
                "bytes": done.older.size,
            },
            "removed": [
                {"path": _digest(salt, path), "size": size, "sha256": digest} for path, size, digest in done.removed
            ],
        },
        "search": {
            "version": done.left.version,
            "files": done.left.num_files,
            "bytes": done.left.num_bytes,
            "opened": done.left.num_opened,
            "left": _left(done.left, salt),
            "olderVersions": done.left.kept_versions,
            "notListed": list(done.left.unlisted),
            "notRead": [{"path": _digest(salt, path), "reason": "it cannot be read"} for path, _ in done.left.unread],
        },
    }


def plan_of(found: Erasure) -> dict[str, Any]:
    """Describe what an erasure would touch, as a JSON document."""
    plan = found.plan
    again = {"symlink manifests": plan.has_manifests, "Iceberg entry": plan.has_iceberg_entry}
    return {
        "table": found.table,
        "version": plan.version,
        "found": _by_state(plan.look),
        "places": len(plan.look.places),
        "givesUp": None if plan.gives_up is None else list(plan.gives_up),
        "clones": list(plan.clones),
        "publishedAgain": [name for name, is_there in again.items() if is_there],
        "olderVersions": {"number": plan.look.kept_versions, "bytes": plan.look.kept_bytes},
        "notListed": list(plan.look.unlisted),
        "notRead": [reason for _, reason in plan.look.unread],
    }


def _by_state(found: Look) -> dict[str, dict[str, int]]:
    counts = found.files.group_by("state", maintain_order=True).agg(
        files=pl.len(), rows=pl.col("rows").sum(), bytes=pl.col("size").sum()
    )
    return {row.pop("state"): row for row in counts.to_dicts()}


def _left(left: Look, salt: bytes) -> list[dict[str, Any]]:
    files = [
        {"path": _digest(salt, path), "kind": f"{state} file", "rows": rows}
        for path, state, rows in left.files.select("path", "state", "rows").iter_rows()
    ]
    return [*files, *({"path": _digest(salt, place.path), "kind": place.kind} for place in left.places)]


def _digest(salt: bytes, text: str) -> str:
    return hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()


def _time(epoch_ms: int) -> str:
    return dt.datetime.fromtimestamp(epoch_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")


# -- files ------------------------------------------------------------------------------------------------------------


def write_report(document: Mapping[str, Any], folder: Path, *, key_file: Path | None) -> Path:
    """Write a report as JSON and as HTML: signed, with the digest of the last one of its folder.

    Args:
        document: The report.
        folder: The folder of all reports, which is created.
        key_file: An Ed25519 private key in PEM; None for a report without a signature.

    Returns:
        The JSON file. Its name begins with the time at which the erasure ended.

    Raises:
        DeltaEnvironmentError: A signature is wanted, and the package for it is not installed.
        InvalidArgumentError: The key cannot be read, or the folder cannot be written.
    """
    key = None if key_file is None else _private_key(key_file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reports = _reports(folder)
        previous = None
        if reports:
            previous = {"file": reports[-1].name, "sha256": _sha256(reports[-1].read_bytes())}
        body = {**document, "previous": previous}
        signed = {**body, "signature": None if key is None else _signature(key, body)}
        name = f"{document['ended'].replace(':', '').replace('+0000', 'Z')}-{document['id'][:8]}"
        path = folder / f"{name}{_SUFFIX}"
        _write(path, _text(signed))
        _write(path.with_suffix(".html"), as_html(signed))
    except OSError as error:
        raise InvalidArgumentError(
            f"The report cannot be written to {folder}: {error.strerror or error}.",
            hint="The erasure itself is done. Name another folder with --report and run it again: it finds nothing to "
            "erase, and reports that.",
        ) from error
    return path


def _text(document: Mapping[str, Any]) -> str:
    """Return a report as its file has it, in the one way in which every byte is checked."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    """Create a file that appears whole or not at all, and never replaces another one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("x", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    try:
        os.link(partial, path)
    finally:
        partial.unlink()


def _reports(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIX))


def verify(place: Path, *, public_key: Path | None = None) -> list[str]:
    """Check reports: their form, their signatures, and that each names the one before it.

    Args:
        place: A report, or a folder of them. A single report is checked without its chain.
        public_key: The key that they must be signed with, in PEM; None for the one that each report names.

    Returns:
        What is wrong, one sentence each; empty if nothing is.

    Raises:
        InvalidArgumentError: There is no report.
        DeltaEnvironmentError: A report is signed, and the package to check it is not installed.
    """
    files = _reports(place) if place.is_dir() else [place]
    if not files or not all(file.is_file() for file in files):
        raise InvalidArgumentError(
            f"There is no report at {place}.", hint=f"Name a report (…{_SUFFIX}) or the folder that holds them."
        )
    wanted = None if public_key is None else _public_bytes(public_key)
    wrong: list[str] = []
    last: Path | None = None
    for file in files:
        data = file.read_bytes()
        try:
            document = json.loads(data)
        except (ValueError, UnicodeDecodeError):
            document = None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            wrong.append(f"{file.name} is no report of an erasure.")
            last = file
            continue
        if _text(document).encode() != data:
            wrong.append(f"{file.name}: it was changed.")
        wrong += [f"{file.name}: {text}" for text in _wrong_signature(document, wanted)]
        if place.is_dir():
            wrong += [f"{file.name}: {text}" for text in _wrong_link(document, last)]
        last = file
    return wrong


def _wrong_link(document: Mapping[str, Any], last: Path | None) -> list[str]:
    named = document.get("previous")
    if last is None:
        return [] if named is None else [f"the report before it, {named.get('file')}, is missing."]
    expected = {"file": last.name, "sha256": _sha256(last.read_bytes())}
    if named == expected:
        return []
    return [f"the report before it, {last.name}, was changed, put in or taken out."]


def _wrong_signature(document: Mapping[str, Any], wanted: bytes | None) -> list[str]:
    signature = document.get("signature")
    if signature is None:
        return [] if wanted is None else ["it is not signed."]
    body = {name: value for name, value in document.items() if name != "signature"}
    exceptions, asymmetric, _ = _cryptography()
    try:
        public = base64.b64decode(signature["publicKey"], validate=True)
        value = base64.b64decode(signature["value"], validate=True)
        if signature != _named_signature(public, value):
            raise ValueError("other fields, or another spelling of them")
        asymmetric.Ed25519PublicKey.from_public_bytes(public).verify(value, _canonical(body))
    except (exceptions.InvalidSignature, KeyError, TypeError, ValueError):
        return ["its signature does not fit: it was changed."]
    if wanted is not None and public != wanted:
        return ["it is signed with another key."]
    return []


# -- signatures -------------------------------------------------------------------------------------------------------


def _canonical(body: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _cryptography() -> tuple[Any, Any, Any]:
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise DeltaEnvironmentError(
            "Signatures of reports need the package cryptography.",
            hint="pip install 'pydelta-lakehouse[erasure]'",
        ) from None
    return exceptions, ed25519, serialization


def _private_key(file: Path) -> Any:
    _, asymmetric, serialization = _cryptography()
    try:
        key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, asymmetric.Ed25519PrivateKey):
        raise InvalidArgumentError(
            f"{file} is no Ed25519 private key in PEM without a password.",
            hint="Make one with: openssl genpkey -algorithm ed25519 -out erasure.pem",
        )
    return key


def _public_bytes(file: Path) -> bytes:
    _, asymmetric, serialization = _cryptography()
    try:
        key = serialization.load_pem_public_key(file.read_bytes())
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, asymmetric.Ed25519PublicKey):
        raise InvalidArgumentError(
            f"{file} is no Ed25519 public key in PEM.",
            hint="Take it from the private one: openssl pkey -in erasure.pem -pubout -out erasure.pub",
        )
    return bytes(key.public_bytes_raw())


def _signature(key: Any, body: Mapping[str, Any]) -> dict[str, str]:
    return _named_signature(key.public_key().public_bytes_raw(), key.sign(_canonical(body)))


def _named_signature(public: bytes, value: bytes) -> dict[str, str]:
    return {
        "algorithm": "Ed25519",
        "publicKey": base64.b64encode(public).decode(),
        "value": base64.b64encode(value).decode(),
    }


# -- HTML -------------------------------------------------------------------------------------------------------------


def as_html(document: Mapping[str, Any]) -> str:
    """Return a report as one page of HTML, without a script or a link."""
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Erasure "
        f"{_e(document['id'])}</title><style>"
        "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{border:1px solid #bbb;padding:.25em .6em;"
        "text-align:left;vertical-align:top;word-break:break-all}</style>"
        f"<h1>Erasure: {_e(document['status'])}</h1>"
        + _rows({name: document[name] for name in ("id", "began", "ended", "by", "history", "objectVersions")})
        + "".join(_table_html(table) for table in document["tables"])
        + "<h2>Not searched</h2><ul>"
        + "".join(f"<li>{_e(text)}</li>" for text in document["notSearched"])
        + "</ul>"
        + _rows({name: document[name] for name in ("passedOver", "elsewhere")})
        + "<h2>Chain and signature</h2>"
        + _rows({name: document.get(name) for name in ("previous", "signature")})
    )


def _table_html(table: Mapping[str, Any]) -> str:
    return f"<h2>{_e(table['table'])}: {_e(table['status'])}</h2>" + _rows(
        {name: value for name, value in table.items() if name not in ("table", "status")}
    )


def _rows(values: Mapping[str, Any]) -> str:
    return "<table>" + "".join(f"<tr><th>{_e(name)}<td>{_cell(value)}" for name, value in values.items()) + "</table>"


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return _rows(value) if value else "none"
    if isinstance(value, list):
        return "<br>".join(_cell(item) for item in value) or "none"
    return "none" if value is None else _e(value)


def _e(value: object) -> str:
    return html.escape(str(value))
