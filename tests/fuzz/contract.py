"""Say what every target must keep, and judge one input by it.

A target may do with an input what it likes, as long as whatever it raises is one of our errors, whatever it opens lies
where it may, and it ends within a bound of processor time and memory. Time and memory are watched from outside
(``child``); all else is judged here.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["Broken", "Failure", "Target", "judge", "watching"]

PROJECT: Final = Path(__file__).resolve().parents[2]


class Broken(AssertionError):
    """A promise other than the one about errors: a read or a delete outside the root, an answer that cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is fed.

    Args:
        name: As on the command line; also the folder of its kept inputs.
        run: Does what is to be tried with one input.
        seeds: Valid inputs to begin with.
        kind: How inputs are changed beside as bytes: ``json`` (a document per line), ``text`` or ``checkpoint``.
        words: What is put into inputs now and then.
        cpu_seconds: Of one input, at most.
        memory_mb: What one input may take beside what the process has when it starts.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    kind: str = "text"
    words: tuple[bytes, ...] = ()
    cpu_seconds: float = 10.0
    memory_mb: int = 768


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What was wrong with an input: ``signature`` is the same for inputs that fail alike."""

    signature: str
    text: str


def judge(run: Callable[[bytes], None], data: bytes) -> Failure | None:
    """Run one input; None when the contract was kept."""
    from pydelta.errors import DeltaError

    try:
        with watching():
            run(data)
    except DeltaError as error:
        return None if error.message.strip() else Failure(signature="an error without a message", text=repr(error))
    except MemoryError:
        return Failure(signature="memory", text=f"more memory than the bound\n{traceback.format_exc(limit=-6)}")
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return Failure(signature=_signature(error), text="".join(traceback.format_exception(error, limit=-12)))
    return None


def _signature(error: BaseException) -> str:
    """The kind of error and the innermost line of ours that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}pydelta{os.sep}" in frame.filename] or list(frames)
    where = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
    return f"{type(error).__name__} in {where}"


@dataclass(slots=True)
class _Watch:
    """What the interpreter says of files, processes and sockets while an input runs."""

    active: bool = False
    installed: bool = False
    scratch: str = ""
    wrong: list[str] = field(default_factory=list)


_WATCH: Final = _Watch()
_FILES: Final = {
    "open",
    "os.listdir",
    "os.scandir",
    "os.remove",
    "os.rmdir",
    "os.rename",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
}
_LOOKS: Final = {"open", "os.listdir", "os.scandir"}
_NEVER: Final = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
_READABLE: Final = tuple(
    os.path.realpath(path)
    for path in {
        sys.prefix,
        sys.base_prefix,
        *(path for path in sysconfig.get_paths().values() if path),
        str(PROJECT),
        "/usr/share/zoneinfo",
        "/usr/lib/python3",
        "/dev/null",
        *(path for path in sys.path if path.rstrip("/").endswith(("site-packages", "dist-packages"))),
    }
)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _WATCH.active:
        return
    if event.startswith(_NEVER):
        _WATCH.wrong.append(f"{event} {arguments[:1]!r}")
    elif event in _FILES and arguments and isinstance(arguments[0], (str, bytes)):
        _WATCH.active = False
        try:
            path = os.path.realpath(os.fsdecode(arguments[0]))
            writes = event not in _LOOKS or (event == "open" and _is_writing(arguments[1]))
            allowed = _inside(path, _WATCH.scratch)
            if not allowed and (writes or not any(_inside(path, root) for root in _READABLE)):
                _WATCH.wrong.append(f"{event} {path}")
        except ValueError as error:  # a NUL, which the call that follows refuses
            del error
        finally:
            _WATCH.active = True


def _is_writing(mode: Any) -> bool:
    return isinstance(mode, str) and not set(mode).isdisjoint("wax+")


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


@contextmanager
def watching() -> Iterator[None]:
    """Watch what is opened: nothing but the program's own files and the folder for temporary ones may be.

    Raises:
        Broken: Something else was opened, changed or called.
    """
    if not _WATCH.installed:
        _WATCH.scratch = os.path.realpath(tempfile.gettempdir())
        sys.addaudithook(_hook)
        _WATCH.installed = True
    _WATCH.wrong.clear()
    _WATCH.active = True
    try:
        yield
    finally:
        _WATCH.active = False
    if _WATCH.wrong:
        raise Broken(f"it went outside: {_WATCH.wrong[0]}")
