"""What images download is compared with a hash, and the list of all that is installed says what their files say."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import stack_files

ROOT = Path(__file__).resolve().parents[2]
IMAGES = sorted(path.parent for path in (ROOT / "images").glob("*/Dockerfile"))

_spec = importlib.util.spec_from_file_location("sbom", ROOT / "scripts" / "sbom.py")
sbom = importlib.util.module_from_spec(_spec)
sys.modules["sbom"] = sbom
_spec.loader.exec_module(sbom)


def files_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


# -- pinned ----------------------------------------------------------------------------------------------------------


def test_there_are_images_to_look_at():
    assert len(IMAGES) > 8


@pytest.mark.parametrize("folder", IMAGES, ids=lambda folder: folder.name)
def test_all_that_an_image_downloads_is_compared_with_a_hash(folder):
    assert sbom.unpinned((folder / "Dockerfile").read_text(), files_of(folder)) == []


def test_packages_of_an_image_that_has_no_dockerfile_of_its_own_have_hashes():
    for path in sorted((ROOT / "images").glob("*/*requirements*.txt")):
        packages = list(sbom.requirements(path.read_text()))
        assert packages, path
        assert [name for name, _, hashes in packages if not hashes] == [], path


def test_the_stack_runs_no_image_but_those_that_are_built_here():
    services = stack_files.services()
    assert len(services) > 8
    assert [
        name for name, said in services.items() if not ("build" in said or said.get("pull_policy") == "never")
    ] == []


BASE = "FROM debian:trixie-slim AS one\n"
SHA = "a" * 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM alpine:3.20", "a base that is not Debian"),
        ("ADD https://host/x.tar.gz /x", "ADD of an address without a hash"),
        ("COPY --from=somebody/tool:1 /bin/tool /bin/tool", "a copy out of another image"),
        ("RUN curl -sSf https://host/x | sh", "curl checks nothing"),
        ("RUN true && wget https://host/x", "wget checks nothing"),
        ("RUN for name in a b; do git clone https://host/$name; done", "git checks nothing"),
        ("RUN pip install -q thing==1.0", "pip without --require-hashes"),
        ("RUN python3 -m pip download thing==1.0", "pip without --require-hashes"),
        ("RUN mvn -q x:copy -Dartifact=a:b:1:tar.gz", "b-1.tar.gz is not compared with a hash"),
        (f'RUN mvn x:copy -Dartifact=a:b:1:tar.gz && echo "{SHA}  other.tar.gz" | sha256sum -c --strict', "b-1.tar.gz"),
        (f'RUN mvn x:copy -Dartifact=a:b:1:tar.gz && echo "{SHA}  b-1.tar.gz" | sha256sum -c', "b-1.tar.gz"),
        ("RUN mvn -q x:copy-dependencies", "jars that no list of hashes names"),
        ("RUN mvn -q x:copy-dependencies && sha256sum -c --strict --quiet /b/jars.sha256", "are not noticed"),
        ("RUN go install host/tool@latest", "a Go module whose checksum is not compared"),
        ("RUN go mod download -json host/m@v1", "a Go module whose checksum is not compared"),
        ("ENV GOFLAGS=-mod=mod\nRUN go build .", "Go's modules are not held to go.sum"),
        ("RUN apt-get install -y --allow-unauthenticated x", "apt without signatures"),
    ],
)
def test_what_is_not_pinned_is_named(text, said):
    assert [wrong for wrong in sbom.unpinned(BASE + text, {"jars.sha256": ""}) if said in wrong]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("requirements.txt", "thing==1.0", "no hash in requirements.txt: thing"),
        ("requirements-more.txt", f"thing>=1.0 --hash=sha256:{SHA}", "no version in requirements-more.txt"),
    ],
)
def test_a_package_without_its_hash_or_version_is_named(file, content, said):
    assert [wrong for wrong in sbom.unpinned(BASE, {file: content}) if wrong.startswith(said)]


@pytest.mark.parametrize("folder", IMAGES, ids=lambda folder: folder.name)
def test_taking_its_hashes_away_from_an_image_is_noticed(folder):
    """Whatever an image compares: without the comparison it is named, so that the test above sees each one."""
    text = (folder / "Dockerfile").read_text()
    assert "--strict" in text or "--require-hashes" in text or "grep -F" in text or "mvn" not in text
    for check in ("--require-hashes ", "sha256sum -c --strict", "grep -F", "-mod=readonly"):
        if check in text:
            assert sbom.unpinned(text.replace(check, "true "), files_of(folder)) != [], check


# -- the list --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    out = tmp_path_factory.mktemp("sbom") / "sbom.json"
    command = [sys.executable, str(ROOT / "scripts" / "sbom.py"), "--no-maven", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Python packages" in done.stdout
    return json.loads(out.read_text())


def installed_by(document: dict, file: str) -> list[dict]:
    mark = {"name": "lakehouse:installed-by", "value": file}
    return [item for item in document["components"] if mark in item["properties"]]


def test_the_document_is_what_the_format_asks_for(document):
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    refs = [item["bom-ref"] for item in document["components"]]
    assert len(refs) == len(set(refs)) > 200
    assert document["dependencies"][0]["dependsOn"] == sorted(refs)
    for item in document["components"]:
        assert item["type"] in ("library", "application", "container")
        assert item["purl"].startswith("pkg:")
        assert {one["alg"] for one in item.get("hashes", ())} <= {"SHA-256"}


def test_every_line_of_the_files_is_in_the_document(document):
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert len(installed_by(document, "constraints.txt")) == len([line for line in lines if "==" in line])
    for path in sorted((ROOT / "images").glob("*/*.sha256")):
        told = {
            one["content"] for item in installed_by(document, str(path.relative_to(ROOT))) for one in item["hashes"]
        }
        assert told == {line.split()[0] for line in path.read_text().splitlines() if line}, path
    for path in sorted((ROOT / "images").glob("*/*requirements*.txt")):
        told = {
            one["content"] for item in installed_by(document, str(path.relative_to(ROOT))) for one in item["hashes"]
        }
        assert told >= set(re.findall(r"sha256:([0-9a-f]{64})", path.read_text())), path


def test_archives_and_modules_of_dockerfiles_have_their_checksums(document):
    for folder in IMAGES:
        named = installed_by(document, f"images/{folder.name}/Dockerfile")
        known = {one["content"] for item in named for one in item.get("hashes", ())}
        known |= {one["value"] for item in named for one in item["properties"] if one["name"] == "lakehouse:go-sum"}
        text = (folder / "Dockerfile").read_text()
        assert known == set(re.findall(r"ARG \w+_(?:SHA256|SUM)=(\S+)", text)), folder.name
        bases = {item["purl"] for item in named if item["type"] == "container"}
        assert bases == {"pkg:docker/debian@trixie-slim"}


@pytest.mark.parametrize(
    ("file", "groups", "purl"),
    [
        ("a-lib-2.0.1.jar", {}, f"pkg:generic/a-lib@2.0.1?checksum=sha256:{SHA}"),
        ("a-lib-2.0.1-jre.jar", {"a-lib": "g.h"}, "pkg:maven/g.h/a-lib@2.0.1-jre"),
        ("kafka-0-10_2.13-4.2.0.jar", {"kafka": "no", "kafka-0-10_2.13": "g"}, "pkg:maven/g/kafka-0-10_2.13@4.2.0"),
        ("zstd-1.5.6-10.jar", {}, f"pkg:generic/zstd@1.5.6-10?checksum=sha256:{SHA}"),
        ("nothing.jar", {}, f"pkg:generic/nothing@?checksum=sha256:{SHA}"),
    ],
)
def test_a_jar_is_named_by_its_group_where_it_is_known(file, groups, purl):
    assert sbom._jar(file, SHA, groups, "x").purl == purl


def test_a_broken_list_of_hashes_is_refused(tmp_path):
    shutil.copytree(ROOT / "images" / "kafka", tmp_path / "images" / "kafka")
    (tmp_path / "constraints.txt").write_text("")
    (tmp_path / "images/kafka/jars.sha256").write_text("not a hash  x.jar\n")
    with pytest.raises(SystemExit, match="not a line that sha256sum writes"):
        sbom.parts(tmp_path, ask_maven=False)
