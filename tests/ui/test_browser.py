"""The pages in a real Chromium, wide and narrow: nothing sticks out, everything is there, every link leads somewhere.

``PYDELTA_UI_PICTURES=docs/images`` keeps the pictures of the guide.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest
from chromium import Browser, find_chromium
from missing import missing
from ui_catalog import HOSTILE, build_catalog, engines, write_events
from ui_lake import build_lake

pytestmark = pytest.mark.ci
WIDTHS = (1280, 390)
ODD = "lake.odd <b>name & 'quotes'"
TABLES = {"lake.orders", "lake.events", "lake.customers", "lake.broken", "lake.people", "lake.secretive", "raw.clicks",
          "raw.odd", ODD}  # fmt: skip
REFUSED = {"/preview?name=lake.secretive", "/preview?name=lake.events"}
"""Links to rows of a table that denies them, and of one whose files are only in the log."""
PAGES = {
    "tables": "/",
    "table": "/table?name=lake.orders",
    "events": "/table?name=lake.events",
    "odd": f"/table?name={quote(ODD)}",
    "broken": "/table?name=lake.broken",
    "commit": "/commit?name=lake.orders&version=8",
    "delete": "/commit?name=lake.orders&version=7",
    "no-such-table": "/table?name=nothing",
    "databases": "/databases",
    "database": "/database?name=lake",
    "people": "/table?name=lake.people",
    "preview": "/preview?name=lake.people",
    "denied": "/preview?name=lake.secretive",
    "search": "/search?q=number",
    "runs": "/runs",
    "cluster": "/cluster",
    "lineage": "/lineage",
    "lineage-of": "/lineage?name=lake.people",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The command itself, over a lake, with a service that answers and one that does not."""
    folder = tmp_path_factory.mktemp("lake")
    if "PYDELTA_UI_PICTURES" in os.environ:  # pictures show a place that anybody may have
        folder = Path(tempfile.gettempdir()) / "data"
        shutil.rmtree(folder, ignore_errors=True)
    query = build_lake(folder)
    build_catalog(folder)
    events = folder.with_name(f"{folder.name}-events")
    shutil.rmtree(events, ignore_errors=True)
    write_events(events, folder)
    with (
        engines() as answering,
        socket.create_server(("127.0.0.1", 0)) as alive,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        ports = [server.getsockname()[1] for server in (alive, free)]
        free.close()
        command = [sys.executable, "-m", "pydelta", "ui", "--folder", str(folder), "--stream", str(query)]
        command += ["--service", f"Metastore=tcp://127.0.0.1:{ports[0]}", "--port", str(ports[1])]
        command += ["--service", f"Trino=tcp://127.0.0.1:{ports[0]},http://127.0.0.1:{ports[1]}/"]
        command += ["--service", "Object store=tcp://127.0.0.1:1", "--patience", "60", "--lineage", str(events)]
        command += ["--optional-service", "Kafka=tcp://kafka.invalid:9092"]
        for name, path in (("Spark", "/json/"), ("Trino", "/v1/query"), ("Spark history", "/history")):
            command += ["--engine", answering.option(name, path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert "http://127.0.0.1" in process.stdout.readline()
        yield f"http://127.0.0.1:{ports[1]}"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_chromium()
    if program is None:
        missing("There is no Chromium: apt-get install chromium")
    with Browser(program, tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_runs_no_script(page, browser, name, width, tmp_path):
    browser.open(page + PAGES[name], width=width)
    assert browser.tell("document.documentElement.scrollWidth") == width
    wide = browser.tell(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scrolls') || e.matches('.scrolls'))"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == [], "sticks out to the right"
    assert browser.tell("document.scripts.length") == 0
    forms = browser.tell("[...document.querySelectorAll('form')].map(f => [f.method, f.getAttribute('action')])")
    assert forms == [["get", "/search"]], "the search is the only form, and it only reads"
    assert browser.tell("document.querySelectorAll('button, input, select, textarea').length") == 2
    assert browser.tell("document.styleSheets.length") == 1
    shown = Path(os.environ.get("PYDELTA_UI_PICTURES", tmp_path)) / f"ui-{name}-{width}.png"
    browser.picture(shown)
    assert shown.stat().st_size > 5_000


@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_page_has_every_table_with_what_is_wrong_first(page, browser, width):
    browser.open(page, width=width)
    names = browser.tell("[...document.querySelectorAll('tr > td.name > a')].map(a => a.textContent)")
    assert set(names) & TABLES == TABLES
    assert names[0] == "lake.broken"
    assert names.index("lake.events") < names.index("lake.customers")
    assert names.index("lake.orders") < names.index(ODD)
    visible = browser.tell("[...document.querySelectorAll('td')].every(e => e.getBoundingClientRect().height > 0)")
    assert visible
    services = browser.tell("[...document.querySelectorAll('ul.services li')].map(e => e.className)")
    assert services == ["ok", "ok", "down", "idle"]


def test_what_is_hidden_is_not_in_the_dom_and_foreign_text_is_text(page, browser):
    for name in PAGES:
        browser.open(page + PAGES[name], width=1280)
        html = browser.tell("document.documentElement.outerHTML")
        for secret in ("abc123", "AKIAABCDEFGHIJKLMNOP", "do-not-show", ":pw@", "hush"):
            assert secret not in html, name
        assert browser.tell("document.images.length") == 0, name
        assert browser.tell("document.querySelectorAll('main b, main i').length") == browser.tell(
            "document.querySelectorAll('main b:not([style]), main i.never').length"
        )
    browser.open(f"{page}/commit?name=lake.orders&version=7", width=1280)
    assert "<script>alert('x')</script>" in browser.tell("document.querySelector('main').innerText")


def test_every_link_leads_to_a_page(page, browser):
    seen, queue = set(), ["/"]
    while queue:
        path = queue.pop()
        if path in seen or len(seen) > 320:
            continue
        seen.add(path)
        if path in REFUSED:
            continue
        with urllib.request.urlopen(page + path) as answer:
            assert answer.status == 200, path
            kind = answer.headers["Content-Type"]
        if kind.startswith("text/html"):
            browser.open(page + path, width=1280)
            links = browser.tell("[...document.querySelectorAll('a, link')].map(a => a.href.split('#')[0])")
            queue += [link.removeprefix(page) for link in links if link.startswith(page)]
            assert all(link.startswith(page) or link == "data:," for link in links), links
    assert seen >= REFUSED
    assert len([path for path in seen if path.startswith("/commit")]) > 70
    assert len([path for path in seen if re.match(r"/table\?", path)]) == len(TABLES)


@pytest.mark.parametrize("name", ["tables", "people", "preview", "runs", "lineage-of"])
def test_a_page_can_be_used_by_keyboard_and_read_aloud(page, browser, name):
    browser.open(page + PAGES[name], width=1280)
    assert browser.tell("document.querySelectorAll('h1').length") == 1
    assert browser.tell("document.querySelector('main h1').textContent.length") > 0
    unnamed = (
        "[...document.querySelectorAll('input, nav, [role=region]')].filter(e => !e.labels?.length && !e.ariaLabel)"
    )
    assert browser.tell(f"{unnamed}.length") == 0
    assert browser.tell("[...document.querySelectorAll('thead th')].every(e => e.scope === 'col')")
    assert browser.tell("[...document.querySelectorAll('[tabindex]')].every(e => e.tabIndex <= 0)")
    key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    browser.send("Input.dispatchKeyEvent", type="keyDown", **key)
    assert browser.tell("document.activeElement.className") == "skip", "the first stop leads over the header"
    assert browser.tell("document.activeElement.getBoundingClientRect().left") >= 0, "where it can be seen"
    browser.tell("document.activeElement.click()")
    assert browser.tell("location.hash") == "#content"


def test_the_search_finds_by_typing_and_pressing_enter(page, browser):
    browser.open(page, width=1280)
    browser.tell("document.querySelector('input[type=search]').focus()")
    browser.send("Input.insertText", text='number "><img src=x>')
    enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
    browser.send("Input.dispatchKeyEvent", type="keyDown", **enter)
    browser.wait("location.pathname === '/search' && document.readyState === 'complete'", "the form is not sent")
    assert browser.tell("document.querySelector('input[type=search]').value") == 'number "><img src=x>'
    assert browser.tell("document.images.length") == 0
    browser.open(f"{page}/search?q=number", width=390)
    assert browser.tell("document.querySelector('main a').textContent") == "lake.people"


def test_hostile_values_are_text_in_rows_and_queries(page, browser):
    browser.open(page + PAGES["preview"], width=1280)
    cells = browser.tell("[...document.querySelectorAll('table.rows td')].map(e => e.textContent)")
    assert HOSTILE in cells
    assert browser.tell("document.querySelector('.scrolls').tabIndex") == 0
    browser.open(page + PAGES["runs"], width=1280)
    assert HOSTILE in browser.tell("document.querySelector('main').textContent")
    browser.tell("document.querySelector('th summary').click()")
    assert "token = (hidden)" in browser.tell("document.querySelector('th details[open]').textContent")


def test_folded_lines_open_without_a_script(page, browser):
    browser.open(f"{page}/commit?name=lake.orders&version=8", width=390)
    assert not browser.tell("document.querySelector('details').open")
    browser.tell("document.querySelector('summary').click()")
    assert browser.tell("document.querySelector('details').open")
    assert browser.tell("document.querySelector('pre').getBoundingClientRect().height") > 0
    assert browser.tell("document.documentElement.scrollWidth") == 390


def test_the_page_is_dark_where_that_is_wished_for(page, browser):
    browser.open(page, width=1280, dark=True)
    dark = browser.tell("getComputedStyle(document.body).backgroundColor")
    browser.open(page, width=1280)
    light = browser.tell("getComputedStyle(document.body).backgroundColor")
    assert (dark, light) == ("rgb(22, 26, 31)", "rgb(255, 255, 255)")
