"""Take pictures of executed notebooks in JupyterLab: ``picture_notebooks.py ADDRESS FOLDER``, the token comes by stdin.

``scripts/test-stack-notebook`` puts them into the folder ``pictures`` there before.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from chromium import Browser, find_chromium

_PATIENCE = 300.0
_WIDTH, _HEIGHT = 1280, 1000
_SHOWN = "document.querySelectorAll('.jp-Notebook .jp-OutputArea-output').length"


def _names(address: str, token: str) -> list[str]:
    request = urllib.request.Request(f"{address}/api/contents/pictures", headers={"Authorization": f"token {token}"})
    with urllib.request.urlopen(request) as answer:
        return sorted(item["name"] for item in json.load(answer)["content"])


def _wait(browser: Browser, expression: str, what: str) -> None:
    give_up = time.monotonic() + _PATIENCE
    while not browser.tell(expression):
        assert time.monotonic() < give_up, what
        time.sleep(0.2)


def main() -> None:
    """Write ``FOLDER/notebook-NAME.png`` for each."""
    address, folder = sys.argv[1], Path(sys.argv[2])
    token = sys.stdin.readline().strip()
    program = find_chromium()
    if program is None:
        sys.exit("There is no Chromium. Next: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place, Browser(program, Path(place)) as browser:
        browser.send(
            "Emulation.setDeviceMetricsOverride", width=_WIDTH, height=_HEIGHT, deviceScaleFactor=1, mobile=False
        )
        for name in _names(address, token):
            browser.send("Page.navigate", url=f"{address}/doc/tree/pictures/{name}?token={token}")
            _wait(browser, f"document.readyState === 'complete' && {_SHOWN} > 1", f"{name} shows no output")
            # behind the first question, where most is to be seen
            browser.tell("document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')[1].scrollIntoView()")
            time.sleep(2)  # it draws cells as they come into sight
            found = browser.send("Page.captureScreenshot", format="png")
            shown = folder / f"notebook-{Path(name).stem}.png"
            shown.write_bytes(base64.b64decode(found["data"]))
            assert shown.stat().st_size > 20_000, f"{shown} is empty"
            print(f"wrote {shown}")


if __name__ == "__main__":
    main()
