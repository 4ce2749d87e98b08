"""Feed one target in a process of its own, under bounds that the operating system keeps.

``python -m tests.fuzz.child JOB``: the job (JSON) says what to do; ``Progress`` is how the parent sees what is going
on, also when the process is dead. An input that takes too much processor time ends the process by SIGPROF, whatever it
runs; one that takes too much memory gets a ``MemoryError``, or dies where a library takes that for the end.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.fuzz.contract import Failure, Target, judge
from tests.fuzz.mutate import LARGEST, Mutator

__all__ = ["Progress", "main"]

_HEADER: Final = struct.Struct("<QQQQQ")
_TRACED_CALLS: Final = 60
_MORE: Final = 1 << 20


class Progress:
    """A file that parent and child both have in memory: inputs run, what is being run, code that was reached.

    Args:
        path: Of the file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        size = _HEADER.size + LARGEST + _MORE
        if not path.exists():
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self.runs, self.lines, self.corpus, self._length = 0, 0, 0, 0

    def begin(self, data: bytes) -> None:
        """Note an input before it is run."""
        self._map[_HEADER.size : _HEADER.size + len(data)] = data
        self.runs += 1
        self._length = len(data)
        self._note(running=True)

    def end(self) -> None:
        """Note that it has been run."""
        self._note(running=False)

    def _note(self, *, running: bool) -> None:
        self._map[: _HEADER.size] = _HEADER.pack(self.runs, self._length, running, self.lines, self.corpus)

    def read(self) -> tuple[int, bytes | None, bool, int, int]:
        """Tell inputs begun, the last (None: none yet), whether it runs, lines reached, inputs in the corpus."""
        runs, length, running, lines, corpus = _HEADER.unpack(self._map[: _HEADER.size])
        data = bytes(self._map[_HEADER.size : _HEADER.size + length]) if runs else None
        return runs, data, bool(running), lines, corpus


class _Reach:
    """Which lines of the engine inputs have reached. A function is watched in its first calls, then at whiles."""

    def __init__(self) -> None:
        self.lines: set[tuple[CodeType, int]] = set()
        self._calls: dict[CodeType, int] = {}
        self._ours: dict[str, bool] = {}

    def watch(self, run: Callable[[bytes], Any], data: bytes) -> Any:
        """Run an input; ``lines`` grows by what it reaches."""
        sys.settrace(self._call)
        try:
            return run(data)
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        ours = self._ours.get(code.co_filename)
        if ours is None:
            ours = self._ours[code.co_filename] = f"{os.sep}pydelta{os.sep}" in code.co_filename
        if not ours:
            return None
        calls = self._calls[code] = self._calls.get(code, 0) + 1
        return self._line if calls < _TRACED_CALLS or calls % 64 == 0 else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines.add((frame.f_code, frame.f_lineno))
        return self._line


def limit_memory(target: Target) -> None:
    """Let the process have what it has, and the target's bound."""
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    bound = held + (target.memory_mb << 20)
    resource.setrlimit(resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def feed(target: Target, data: bytes, progress: Progress) -> Failure | None:
    """Run one input under the bound of processor time."""
    progress.begin(data)
    signal.setitimer(signal.ITIMER_PROF, target.cpu_seconds)
    try:
        return judge(target.run, data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        progress.end()


def shrink(data: bytes, fails: Callable[[bytes], bool], attempts: int) -> bytes:
    """Find a shorter input that fails alike, by leaving out pieces of falling size."""
    size = max(len(data) // 2, 1)
    while attempts > 0 and data:
        at, shorter = 0, False
        while at < len(data) and attempts > 0:
            attempts -= 1
            candidate = data[:at] + data[at + size :]
            if fails(candidate):
                data, shorter = candidate, True
            else:
                at += size
        if not shorter and size == 1:
            break
        size = max(size // 2, 1) if not shorter or size > len(data) else size
    return data


def _say(kind: str, **fields: Any) -> None:
    sys.__stdout__.write(json.dumps({"kind": kind, **fields}) + "\n")
    sys.__stdout__.flush()


def _replay(target: Target, paths: Sequence[str], progress: Progress) -> None:
    for path in paths:
        failure = feed(target, Path(path).read_bytes(), progress)
        _say("replayed", path=path, signature=failure and failure.signature, text=failure and failure.text)


def _explore(target: Target, job: dict[str, Any], progress: Progress) -> None:
    rng = random.Random(f"{job['seed']} {target.name}")
    mutator, reach = Mutator(rng, target.kind, target.words), _Reach()
    corpus: list[bytes] = []
    known: set[str] = set(job["known"])
    ends = time.monotonic() + job["seconds"]
    waiting = [*target.seeds(), *(Path(path).read_bytes() for path in job["inputs"])]
    first = waiting[:2]  # in a short time not all of them: they would leave none for changed ones
    waiting = [*rng.sample(waiting, min(len(waiting), 5 + int(2 * job["seconds"]))), *first]
    while time.monotonic() < ends:
        data = waiting.pop() if waiting else mutator.change(_choose(rng, corpus or target.seeds()), corpus)
        before = len(reach.lines)
        failure = reach.watch(lambda given: feed(target, given, progress), data)
        progress.lines = len(reach.lines)
        if failure is not None and failure.signature not in known:
            known.add(failure.signature)
            signature = failure.signature
            small = shrink(data, partial(_fails_alike, target, signature, progress), 500)
            last = judge(target.run, small) or failure
            _say("failed", data=base64.b64encode(small).decode(), signature=signature, text=last.text)
        elif len(reach.lines) > before or not corpus:
            corpus.append(data)
            progress.corpus = len(corpus)


def _fails_alike(target: Target, signature: str, progress: Progress, data: bytes) -> bool:
    failure = feed(target, data, progress)
    return failure is not None and failure.signature == signature


def _choose(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """The newest as often as all others: they are what reached something last."""
    return corpus[-1 - min(int(rng.expovariate(0.15)), len(corpus) - 1)] if rng.random() < 0.5 else rng.choice(corpus)


def main() -> None:
    """Do one job; what it finds goes to the standard output, a JSON object per line."""
    from tests.fuzz.targets import target_of

    job = json.loads(sys.argv[1])
    target = target_of(job["target"])
    progress = Progress(Path(job["progress"]))
    threading.stack_size(1 << 19)
    for data in target.seeds()[:2]:  # what is loaded and kept on first use is the program's, not the input's
        judge(target.run, data)
    limit_memory(target)
    if job["seconds"] is None:
        _replay(target, job["inputs"], progress)
    else:
        _explore(target, job, progress)
    _say("done")
    sys.__stdout__.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
