"""Pages of the site that repeat versions and numbers of other files say what those say; llms.txt has each page."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pyspark
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


publish = _script("docs_versions").publish
_llms = _script("docs_llms")
first_sentence, full_text, llms_text, nav_pages = (
    _llms.first_sentence, _llms.full_text, _llms.llms_text, _llms.nav_pages
)  # fmt: skip

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def found(path: str, pattern: str) -> str:
    """The one version that a pattern finds in a file, however often."""
    versions = set(re.findall(pattern, text_of(path), re.MULTILINE))
    assert len(versions) == 1, f"{pattern} finds {versions} in {path}"
    return versions.pop()


def pinned(package: str) -> str:
    return found("constraints.txt", rf"^{re.escape(package)}==(\S+)$")


def versions() -> list[tuple[str, str]]:
    jars = Path(pyspark.__file__).parent / "jars"
    (spark_hive,) = jars.glob("hive-metastore-*.jar")
    (spark_hadoop,) = jars.glob("hadoop-client-api-*.jar")
    oldest, end = re.fullmatch(r">=(3\.\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    return [
        ("PySpark", pinned("pyspark")),
        ("PySpark", found("scripts/install-peer", r"pyspark==(\d\S+)")),
        ("PySpark", found("scripts/suites.mk", r"\$\(or \$\(VERSION\),([\d.]+)\)")),
        ("Python", f"{oldest} to 3.{int(end) - 1}"),
        ("Java", found(".ci/run", r"openjdk-(\d+)-jre")),
        ("Java", found("images/spark/Dockerfile", r"openjdk-(\d+)-")),
        *[(name, pinned(name.lower())) for name in ("PyArrow", "Polars", "obstore", "NumPy")],
        ("delta-spark", found("tests/peers/reference_session.py", r"delta-spark_2\.13:([\d.]+)")),
        ("delta-rs", pinned("deltalake")),
        ("DuckDB", pinned("duckdb")),
        ("PyIceberg", pinned("pyiceberg")),
        ("Apache Iceberg", found("tests/iceberg/spark_side.py", r"iceberg-spark-runtime-[\d.]+_2\.13:([\d.]+)")),
        ("Trino", found("images/trino/Dockerfile", r"^ARG TRINO_VERSION=(\S+)")),
        ("Presto", found("images/presto/Dockerfile", r"^ARG PRESTO_VERSION=(\S+)")),
        ("PyHive", pinned("PyHive")),
        ("dbt", found("tests/serve/dbt_project/constraints.txt", r"^dbt-core==(\S+)$")),
        ("SQLAlchemy", pinned("SQLAlchemy")),
        ("Hive Metastore", found("images/hive-metastore/Dockerfile", r"^ARG HIVE_VERSION=(\S+)")),
        ("Hive Metastore", found("tests/metastore/hive4.py", r"metastore-server:([\d.]+):")),
        ("Hive Metastore", spark_hive.stem.removeprefix("hive-metastore-")),
        ("PostgreSQL", found("images/postgres/Dockerfile", r"recommends postgresql-(\d+)")),
        ("MinIO", found("images/minio/Dockerfile", r"^ARG MINIO_VERSION=\S+-(\w+)$")),
        ("Versity's gateway", found("images/versity/Dockerfile", r"^ARG VERSITY_VERSION=v(\S+)")),
        ("HDFS", found("images/hdfs/pom.xml", r"<hadoop.version>([^<]+)")),
        ("YARN", spark_hadoop.stem.removeprefix("hadoop-client-api-")),
        ("Kafka", found("images/kafka/pom.xml", r"<kafka.version>([^<]+)")),
        ("Spark's Kafka connector", found("images/spark/pom.xml", r"<kafka-connector.version>([^<]+)")),
        ("moto, an imitation of S3", pinned("moto")),
    ]


def test_the_page_of_versions_has_those_that_are_pinned():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", text_of("docs/reference/tested.md"), re.MULTILINE)
    shown = [(name, number) for name, number in rows if name != "program"]
    assert shown == versions()


def test_servers_of_tests_are_those_of_the_stack():
    assert found("tests/kafka/kafka_broker.py", r"kafka_2\.13:([\d.]+)") in text_of("images/kafka/pom.xml")


@pytest.mark.parametrize("page", ["docs/reference/limits.md", "docs/tutorials/move-from-the-jvm-engine.md"])
def test_numbers_of_the_comparison_are_those_of_its_page(page):
    guide = text_of("docs/guides/migrating.md")
    compared, equal, different = re.search(r"\| \*\*all\*\* \| (\d+) \| (\d+) \| (\d+) \|", guide).groups()
    known = {f"{int(number):,}" for number in (compared, equal, different)}
    known |= set(re.findall(r"\b\d[\d,]*\b", guide[guide.index("### The reference's own suites") :]))
    said = re.search(rf"^.*Of {int(compared):,} (?:compared )?programs.*\n?.*$", text_of(page), re.MULTILINE)[0]
    assert re.search(rf"Of {int(compared):,} (?:compared )?programs", said)
    numbers = set(re.findall(r"\b\d[\d,]*\d\b", said.split("](")[0]))
    assert numbers - known == set()


def pages() -> dict[str, str]:
    """The Markdown of each page of the navigation; the hook reads some from the project's root."""
    elsewhere = dict(re.findall(r'"([\w/]+\.md)": "(project/\w+\.md)"', text_of("scripts/docs_pages.py")))
    sources = {place: source for source, place in elsewhere.items()}
    return {file: text_of(sources.get(file, f"docs/{file}")) for _, _, file in nav_pages(CONFIG["nav"])}


def test_llms_txt_lists_each_page_with_its_first_sentence():
    text = llms_text("A lakehouse", "What it is.", CONFIG["nav"], pages())
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\.html\): .{20,}$", text, re.MULTILINE)
    assert [f"{name}.md" for name in listed] == [file for _, _, file in nav_pages(CONFIG["nav"])]
    assert text.startswith("# A lakehouse\n\n> What it is.\n\n## Start\n")
    assert "## Guides / Run the stack" in text
    assert "- [Load a CSV](tutorials/load-a-csv.html): You create a table with a schema, load a file into it," in text


def test_llms_full_txt_has_each_page():
    found_pages = pages()
    text = full_text(CONFIG["nav"], found_pages)
    assert all(markdown.strip() in text for markdown in found_pages.values())


def test_each_page_of_docs_is_in_the_navigation():
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    listed = {file for _, _, file in nav_pages(CONFIG["nav"])}
    assert {name for name in there - listed if not name.startswith("adr/")} == set()


@pytest.mark.parametrize(
    ("markdown", "sentence"),
    [
        ("# Title\n\nA first sentence. A second.\n", "A first sentence."),
        (
            "# Title\n\n```sh\nmake up\n```\n\nWith [a link](x.md) and **weight**: Then more.\n",
            "With a link and weight: Then more.",
        ),
        ("---\ntitle: x\n---\n\n# Title\n\n| a |\n|---|\n\nText of `x.y` here.\n", "Text of `x.y` here."),
        ("# Title\n\n- **One**: a list\n- two\n", "One: a list"),
        ("# 1 T\n\nAccepted. It stays.\n\n**Question.** How does it end?\n", "How does it end?"),
        ("# Title\n", ""),
    ],
    ids=["paragraph", "code before", "front matter and table", "list", "decision", "nothing"],
)
def test_the_first_sentence_of_a_page(markdown, sentence):
    assert first_sentence(markdown) == sentence


def test_a_page_without_a_sentence_has_no_line():
    with pytest.raises(ValueError, match=r"x\.md has no sentence"):
        llms_text("n", "s", [{"X": "x.md"}], {"x.md": "# X\n"})


def test_each_picture_has_a_title_and_a_description():
    pictures = sorted((ROOT / "docs/images").glob("*.svg"))
    assert {path.stem for path in pictures} == {"commit", "stack", "vacuum"}
    for path in pictures:
        text = path.read_text()
        assert re.search(r'role="img" aria-labelledby="title desc"', text), path
        assert re.search(r'<title id="title">[^<]{10,}</title>\s*<desc id="desc">[^<]{40,}</desc>', text), path
        assert "prefers-color-scheme: dark" in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_versions_of_the_site_are_listed_newest_first(tmp_path):
    built, folder = tmp_path / "built", tmp_path / "all"
    built.mkdir()
    for version in ("0.9.0", "0.10.0", "0.10.0rc1", "0.2.0"):
        (built / "index.html").write_text(version)
        publish(built, folder, version)
    listed = json.loads((folder / "versions.json").read_text())
    assert [entry["version"] for entry in listed] == ["0.10.0", "0.10.0rc1", "0.9.0", "0.2.0"]
    assert [entry["aliases"] for entry in listed] == [["latest"], [], [], []]
    assert (folder / "latest/index.html").read_text() == "0.10.0"
    assert (folder / "0.2.0/index.html").read_text() == "0.2.0"
    assert "latest/index.html" in (folder / "index.html").read_text()
    assert CONFIG["extra"]["version"]["provider"] == "mike", "the theme reads versions.json for this provider"


def test_a_version_that_is_published_again_is_replaced(tmp_path):
    built, folder = tmp_path / "built", tmp_path / "all"
    built.mkdir()
    (built / "old.html").write_text("")
    publish(built, folder, "1.0")
    (built / "old.html").rename(built / "new.html")
    publish(built, folder, "1.0")
    assert [path.name for path in (folder / "1.0").iterdir()] == ["new.html"]
    assert len(json.loads((folder / "versions.json").read_text())) == 1


@pytest.mark.parametrize("version", ["", "../x", "latest", "1.0/2"], ids=["empty", "above", "alias", "below"])
def test_a_version_that_is_not_one_is_refused(tmp_path, version):
    with pytest.raises(ValueError, match="is not a version"):
        publish(tmp_path, tmp_path / "all", version)


@pytest.mark.parametrize("verb", ["convert", "alter", "raise the protocol"])
def test_verbs_that_need_spark_are_a_limit_as_long_as_they_do(verb):
    """When ``pydelta.open`` gets the verb, the page of limits and the tutorials have to change."""
    (row,) = re.findall(rf"^\| {verb} \|(.*)\|$", text_of("docs/reference/interfaces.md"), re.MULTILINE)
    assert row.split("|")[3].strip() in {"not yet", "needs Spark"}
    assert "CONVERT, ALTER and changes of a table's protocol without Spark" in text_of("docs/reference/limits.md")
