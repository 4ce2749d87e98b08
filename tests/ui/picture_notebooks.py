"""Take pictures of executed notebooks in JupyterLab: ``picture_notebooks.py ADDRESS FOLDER``, the token comes by stdin.

``scripts/test-stack-notebook`` puts them into the folder ``pictures`` there before.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path

from chromium import open_browser

_WIDTH, _HEIGHT = 1280, 1000
_SHOWN = "document.querySelectorAll('.jp-Notebook .jp-OutputArea-output').length"


def _names(address: str, token: str) -> list[str]:
    request = urllib.request.Request(f"{address}/api/contents/pictures", headers={"Authorization": f"token {token}"})
    with urllib.request.urlopen(request) as answer:
        return sorted(item["name"] for item in json.load(answer)["content"])


def main() -> None:
    """Write ``FOLDER/notebook-NAME.png`` for each."""
    address, folder = sys.argv[1], Path(sys.argv[2])
    token = sys.stdin.readline().strip()
    with open_browser(_WIDTH, _HEIGHT) as browser:
        for name in _names(address, token):
            browser.send("Page.navigate", url=f"{address}/doc/tree/pictures/{name}?token={token}")
            browser.wait(f"document.readyState === 'complete' && {_SHOWN} > 1", f"{name} shows no output")
            # behind the first question, where most is to be seen
            browser.tell("document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')[1].scrollIntoView()")
            time.sleep(2)  # it draws cells as they come into sight
            shown = folder / f"notebook-{Path(name).stem}.png"
            browser.keep(shown, most=_HEIGHT)
            print(f"wrote {shown}")


if __name__ == "__main__":
    main()
