"""Look at dashboards of Superset in a browser: ``picture_charts.py ADDRESS USER DASHBOARD...``, the password by stdin.

Logs in by the form, opens each dashboard, waits until every chart is drawn, and prints the text of each chart that
shows one number as ``DASHBOARD/CHART: TEXT``. With ``--folder`` it writes a picture of each. Fails if a chart shows an
error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from chromium import open_browser

_WIDTH, _HEIGHT = 1280, 1400  # Charts out of sight are not drawn.
_TYPE = """
(() => {
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  for (const [name, value] of Object.entries(%s)) {
    const field = document.querySelector(`input[id="${name}"], input[name="${name}"]`);
    set.call(field, value);
    field.dispatchEvent(new Event('input', {bubbles: true}));
  }
  document.querySelector('button[type="submit"], input[type="submit"]').click();
})()
"""
_CHARTS = "[...document.querySelectorAll('.dashboard-component-chart-holder')]"
_DRAWN = (
    f"{_CHARTS}.length > 0 && !document.querySelector('.loading') && "
    f"{_CHARTS}.every(one => one.querySelector('canvas, table, .header-line'))"
)
_NUMBERS = (
    f"{_CHARTS}.filter(one => one.querySelector('.header-line')).map(one => "
    "[one.querySelector('.header-title').innerText.trim(), one.querySelector('.header-line').innerText.trim()])"
)
_BOTTOM = f"Math.max(...{_CHARTS}.map(one => one.getBoundingClientRect().bottom))"
_ERRORS = "[...document.querySelectorAll('.ant-alert-error, [data-test=\"error-alert\"]')].map(one => one.innerText)"


def main() -> None:
    """Print what the charts show; 1 if one of them shows an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("user")
    parser.add_argument("dashboards", nargs="+")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    password = sys.stdin.readline().strip()
    with open_browser(_WIDTH, _HEIGHT) as browser:
        browser.send("Page.navigate", url=f"{asked.address}/login/")
        browser.wait("document.querySelector('input[type=\"password\"]') !== null", "there is no form to log in by")
        browser.tell(_TYPE % json.dumps({"username": asked.user, "password": password}))
        browser.wait("!location.pathname.startsWith('/login')", "the log-in was refused")
        for name in asked.dashboards:
            browser.send("Page.navigate", url=f"{asked.address}/superset/dashboard/{name}/?standalone=1")
            browser.wait(f"({_ERRORS}).length > 0 || ({_DRAWN})", f"a chart of {name} was not drawn")
            time.sleep(2)  # Bars grow for a moment.
            errors = browser.tell(_ERRORS)
            if errors:
                sys.exit(f"{name} shows an error: {errors[0]}")
            for chart, text in browser.tell(_NUMBERS):
                print(f"{name}/{chart}: {text}")
            if asked.folder is not None:
                browser.keep(asked.folder / f"charts-{name}.png", most=int(browser.tell(_BOTTOM)) + 16)


if __name__ == "__main__":
    main()
