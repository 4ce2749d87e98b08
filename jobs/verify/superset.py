"""Ask Superset for the numbers of charts over HTTP, using only the standard library."""

from __future__ import annotations

import http.cookiejar
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Chart", "Superset", "SupersetError"]

_SECONDS: Final = 120.0


class SupersetError(Exception):
    """What Superset refused or could not answer, with its message."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a dashboard that shows one number.

    Args:
        number: Superset's number of it.
        name: Its title.
        dataset: Superset's number of its dataset.
        metric: The metric of the dataset that it shows.
    """

    number: int
    name: str
    dataset: int
    metric: str


class Superset:
    """A client that is logged in as one user.

    Args:
        address: Its address, such as ``http://superset:8088``.
        user: Name of the user.
        password: Password of the user.

    Raises:
        SupersetError: It does not answer, or does not let this user in.
    """

    def __init__(self, address: str, user: str, password: str) -> None:
        self._address = address
        self._headers = {"Content-Type": "application/json", "Referer": address}
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        login = {"username": user, "password": password, "provider": "db", "refresh": False}
        self._headers["Authorization"] = f"Bearer {self._ask('security/login', login)['access_token']}"

    def charts(self, dashboard: str) -> list[Chart]:
        """List the charts of a dashboard that show one number.

        Args:
            dashboard: Its slug.

        Raises:
            SupersetError: There is no such dashboard for this user, or Superset does not answer.
        """
        found = self._ask(f"dashboard/{dashboard}/charts")["result"]
        return [
            Chart(one["id"], one["slice_name"], int(form["datasource"].partition("__")[0]), form["metric"])
            for one in found
            if (form := one["form_data"]).get("viz_type") == "big_number_total"
        ]

    def number(self, chart: Chart) -> Any:
        """Return the number that a chart shows now, as in JSON; caches are passed over.

        Raises:
            SupersetError: The query was refused or failed, or Superset does not answer.
        """
        query = {"columns": [], "metrics": [chart.metric], "filters": [], "row_limit": 1}
        asked = {"datasource": {"id": chart.dataset, "type": "table"}, "queries": [query], "force": True}
        [result] = self._ask("chart/data", asked)["result"]
        [row] = result["data"]
        return row[chart.metric]

    def databases(self) -> dict[str, int]:
        """Return Superset's number of each database that the user may ask, by its name."""
        return {one["database_name"]: one["id"] for one in self._ask("database/")["result"]}

    def rows(self, database: int, statement: str) -> list[list[Any]]:
        """Run a statement as SQL Lab does, and return its rows, with values as in JSON.

        Raises:
            SupersetError: The statement was refused or failed, or Superset does not answer.
        """
        self._csrf()
        found = self._ask("sqllab/execute/", {"database_id": database, "sql": statement, "runAsync": False})
        names = [column["column_name"] for column in found["columns"]]
        return [[row[name] for name in names] for row in found["data"]]

    def rename(self, chart: Chart, name: str) -> None:
        """Give a chart another title."""
        self._csrf()
        self._ask(f"chart/{chart.number}", {"slice_name": name}, "PUT")

    def _csrf(self) -> None:
        if "X-CSRFToken" not in self._headers:
            self._headers["X-CSRFToken"] = self._ask("security/csrf_token/")["result"]

    def _ask(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        url = f"{self._address}/api/v1/{path}"
        request = urllib.request.Request(url, data=data, headers=self._headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode(errors="replace")
            raise SupersetError(f"Superset answered {path} with HTTP status {error.code}: {said}") from error
        except (OSError, ValueError) as error:
            raise SupersetError(f"Superset at {self._address} does not answer: {error}.") from error
