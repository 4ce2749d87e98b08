"""What the stack's images are called: by a prefix and by the project's version, everywhere the same."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import stack_files

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
_spec = importlib.util.spec_from_file_location("set_version", ROOT / "scripts" / "set_version.py")
set_version = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(set_version)
BUILT = {path.parent.name for path in (ROOT / "images").glob("*/Dockerfile")}
BUILT |= {"ui", "serve", "notebook", "demo", "airflow", "tests"}


@pytest.fixture
def image(tmp_path):
    """Asks the scripts for an image's name, in a folder without ``.env`` and with no docker to ask."""
    run = stack_files.scripts_in(tmp_path)
    return lambda name, **env: run(f"source scripts/stack-lib; image_of {name}", **env)


def test_each_service_names_an_image_by_prefix_and_version():
    lines = [
        line for path in stack_files.FILES for line in re.findall(r"^ +image: (.*)$", path.read_text(), re.MULTILINE)
    ]
    named = [
        re.fullmatch(r"\$\{LAKEHOUSE_IMAGES:-lakehouse\}/([a-z-]+):\$\{LAKEHOUSE_VERSION:-(.*)\}", line)
        for line in lines
    ]
    assert all(named), lines
    assert {match[2] for match in named} == {VERSION}
    assert {match[1] for match in named} == BUILT


def test_the_package_and_the_pages_have_the_same_version():
    import pydelta

    assert pydelta.__version__ == VERSION
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "PACKAGE.md", ROOT / "CONTRIBUTING.md"]
    named = {version for path in pages for version in re.findall(r"lakehouse/[a-z-]+:(\d[\w.]*)", path.read_text())}
    assert named == {VERSION}


@pytest.mark.parametrize("version", ["98.0.0rc1", "99.3.10"])
def test_one_command_sets_the_version_everywhere(tmp_path, version):
    """A copy of the files in which the version is repeated, with another one before and after it."""
    files = [ROOT / "pyproject.toml", ROOT / "pydelta" / "__init__.py", *stack_files.FILES]
    files += [path for path in (ROOT / "docs").rglob("*.md") if "lakehouse/" in path.read_text()]
    for file in files:
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    for wanted in (version, VERSION):
        changed = set_version.set_version(tmp_path, wanted)
        places = [path.relative_to(tmp_path) for path in changed]
        assert tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["version"] == wanted
        assert f'__version__ = "{wanted}"' in (tmp_path / "pydelta" / "__init__.py").read_text()
        text = "\n".join(path.read_text() for path in changed)
        named = re.findall(r"LAKEHOUSE_VERSION:-(.*?)\}|lakehouse/[a-z-]+:(\d[\w.]*\w)", text)
        assert {name for pair in named for name in pair if name} == {wanted}
        assert len(places) > 10
    assert [path for path in files if path.read_bytes() != (tmp_path / path.relative_to(ROOT)).read_bytes()] == []


@pytest.mark.parametrize("version", ["1.0", "1.0.0-rc1", "v1.0.0", "1.0.0\n", ""])
def test_what_is_no_version_changes_nothing(tmp_path, version):
    with pytest.raises(ValueError, match="three numbers, such as"):
        set_version.set_version(tmp_path, version)


def test_the_scripts_name_the_same_image(image):
    assert image("spark") == f"lakehouse/spark:{VERSION}"


def test_prefix_and_version_can_be_said(image):
    assert image("spark", LAKEHOUSE_IMAGES="mine", LAKEHOUSE_VERSION="previous") == "mine/spark:previous"


def test_no_script_and_no_test_names_an_image_by_itself():
    names = "|".join(sorted(BUILT))
    files = [
        *(ROOT / "scripts").iterdir(),
        *(ROOT / ".ci").iterdir(),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "images").rglob("Dockerfile"),
    ]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        if path.is_file() and path != Path(__file__)
        for line in path.read_text(errors="replace").splitlines()
        if re.search(rf"(?<![/\w.-])lakehouse/({names})\b", line)
    ]
    assert found == []


def test_the_core_s_limits_of_memory_are_under_eight_gigabytes_and_the_guide_lists_them():
    services = stack_files.services()
    core = ["minio", "postgres", "hive-metastore", "spark-master", "spark-worker", "trino", "scheduler", "ui"]
    limits = {}
    for name in core:
        number, unit = re.match(r"(?:\$\{\w+:-)?(\d+)([mg])\b", services[name]["mem_limit"]).groups()
        limits[name] = int(number) * (1024 if unit == "g" else 1)
    assert sum(limits.values()) * 2**20 < 8 * 10**9, limits
    guide = (ROOT / "docs/guides/stack.md").read_text()
    for name, limit in limits.items():
        assert re.search(rf"^\| `{name}` \| {limit} \|", guide, re.MULTILINE), name
    assert f"| together | {sum(limits.values()):,} |" in guide


@pytest.mark.parametrize(
    "dockerfile", sorted((ROOT / "images").glob("*/Dockerfile")), ids=lambda path: path.parent.name
)
def test_what_runs_in_an_image_takes_text_for_utf8(dockerfile):
    """Without a locale, letters beyond ASCII in an argument are question marks to Java."""
    stages = re.split(r"^FROM ", dockerfile.read_text(), flags=re.MULTILINE)[1:]
    names = {stage.split()[2]: stage for stage in stages if re.match(r"\S+ AS \S+", stage)}

    def has_locale(stage):
        base = stage.split()[0]
        return "LANG=C.UTF-8" in stage or (base in names and has_locale(names[base]))

    run = [stage for stage in stages if re.search(r"^(ENTRYPOINT|CMD)", stage, re.MULTILINE)]
    assert run
    assert all(map(has_locale, run))


def test_java_is_made_by_one_script_in_a_stage_that_is_the_same_in_each_image_so_that_docker_makes_it_once():
    texts = {path.parent.name: path.read_text() for path in (ROOT / "images").glob("*/Dockerfile")}
    stages = {
        name: text.split(" AS java\n")[1].split("\n\n")[0] for name, text in texts.items() if " AS java\n" in text
    }
    assert set(stages) == {name for name, text in texts.items() if "JAVA_HOME" in text}
    made = {name: stage.splitlines()[-1] for name, stage in stages.items()}
    assert set(made.values()) == {"RUN --mount=type=bind,source=images/java,target=/java /java/make-java"}
    # Trino's is another version of Java, so that its stage begins with other packages.
    trino = stages.pop("trino")
    assert "openjdk-25-jdk-headless" in trino
    tools = {texts[name].split(" AS tools\n")[1].split("\n\n")[0] for name in stages}
    assert (len(tools), len(set(stages.values()))) == (1, 1)
    assert not [name for name, text in texts.items() if "jlink" in text]


def test_an_image_with_java_is_built_from_the_folder_that_the_script_is_in():
    built = {
        said["build"]["dockerfile"]: said["build"]["context"]
        for said in stack_files.services().values()
        if isinstance(said.get("build"), dict)
    }
    with_java = {f"images/{path.parent.name}/Dockerfile" for path in (ROOT / "images").glob("*/Dockerfile")
                 if "make-java" in path.read_text()}  # fmt: skip
    assert {built[name] for name in with_java} == {".."}
