"""Start children, notice how they end, and keep what failed."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fuzz.child import Progress, shrink
from tests.fuzz.contract import PROJECT

__all__ = ["FOUND", "KEPT", "Found", "Report", "fuzz", "keep", "kept_inputs", "replay"]

KEPT: Final = Path(__file__).resolve().parent / "kept"
FOUND: Final = PROJECT / "build/fuzz"
_STUCK_SECONDS: Final = 120.0
_SHRINK_RUNS: Final = 16
_ENVIRONMENT: Final = {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "PYTHONHASHSEED": "0",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An input that broke the contract."""

    target: str
    signature: str
    text: str
    data: bytes


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of feeding one target."""

    target: str
    runs: int = 0
    seconds: float = 0.0
    lines: int = 0
    corpus: int = 0
    found: list[Found] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Ended:
    """How a child ended: what it said, and why it died over which input, if it did."""

    said: list[dict[str, Any]]
    why: str | None
    data: bytes | None
    stderr: str
    runs: int
    lines: int
    corpus: int


def kept_inputs(target: str) -> list[Path]:
    """List inputs that failed once, or that are as nasty as can be thought of; they are replayed for ever."""
    folder = KEPT / target
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def keep(found: Found) -> Path:
    """Write a new input outside of the sources; it moves to the kept ones with its mend."""
    folder = FOUND / found.target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(found.data).hexdigest()[:16]
    path.write_bytes(found.data)
    return path


def fuzz(target: str, seconds: float, seed: int) -> Report:
    """Feed a target for a time; a child that dies is followed by another one."""
    report = Report(target=target)
    began = time.monotonic()
    deaths = 0
    while (left := began + seconds - time.monotonic()) > 0 and deaths < 20:
        job = {
            "target": target,
            "seconds": left,
            "seed": f"{seed}.{deaths}",
            "inputs": [str(path) for path in kept_inputs(target)],
            "known": [item.signature for item in report.found],
        }
        ended = _run(job)
        report.runs += ended.runs
        report.lines, report.corpus = max(report.lines, ended.lines), max(report.corpus, ended.corpus)
        for item in ended.said:
            if item["kind"] == "failed":
                data = base64.b64decode(item["data"])
                report.found.append(Found(target=target, signature=item["signature"], text=item["text"], data=data))
        if ended.why is None:
            break
        deaths += 1
        if ended.data is None:
            raise RuntimeError(f"the child of {target} ended before any input ({ended.why}):\n{ended.stderr[-3000:]}")
        if ended.why not in {item.signature for item in report.found}:
            small = _shrunk(target, ended.data, ended.why)
            text = ended.stderr[-2000:]
            report.found.append(Found(target=target, signature=ended.why, text=text, data=small))
    report.seconds = time.monotonic() - began
    return report


def _shrunk(target: str, data: bytes, why: str) -> bytes:
    """What kills the process is tried in a process of its own each time, so only a few times."""

    def fails(candidate: bytes) -> bool:
        with tempfile.NamedTemporaryFile(prefix="fuzz-") as file:
            file.write(candidate)
            file.flush()
            return replay(target, [Path(file.name)])[0] == why

    return shrink(data, fails, _SHRINK_RUNS) if fails(data) else data


def replay(target: str, paths: Sequence[Path]) -> list[str | None]:
    """Run inputs once; for each None, or what it broke."""
    verdicts: list[str | None] = []
    while len(verdicts) < len(paths):
        left = paths[len(verdicts) :]
        ended = _run({"target": target, "seconds": None, "seed": 0, "inputs": [str(path) for path in left]})
        verdicts += [item["signature"] for item in ended.said if item["kind"] == "replayed"]
        if ended.why is None:
            break
        if ended.data is None:
            raise RuntimeError(f"the child of {target} ended before any input ({ended.why}):\n{ended.stderr[-3000:]}")
        verdicts.append(ended.why)
    return verdicts


def _run(job: dict[str, Any]) -> _Ended:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        progress = Progress(Path(folder, "progress"))
        job = {**job, "progress": str(Path(folder, "progress"))}
        out, err = Path(folder, "out"), Path(folder, "err")
        with out.open("wb") as stdout, err.open("wb") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.child", json.dumps(job)],
                stdout=stdout,
                stderr=stderr,
                cwd=PROJECT,
                env={**os.environ, **_ENVIRONMENT, "TMPDIR": folder},
            )
            try:
                stuck = _wait(child, progress)
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        runs, data, running, lines, corpus = progress.read()
        said = [json.loads(line) for line in out.read_text().splitlines()]
        why = None if said and said[-1]["kind"] == "done" else "stuck" if stuck else _reason(child.returncode)
        if why is not None and not running:  # a thread that it had left behind, or what makes the next
            why += ", behind an input"
        return _Ended(
            said=said, why=why, data=data, stderr=err.read_text(errors="replace"), runs=runs, lines=lines, corpus=corpus
        )


def _reason(code: int) -> str:
    if code == -signal.SIGPROF:
        return "hang: more processor time than the bound"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def _wait(child: subprocess.Popen[bytes], progress: Progress) -> bool:
    """Wait for the end; a child that neither begins an input nor uses the processor for minutes waits for nothing."""
    last, since = (-1, -1.0), time.monotonic()
    while True:
        try:
            child.wait(1.0)
            return False
        except subprocess.TimeoutExpired:
            pass
        now = (progress.read()[0], _cpu_seconds(child.pid))
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > _STUCK_SECONDS:
            return True


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
