"""The catalog's pages over a real server and a lake that the engine wrote: hostile text, limits, settings, engines."""

from __future__ import annotations

import contextlib
import html
import json
import re
import threading
import urllib.error
import urllib.request
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest
from ui_catalog import HOSTILE, build_catalog, engines, write_events

import pydelta
from pydelta.api.console.addresses import Addresses
from pydelta.api.console.serving import open_server
from pydelta.tools.ui.catalog.engines import WatchedEngine
from pydelta.tools.ui.server import Application
from pydelta.tools.ui.services import Service
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.watch import Watch, Watched

SECRETS = ("do-not-show", "hush", "abc123")
PAGES = ("/", "/databases", "/database?name=lake", "/database?name=raw", "/table?name=lake.people",
         "/table?name=raw.odd", "/preview?name=lake.people", "/search?q=img+onerror", "/search",
         "/runs", "/runs?engine=Trino&state=failed",
         "/cluster", "/lineage", "/lineage?name=lake.people")  # fmt: skip


def serve(watch):
    """Run the real server for an application; returns it and its address."""
    server = open_server(Application(watch), Addresses(host="127.0.0.1", page=0, no_login=False), "The page")

    def run():
        with contextlib.suppress(OSError):  # It is closed while it waits.
            server.run()

    threading.Thread(target=run, daemon=True).start()
    return server, f"http://127.0.0.1:{server.effective_port}"


def stop(server):
    """Close a server once its threads are done: each of them ends a request by a byte to a pipe of the server, whose
    number another connection may have by then."""
    assert server.task_dispatcher.shutdown()
    server.close()


def get(url):
    """Status and text of a page."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalog")
    build_catalog(folder)
    write_events(folder / "events", folder)
    return folder


@pytest.fixture(scope="module")
def site(lake):
    """The page over the lake, with engines that answer, by its real server."""
    with engines() as found:
        named = [
            found.option("Spark", "/json/"),
            found.option("Trino", "/v1/query"),
            found.option("History", "/history"),
        ]
        watched = Watched(
            sources=Sources(folders=[str(lake)]), patience=600, fresh=600, lineage=str(lake / "events"),
            engines=[WatchedEngine.parse(text) for text in [*named, "Presto=http://presto.invalid:1/v1/query"]],
            services=[Service.parse("Kafka=tcp://kafka.invalid:9092", optional=True)],
        )  # fmt: skip
        server, url = serve(Watch(watched))
        yield url
        stop(server)


def read(site, path):
    status, text = get(site + path)
    assert status == 200, (path, text)
    return json.loads(text) if path.startswith("/api/") else text


# --- every page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_foreign_text_is_text_and_no_secret_is_shown_on_any_page(site, path):
    for found in (read(site, path), json.dumps(read(site, f"/api{path}")) if path != "/" else ""):
        assert not any(secret in found for secret in SECRETS)
    page = read(site, path)
    assert "<img" not in page
    assert "<script" not in page
    assert page.count("<h1>") == 1
    assert 'href="#content"' in page
    assert '<form role="search" action="/search" method="get">' in page
    for label in re.findall(r'<label for="(\w+)"', page):
        assert f'id="{label}"' in page


def test_hostile_names_comments_and_values_are_escaped_where_they_are_shown(site):
    shown = html.escape(HOSTILE).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    for path in ("/table?name=lake.people", "/preview?name=lake.people", "/runs", "/cluster", "/lineage"):
        assert shown in read(site, path), path
    assert 'value="&#34;&gt;&lt;b&gt;"' in read(site, f"/search?q={quote(chr(34) + '><b>')}")


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/database?name=none", 404, "No table of the database"),
        (f"/database?name={quote(HOSTILE)}", 404, "No table of the database"),
        ("/preview?name=none", 404, "is not among those shown"),
        ("/preview?name=lake.people&rows=0", 400, "is not a number of rows"),
        ("/preview?name=lake.people&rows=101", 400, "Ask for 1 to 100 rows"),
        ("/preview?name=lake.people&rows=-1", 400, "is not a number of rows"),
        ("/preview?name=lake.people&rows=1e9", 400, "is not a number of rows"),
        ("/preview?name=lake.people&rows=９", 400, "is not a number of rows"),
        (f"/preview?name=lake.people&rows={'1' * 5000}", 400, "is not a number of rows"),
        (f"/search?q={'x' * 101}", 400, "at most 100 characters"),
        ("/runs?engine=none", 404, "is not an engine"),
        ("/runs?state=none", 404, "is not a state of a run"),
        ("/lineage?name=none", 404, "is not among those shown"),
        ("/columns?name=lake.people", 404, "There is no such page"),
        ("/preview?name=lake.secretive", 403, "does not allow a preview"),
    ],
)
def test_wrong_requests_are_refused_with_what_to_do_next(site, path, status, says):
    for prefix in ("", "/api"):
        if prefix and path.startswith("/columns"):
            continue
        address = prefix + "".join(char if ord(char) < 128 else quote(char) for char in path)
        found, text = get(site + address)
        assert found == status
        assert says in text
        assert prefix or "<img" not in text
        assert "Traceback" not in text
        assert ("Next: " in text) if not prefix else json.loads(text)["next"]


def test_the_catalog_only_reads(site):
    for path in ("/search?q=a", "/preview?name=lake.people", "/runs"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(site + path, data=b"x")
        assert refused.value.code == 405


# --- databases, columns, search --------------------------------------------------------------------------------------


def test_databases_have_their_tables_and_sums(site):
    found = {item["name"]: item for item in read(site, "/api/databases")["databases"]}
    assert set(found) == {"lake", "raw"}
    assert (found["lake"]["tables"], found["lake"]["files"], found["raw"]["files"]) == (2, 5, 0)
    tables = read(site, "/api/database?name=lake")["tables"]
    assert [(table["name"], table["columns"]) for table in tables] == [("lake.people", 6), ("lake.secretive", 1)]
    assert tables[0]["description"].startswith("Everybody we know.")
    assert 'href="/table?name=lake.people"' in read(site, "/database?name=lake")


def test_columns_have_types_comments_and_the_statistics_of_the_log(site):
    found = read(site, "/api/columns?name=lake.people")
    assert (found["rows"], found["limited"], found["hides"]) == (4, None, False)
    columns = {item["name"]: item for item in found["columns"]}
    assert [item["type"] for item in found["columns"]] == [
        "long",
        "string",
        "string",
        "string",
        "binary",
        "array<string>",
    ]
    assert columns["id"]["comment"] == "The number of a person"
    assert columns["name"]["comment"] == HOSTILE
    assert columns["id"]["sums"] == {"nulls": 1, "low": "1", "high": "3", "without": 0}
    assert columns["city"]["partition"]
    assert columns["city"]["sums"] == {"nulls": 1, "low": "Berlin", "high": "New York", "without": 0}
    assert columns["password"]["sums"]["low"] == "(hidden)"
    assert (columns["tags"]["sums"]["nulls"], columns["tags"]["sums"]["low"]) == (1, None)
    page = read(site, "/table?name=lake.people")
    assert "4 rows. 6 columns." in page
    assert "Berlin" in page


def test_a_table_that_denies_its_rows_shows_no_bounds_and_no_statistics_of_files(site):
    [column] = read(site, "/api/columns?name=lake.secretive")["columns"]
    assert column["sums"] == {"nulls": 0, "low": None, "high": None, "without": 0}
    lines = " ".join(read(site, "/api/commit?name=lake.secretive&version=0")["lines"])
    assert "part-" in lines
    assert "4111" not in lines
    assert "minValues" not in lines
    assert "minValues" in " ".join(read(site, "/api/commit?name=lake.people&version=0")["lines"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PEOPLE", [("lake.people", "table", "")]),
        ("number person", [("lake.people", "comment", "id")]),
        ("everybody", [("lake.people", "comment", "")]),
        ("url", [("raw.clicks", "column", "url")]),
        ("no such thing", []),
        ("img ONERROR", [("raw.odd", "column", HOSTILE.replace('"', "`")), ("lake.people", "comment", ""),
                         ("lake.people", "comment", "name"), ("raw.odd", "property", "note")]),
        ("preview = false", [("lake.secretive", "property", "pydelta.ui.preview")]),
    ],
)  # fmt: skip
def test_a_search_finds_names_columns_comments_and_properties(site, text, expected):
    found = read(site, f"/api/search?{urlencode({'q': text})}")
    assert [(item["table"], item["kind"], item["where"]) for item in found["found"]] == expected
    page = read(site, f"/search?{urlencode({'q': text})}")
    assert f"{len(expected)} place" in page


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_preview_has_rows_as_the_engine_reads_them(site):
    found = read(site, "/api/preview?name=lake.people&rows=100")["preview"]
    assert found["columns"] == ["id", "name", "password", "city", "blob", "tags"]
    rows = {row[0]: row[1:] for row in found["rows"]}
    assert rows["1"] == ["Ada", "(hidden)", "London", "0x00ff", '["a"]']
    assert rows["2"][0] == HOSTILE
    assert rows["2"][3] == f"0x{'78' * 32}… (100 bytes)"
    assert rows[None] == [None, None, "Berlin", "0x", None]
    assert len(read(site, "/api/preview?name=lake.people&rows=2")["preview"]["rows"]) == 2
    assert '<td><span class="quiet">null</span></td>' in read(site, "/preview?name=lake.people")


def test_without_preview_no_page_has_a_value_of_a_row(lake):
    watch = Watch(Watched(sources=Sources(folders=[str(lake)]), patience=600, fresh=600, preview=False))
    server, url = serve(watch)
    try:
        status, text = get(f"{url}/preview?name=lake.people")
        assert (status, "without --no-preview" in text) == (403, True)
        columns = read(url, "/api/columns?name=lake.people")
        assert columns["rows"] == 4
        assert {item["sums"]["low"] for item in columns["columns"]} == {None}
        for path in ("/table?name=lake.people", "/commit?name=lake.people&version=0"):
            assert "Grace" not in read(url, path)
    finally:
        stop(server)


def test_an_empty_table_has_no_row_and_says_so(site):
    found = read(site, "/api/preview?name=raw.clicks")["preview"]
    assert (found["rows"], found["limited"], found["columns"]) == ([], None, ["at", "url"])
    assert "0 rows" in read(site, "/preview?name=raw.clicks")


def test_a_new_version_is_read_again_and_deleted_rows_are_not_shown(tmp_path):
    table = pydelta.LocalTable.create(
        str(tmp_path / "t"), pa.table({"id": list(range(50))}), properties={"delta.enableDeletionVectors": "true"}
    )
    watch = Watch(Watched(sources=Sources(tables=[f"t={tmp_path}/t"]), patience=600, fresh=0))
    server, url = serve(watch)
    try:
        assert [row[0] for row in read(url, "/api/preview?name=t&rows=3")["preview"]["rows"]] == ["0", "1", "2"]
        table.delete("id < 10")
        found = read(url, "/api/preview?name=t&rows=3")["preview"]
        assert ([row[0] for row in found["rows"]], found["version"]) == (["10", "11", "12"], 1)
        columns = read(url, "/api/columns?name=t")
        assert (columns["rows"], columns["hides"]) == (40, True)
        assert "deleted rows that vectors hide are counted" in read(url, "/table?name=t")
    finally:
        stop(server)


# --- engines ---------------------------------------------------------------------------------------------------------


def test_runs_of_all_engines_are_shown_once_running_ones_first(site):
    found = read(site, "/api/runs")
    runs = found["runs"]
    assert [item["name"] for item in found["engines"]] == ["Spark", "Trino", "History", "Presto"]
    states = [run["state"] for run in runs]
    assert states[:5].count("running") == 4
    assert "waiting" in states[:5]
    vacuum = [run for run in runs if run["name"] == "vacuum"]
    assert [(run["engine"], run["state"]) for run in vacuum] == [("Spark", "done")]
    assert [run["state"] for run in runs if run["name"] == "yesterday"] == ["ended"]
    [failed] = [run for run in runs if run["id"] == "20261127_2"]
    assert (failed["who"], failed["error"], failed["state"]) == (HOSTILE, "SYNTAX_ERROR", "failed")
    [query] = [run for run in runs if run["id"] == "20261127_1"]
    assert (query["who"], query["memoryBytes"]) == ("ada", 1_572_864)
    assert "token = (hidden)" in query["name"]
    assert "\n" not in query["name"]
    [job] = [run for run in runs if run["id"] == "r5"]
    assert (job["engine"], job["state"], job["error"]) == ("pydelta", "failed", "password=(hidden) was refused")
    only = read(site, "/api/runs?engine=Trino&state=failed")
    assert [run["id"] for run in only["runs"]] == ["20261127_2"]
    assert "Presto: not started." in read(site, "/runs")


def test_the_cluster_shows_who_holds_it_and_services_that_are_not_started(site):
    spark, trino, presto = read(site, "/api/cluster")["clusters"]
    assert (spark["cores"], spark["coresUsed"], spark["memoryUsedBytes"]) == (4, 3, 1536 << 20)
    assert [(run["name"].split()[0], run["cores"], run["memoryBytes"]) for run in spark["holders"]] == [
        ("prompt", 2, 768 << 20), ("ingest", 1, 768 << 20), ("compact", 0, None),
    ]  # fmt: skip
    assert [(run["who"], run["memoryBytes"]) for run in trino["holders"]] == [("ada", 1_572_864)]
    assert (presto["ok"], presto["said"]) == (None, "not started")
    page = read(site, "/cluster")
    assert '<li class="idle"><b>Kafka</b> not started' in page
    assert 'class="down"' not in page


# --- lineage ---------------------------------------------------------------------------------------------------------


def test_lineage_names_tables_of_the_page_and_goes_over_several_jobs(site):
    found = read(site, "/api/lineage?name=lake.people")
    assert [(step["job"], step["inputs"], step["outputs"]) for step in found["sources"]] == [
        ("refine", ["raw.clicks"], ["lake.people"]),
        ("ingest_stream", ["kafka://broker/clicks"], ["raw.clicks"]),
    ]
    assert found["sources"][0]["runs"] == 2
    assert [(step["job"].split()[0], step["state"]) for step in found["targets"]] == [
        ("compact", "failed"),
        ("report", "done"),
    ]
    assert (found["events"], found["unreadable"]) == (10, 1)
    everything = read(site, "/api/lineage")
    assert everything["count"] == 5
    assert "1 line cannot be read" in read(site, "/lineage")
    assert 'href="/lineage?name=raw.clicks"' in read(site, "/lineage?name=lake.people")


def test_what_is_not_configured_says_how_to_get_it(tmp_path):
    pydelta.LocalTable.create(str(tmp_path / "t"), {"id": "bigint"})
    watch = Watch(Watched(sources=Sources(tables=[f"{tmp_path}/t"]), patience=600, fresh=600))
    server, url = serve(watch)
    try:
        assert "--engine" in read(url, "/runs")
        assert "--engine" in read(url, "/cluster")
        assert "OPENLINEAGE_URL=file:" in read(url, "/lineage")
        assert read(url, "/api/databases")["databases"][0]["name"] == ""
        assert "(no database)" in read(url, "/database?name=")
    finally:
        stop(server)
