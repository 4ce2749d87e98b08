"""Drive a real headless Chromium over a pipe, by its own protocol: no package, no driver, no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Browser", "find_chromium", "open_browser"]

_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
          "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
          "--hide-scrollbars", "--force-color-profile=srgb")  # fmt: skip
_PATIENCE = 300.0
"""Ends what hangs."""


def find_chromium() -> str | None:
    """The browser of this machine, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


@contextmanager
def open_browser(width: int, height: int) -> Iterator[Browser]:
    """Open this machine's browser with a window of a size; ends the program if there is none."""
    program = find_chromium()
    if program is None:
        sys.exit("There is no Chromium. Next: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place, Browser(program, Path(place)) as browser:
        browser.resize(width, height)
        yield browser


class Browser:
    """One browser with one page, ended by leaving the block."""

    def __init__(self, program: str, folder: Path) -> None:
        commands_in, self._commands = os.pipe()
        self._answers, answers_out = os.pipe()
        # the protocol's pipes are the descriptors 3 and 4 of the browser
        wiring = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        command = ["bash", "-c", wiring, "bash", str(commands_in), str(answers_out), program, *_FLAGS]
        command += ["--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank"]
        environment = os.environ | {"HOME": str(folder)}
        self._log = (folder / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            command, pass_fds=(commands_in, answers_out), stdout=self._log, stderr=self._log, env=environment
        )
        os.close(commands_in)
        os.close(answers_out)
        self._number, self._read, self._session = 0, b"", None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Page.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        os.close(self._commands)
        os.close(self._answers)
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        give_up = time.monotonic() + _PATIENCE
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], max(give_up - time.monotonic(), 0))
            more = os.read(self._answers, 1 << 20) if ready else b""
            assert more, "the browser ended, or does not answer"
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of a size."""
        self.resize(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.send("Page.navigate", url="about:blank")
        self._wait_for("about:blank")
        self.send("Page.navigate", url=url)
        self._wait_for(url)

    def resize(self, width: int, height: int) -> None:
        """Give the window a size."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def _wait_for(self, url: str) -> None:
        self.wait(
            f"document.readyState === 'complete' && location.href === new URL({json.dumps(url)}).href",
            f"{url} does not load",
        )

    def wait(self, expression: str, otherwise: str) -> None:
        """Wait until JavaScript in the page is true."""
        give_up = time.monotonic() + _PATIENCE
        while not self.tell(expression):
            assert time.monotonic() < give_up, otherwise
            time.sleep(0.02)

    def tell(self, expression: str) -> Any:
        """Evaluate JavaScript in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, path: Path, *, most: int = 2400) -> None:
        """Take a picture of the whole page, up to a height."""
        width = self.tell("document.documentElement.clientWidth")
        height = min(self.tell("document.documentElement.scrollHeight"), most)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        # Some pages draw nothing where the picture is larger than the window.
        is_larger = height > self.tell("innerHeight")
        found = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=is_larger)
        path.write_bytes(base64.b64decode(found["data"]))

    def keep(self, path: Path, *, most: int) -> None:
        """Take a picture for the guides, on which something has to be seen."""
        self.picture(path, most=most)
        assert path.stat().st_size > 20_000, f"{path} is empty"
