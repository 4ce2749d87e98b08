"""Ask engines for their queries and applications, and for who holds the cluster, by the JSON that their pages have.

::

    Spark's master   /json/                 applications with cores, memory, state; the cluster's cores and memory
                     a file of that         the same, where the master cannot be reached: file:///…
    a Spark worker   /json/                 applications with memory on this worker
    Spark history    /api/v1/applications   applications that ran
    Trino, Presto    /v1/query              queries with user, state, memory
"""

from __future__ import annotations

import datetime as dt
import http.client
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from pydelta.errors import InvalidArgumentError
from pydelta.errors.redaction import hide_text
from pydelta.settings.clock import Deadline
from pydelta.tools.ui.catalog.facts import EngineRun, EngineState
from pydelta.tools.ui.formats import amount, duration
from pydelta.tools.ui.services import ADVICE, HTTP_ERROR, Service, get, has_name, is_page, reason_of
from pydelta.tools.ui.values import ServiceState

__all__ = ["WatchedEngine", "ask_application", "ask_engine", "merged_runs", "parse_answer"]

_FORMS: Final = (
    "Write NAME=ADDRESS: Spark=http://spark-master:8080/json/, Trino=http://trino:8080/v1/query or "
    "History=http://history:18080/api/v1/applications?limit=100"
)
_STALE_SECONDS: Final = 120
_USER: Final = "status-page"
_MOST_BYTES: Final = 8 * 1024 * 1024
_PIECE: Final = 256 * 1024
_MOST_RUNS: Final = 500
_TEXT_LENGTH: Final = 2000
_MIB: Final = 1024 * 1024
_UNITS: Final = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40, "PB": 1 << 50}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedEngine:
    """An engine to ask.

    Args:
        name: Name to show.
        address: ``http://host:port/path`` or ``https://…`` without a user, or ``file:///path`` of a file that another
            program keeps up to date.
    """

    name: str
    address: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``NAME=ADDRESS``.

        Raises:
            InvalidArgumentError: The text does not name an engine. The message never shows a password.
        """
        name, _, address = text.partition("=")
        try:
            parts = urlsplit(address)
            is_file = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
            is_usable = (is_page(address) and "@" not in parts.netloc) or is_file
        except ValueError:
            is_usable = False
        if not name or not is_usable:
            raise InvalidArgumentError(f"{hide_text(text)!r} does not name an engine.", hint=_FORMS)
        return cls(name=name, address=address)


class _UnusableError(Exception):
    """The answer cannot be used. The text is shown."""


def ask_engine(engine: WatchedEngine, *, seconds: float) -> EngineState:
    """Ask an engine once.

    Args:
        engine: The engine.
        seconds: Maximum duration.
    """
    where, parts = hide_text(engine.address), urlsplit(engine.address)
    try:
        if parts.scheme == "file":
            return parse_answer(engine.name, _content(Path(unquote(parts.path))))
        if not has_name(str(parts.hostname)):
            return EngineState(name=engine.name, said="not started")
        return parse_answer(engine.name, _fetch(engine.address, seconds))
    except TimeoutError:
        said = f"{where} has not answered within {duration(seconds)}"
    except _UnusableError as error:
        said = f"{where} {error}"
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        said = f"{where}: {reason_of(error)[:200]}"
    return EngineState(name=engine.name, ok=False, said=said, next=ADVICE)


def _content(path: Path) -> Any:
    """Read JSON from a file that is kept up to date."""
    found = path.stat()
    age = time.time() - found.st_mtime
    if age > _STALE_SECONDS:
        raise _UnusableError(f"was written {duration(age)} ago and is not kept up to date")
    if found.st_size > _MOST_BYTES:
        raise _UnusableError(f"has more than {amount(_MOST_BYTES)}, which are not read")
    return json.loads(path.read_bytes())


def ask_application(service: Service, engines: Sequence[WatchedEngine], *, seconds: float, now_ms: int) -> ServiceState:
    """Check a service that is an application of Spark, by its name, where its ports cannot be reached.

    Args:
        service: The service, with an address such as ``application://sql-server``.
        engines: The engines, one of which lists the application.
        seconds: Maximum duration of asking one engine.
        now_ms: The current time, epoch milliseconds.
    """
    name = urlsplit(service.address).netloc
    states = [ask_engine(engine, seconds=seconds) for engine in engines if _may_list(engine)]
    runs = [run for state in states for run in state.runs if run.name == name and run.state in ("running", "waiting")]
    known = any(state.ok and state.kind in ("Spark", "Spark worker") for state in states)
    said = "runs on the cluster" if runs else "does not run" if known else "Spark's master does not list it"
    return ServiceState(
        name=service.name, ok=bool(runs), said=said, link=service.link, there=bool(runs) or not service.optional,
        next=None if runs else ADVICE, checked_ms=now_ms,
    )  # fmt: skip


def _may_list(engine: WatchedEngine) -> bool:
    parts = urlsplit(engine.address)
    return parts.scheme == "file" or parts.path.rstrip("/").endswith("/json")


def _fetch(address: str, seconds: float) -> Any:
    """Get JSON within a number of bytes and seconds."""
    deadline = Deadline(seconds)
    headers = {"X-Trino-User": _USER, "X-Presto-User": _USER, "Accept": "application/json"}
    with get(address, seconds, headers) as answer:
        if answer.status in (401, 403):
            raise _UnusableError(f"does not let the page look (HTTP status {answer.status}), so its runs are not shown")
        if answer.status >= HTTP_ERROR:
            raise _UnusableError(f"answers with HTTP status {answer.status}")
        data = bytearray()
        while piece := answer.read1(_PIECE):
            data += piece
            if len(data) > _MOST_BYTES:
                raise _UnusableError(f"answers with more than {amount(_MOST_BYTES)}, which are not read")
            if not deadline.remaining():
                raise TimeoutError
    return json.loads(data)


def parse_answer(name: str, found: Any) -> EngineState:
    """Read an engine's answer, whose kind its fields show. Fields that are not needed are never kept.

    Args:
        name: Name of the engine.
        found: The parsed JSON.
    """
    read: Callable[[str, Any], EngineState] | None = None
    if isinstance(found, dict) and "activeapps" in found:
        read = _master
    elif isinstance(found, dict) and "executors" in found and "coresused" in found:
        read = _worker
    elif isinstance(found, list) and all(isinstance(item, dict) for item in found):
        read = _history if any("attempts" in item for item in found) else _queries
        if found and read is _queries and "queryId" not in found[0]:
            read = None
    if read is None:
        raise _UnusableError("does not answer as Spark's master, its history server or Trino do")
    try:
        return read(name, found)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _UnusableError(
            f"answers in an unknown form ({type(error).__name__}: {hide_text(str(error))[:80]})"
        ) from error


def _newest(runs: Sequence[EngineRun]) -> tuple[EngineRun, ...]:
    return tuple(sorted(runs, key=lambda run: -(run.began_ms or 0))[:_MOST_RUNS])


_STATES: Final[Mapping[str, str]] = {
    "WAITING": "waiting", "SUBMITTED": "waiting", "RUNNING": "running", "FINISHED": "done", "FAILED": "failed",
    "KILLED": "failed", "QUEUED": "waiting", "WAITING_FOR_RESOURCES": "waiting",
}  # fmt: skip


def _master(name: str, found: Mapping[str, Any]) -> EngineState:
    runs = []
    for app in [*found["activeapps"], *found.get("completedapps", [])]:
        state = _STATES.get(str(app["state"]), "ended")
        ended = state in ("done", "failed", "ended")
        began = int(app["starttime"])
        runs.append(
            EngineRun(
                engine=name, id=str(app["id"]), name=_text(app["name"]), who=_text(app.get("user") or "") or None,
                state=state, began_ms=began, ended_ms=began + int(app["duration"]) if ended else None,
                cores=None if ended else int(app["cores"]), per_executor=True,
                memory_bytes=None if ended or not int(app["cores"]) else int(app.get("memoryperexecutor", 0)) * _MIB,
            )
        )  # fmt: skip
    return _cluster(name, "Spark", found, runs)


def _worker(name: str, found: Mapping[str, Any]) -> EngineState:
    """Read a worker's page. It has the memory of each executor, but neither its cores nor its times."""
    held: dict[str, EngineRun] = {}
    for executor in found["executors"]:
        app, memory = executor["appdesc"], int(executor["memory"]) * _MIB
        id_ = str(executor["appid"])
        if id_ in held:
            held[id_] = replace(held[id_], memory_bytes=(held[id_].memory_bytes or 0) + memory)
        else:
            who = _text(app.get("user") or "") or None
            held[id_] = EngineRun(
                engine=name, id=id_, name=_text(app["name"]), who=who, state="running", memory_bytes=memory
            )
    if len(held) == 1:
        held = {id_: replace(run, cores=int(found["coresused"])) for id_, run in held.items()}
    ended = {
        str(executor["appid"]): EngineRun(
            engine=name, id=str(executor["appid"]), name=_text(executor["appdesc"]["name"]),
            who=_text(executor["appdesc"].get("user") or "") or None,
        )
        for executor in found.get("finishedexecutors", [])
        if str(executor["appid"]) not in held
    }  # fmt: skip
    return _cluster(name, "Spark worker", found, [*held.values(), *ended.values()])


def _cluster(name: str, kind: str, found: Mapping[str, Any], runs: Sequence[EngineRun]) -> EngineState:
    return EngineState(
        name=name, kind=kind, ok=True, said="answers", runs=_newest(runs),
        cores=int(found["cores"]), cores_used=int(found["coresused"]),
        memory_bytes=int(found["memory"]) * _MIB, memory_used_bytes=int(found["memoryused"]) * _MIB,
    )  # fmt: skip


def _history(name: str, found: Sequence[Mapping[str, Any]]) -> EngineState:
    runs = []
    for app in found:
        attempt = app["attempts"][0]
        completed = bool(attempt.get("completed"))
        runs.append(
            EngineRun(
                engine=name, id=str(app["id"]), name=_text(app["name"]),
                who=_text(attempt.get("sparkUser") or "") or None, state="ended" if completed else "running",
                began_ms=int(attempt["startTimeEpoch"]),
                ended_ms=int(attempt["endTimeEpoch"]) if completed else None,
            )
        )  # fmt: skip
    return EngineState(name=name, kind="Spark history", ok=True, said="answers", runs=_newest(runs))


def _queries(name: str, found: Sequence[Mapping[str, Any]]) -> EngineState:
    runs = []
    for query in found:
        stats, code = query.get("queryStats") or {}, query.get("errorCode") or {}
        raw = str(query["state"])
        state = _STATES.get(raw, "running")
        memory = _bytes(stats.get("totalMemoryReservation") or stats.get("userMemoryReservation"))
        runs.append(
            EngineRun(
                engine=name, id=str(query["queryId"]), name=_text(query.get("query") or "no text"), state=state,
                who=_text((query.get("session") or {}).get("user") or "") or None,
                began_ms=_moment(stats.get("createTime")), ended_ms=_moment(stats.get("endTime")),
                error=_text(code.get("name") or query.get("errorType") or "") or None if state == "failed" else None,
                memory_bytes=memory if state == "running" else None,
            )
        )  # fmt: skip
    return EngineState(name=name, kind="queries", ok=True, said="answers", runs=_newest(runs))


def _text(value: Any) -> str:
    """Return one line without credentials."""
    text = " ".join(str(value)[: 2 * _TEXT_LENGTH].split())
    text = hide_text(text)
    return text if len(text) <= _TEXT_LENGTH else f"{text[:_TEXT_LENGTH]}…"


def _moment(value: Any) -> int | None:
    return None if not value else int(dt.datetime.fromisoformat(str(value)).timestamp() * 1000)


def _bytes(value: Any) -> int | None:
    """Read a size as Trino and Presto write it, such as ``1.5MB``."""
    match = re.fullmatch(r"([0-9.]+)([kMGTP]?B)", str(value or ""))
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def merged_runs(states: Sequence[EngineState], further: Sequence[EngineRun]) -> list[EngineRun]:
    """Gather runs of all engines, newest first. An application that two pages of Spark list is shown once.

    Args:
        states: The answers. Of two runs with one id, the one whose outcome is known is kept.
        further: Runs from other sources.
    """
    found: dict[str, EngineRun] = {}
    for run in [*(run for state in states for run in state.runs), *further]:
        other = found.get(run.id)
        if other is None or other.state == "ended" or (other.began_ms is None and run.began_ms is not None):
            keeps = other is not None and run.state == "ended" and other.state != "ended"
            found[run.id] = replace(run, state=other.state) if keeps and other is not None else run
    return sorted(found.values(), key=lambda run: (run.state not in ("running", "waiting"), -(run.began_ms or 0)))
