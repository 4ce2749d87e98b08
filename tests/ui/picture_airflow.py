"""Take pictures of Airflow's page: ``picture_airflow.py ADDRESS FOLDER``, the password of admin comes by stdin.

``scripts/test-stack-airflow`` has run both DAGs before.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path

from chromium import open_browser

_WIDTH, _HEIGHT = 1280, 800
_PAGES = {
    "dags": (
        "/dags",
        "document.body.innerText.includes('daily_load') && document.body.innerText.includes('maintenance')",
    ),
    "grid": ("/dags/daily_load", "document.body.innerText.includes('check_delta')"),
}


def _token(address: str, password: str) -> str:
    body = json.dumps({"username": "admin", "password": password}).encode()
    request = urllib.request.Request(f"{address}/auth/token", data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["access_token"]


def main() -> None:
    """Write ``FOLDER/airflow-NAME.png`` for each page."""
    address, folder = sys.argv[1], Path(sys.argv[2])
    token = _token(address, sys.stdin.readline().strip())
    with open_browser(_WIDTH, _HEIGHT) as browser:
        browser.send("Network.setCookie", name="_token", value=token, url=address)
        for name, (path, shown) in _PAGES.items():
            browser.send("Page.navigate", url=address + path)
            browser.wait(f"document.readyState === 'complete' && {shown}", f"{name} does not show what it has to")
            time.sleep(3)  # it draws the runs after the names
            picture = folder / f"airflow-{name}.png"
            browser.keep(picture, most=_HEIGHT)
            print(f"wrote {picture}")


if __name__ == "__main__":
    main()
